"""What all commands take: the table, where its settings come from, and how to print.

Commands start no Spark, so they read Hadoop's settings from the files of this machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated
from xml.etree import ElementTree

import typer

from lakelock.errors import SettingsError
from lakelock.events import Listener
from lakelock.occ.coordinator import Coordinator
from lakelock.settings import Settings
from lakelock.settings.resolver import Resolved, shown_value
from lakelock.storage.hadoop import completed, with_name_node
from lakelock.storage.location import StorageLocation, canonical_uri, is_local
from lakelock.texts import command

_SPARK_PREFIX = "spark.hadoop."


def hadoop_settings(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """`core-site.xml` and `hdfs-site.xml` of HADOOP_CONF_DIR, and over them `spark.hadoop.*` of Spark's `spark-defaults.conf`.

    Nothing where there is none of them; `SettingsError` for one that is not XML.
    """
    found: dict[str, str] = {}
    if folder := environ.get("HADOOP_CONF_DIR"):
        found |= _site(Path(folder, "core-site.xml")) | _site(Path(folder, "hdfs-site.xml"))
    home = environ.get("SPARK_HOME")
    if conf := environ.get("SPARK_CONF_DIR") or (home and f"{home}/conf"):
        found |= _spark_defaults(Path(conf, "spark-defaults.conf"))
    return found


def _site(file: Path) -> dict[str, str]:
    if not file.is_file():
        return {}
    try:
        root = ElementTree.fromstring(file.read_bytes())
    except (ElementTree.ParseError, OSError) as error:
        raise SettingsError(f"{file} cannot be read: {error}", hint="correct it, or unset HADOOP_CONF_DIR") from error
    return {(p.findtext("name") or "").strip(): (p.findtext("value") or "").strip() for p in root.iter("property")}


def _spark_defaults(file: Path) -> dict[str, str]:
    """Lines of a name and a value, with blanks or `=` between them."""
    found: dict[str, str] = {}
    for line in file.read_text(errors="replace").splitlines() if file.is_file() else ():
        name, _, value = line.strip().replace("=", " ", 1).partition(" ")
        if name.startswith(_SPARK_PREFIX):
            found[name.removeprefix(_SPARK_PREFIX)] = value.strip()
    return found


TableArgument = Annotated[
    str, typer.Argument(metavar="PATH", help="The table: a folder, or a URI such as s3://bucket/table.", show_default=False)
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="Settings file (TOML, or a Hudi properties file).", show_default=False),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", "-s", metavar="KEY=VALUE", help="One setting, such as lock.wait_s=10. May be repeated.", show_default=False
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]

APPLICATION = "lakelock command line"


def resolved(config: Path | None, overrides: Sequence[str] | None) -> Resolved:
    """Settings from `--set`, the file and the defaults; `SettingsError` for an unknown setting."""
    options: dict[str, object] = {}
    for given in overrides or ():
        key, equals, value = given.partition("=")
        if not equals or not key.strip():
            raise SettingsError(f"--set {given} is not of the form KEY=VALUE", hint="write for example --set lock.wait_s=10")
        options[key.strip()] = value.strip()
    return Settings.resolve(options=options, file=config)


@dataclass(frozen=True)
class Next:
    """Commands to print, on the table of this call and with its settings: without them they could take another lock."""

    path: str
    config: Path | None = None
    overrides: Sequence[str] | None = None

    def command(self, name: str, *rest: object) -> str:
        """The command `name`, such as `markers reap`. The value of a secret is left for the reader to fill in."""
        options = [] if self.config is None else ["-c", str(self.config)]
        for given in self.overrides or ():
            key, equals, value = given.partition("=")
            options += ["--set", f"{key}={shown_value(key, value)}" if equals else given]
        return command(*name.split(), self.path, *rest, *options)


def location_of(path: str, settings: Settings) -> StorageLocation:
    """Where the table is; what the settings leave open is taken from Hadoop's files on this machine."""
    hadoop = cache(hadoop_settings)  # its files are read when they are asked for, once
    uri = canonical_uri(with_name_node(path, lambda name: hadoop().get(name)))
    options = settings.storage if is_local(uri) else completed(uri, settings.storage, hadoop().get)
    return StorageLocation(uri, options)


@contextmanager
def opened(
    path: str, config: Path | None, overrides: Sequence[str] | None, *, lock: bool = False, listeners: Sequence[Listener] = ()
) -> Iterator[Coordinator]:
    """The table, open for the block. Without `lock` no lock service is contacted or needs to be installed."""
    settings = resolved(config, overrides).settings
    if not lock:
        settings = replace(settings, concurrency=replace(settings.concurrency, mode="SINGLE_WRITER"))
    coordinator = Coordinator.open(location_of(path, settings), settings, application=APPLICATION, listeners=listeners)
    with coordinator:
        yield coordinator
