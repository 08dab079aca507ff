"""What all commands take: the table, where its settings come from, and how to print, declared once by `on_table`.

Commands start no Spark, so they read Hadoop's settings from the files of this machine.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any
from xml.etree import ElementTree

import typer

from lakelock.cli.output import Output, reporting
from lakelock.errors import CorruptTableError, SettingsError
from lakelock.events import Listener
from lakelock.occ.coordinator import Coordinator
from lakelock.parsing import parse_java_properties
from lakelock.settings import Settings
from lakelock.settings.resolver import Resolved, shown_value
from lakelock.storage.hadoop import completed, with_name_node
from lakelock.storage.location import StorageLocation, canonical_uri, is_local
from lakelock.texts import command

_SPARK_PREFIX = "spark.hadoop."


def hadoop_settings(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """`core-site.xml` and `hdfs-site.xml` of HADOOP_CONF_DIR, and over them `spark.hadoop.*` of Spark's `spark-defaults.conf`.

    Nothing where there is none of them; `SettingsError` for one that cannot be read.
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
    """Its entries as Spark reads them: it is a properties file of Java, with blanks, tabs, `=` or `:` after a name."""
    if not file.is_file():
        return {}
    try:
        entries = parse_java_properties(file.read_bytes(), str(file))
    except (CorruptTableError, OSError) as error:
        hint = "correct it, give this user access to it, or unset SPARK_CONF_DIR and SPARK_HOME"
        why = error if isinstance(error, OSError) else "it has a malformed \\u escape"  # the line may hold a secret
        raise SettingsError(f"{file} cannot be read: {why}", hint=hint) from error
    found = {name: value.strip() for name, value in entries.items() if name.startswith(_SPARK_PREFIX)}
    return {name.removeprefix(_SPARK_PREFIX): value for name, value in found.items()}


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
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]
PartitionOption = Annotated[
    list[str] | None,
    typer.Option("--partition", "-p", help="A partition or prefix, such as month=1. May be repeated.", show_default=False),
]

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


@dataclass(frozen=True)
class Call(Next):
    """One call of a command: its table, where its settings come from, and where its result goes."""

    out: Output = field(kw_only=True)

    @contextmanager
    def opened(self, *, lock: bool = False, listeners: Sequence[Listener] = ()) -> Iterator[Coordinator]:
        """The table, open for the block. Without `lock` no lock service is contacted or needs to be installed."""
        settings = resolved(self.config, self.overrides).settings
        if not lock:
            settings = replace(settings, concurrency=replace(settings.concurrency, mode="SINGLE_WRITER"))
        location = location_of(self.path, settings)
        with Coordinator.open(location, settings, application=APPLICATION, listeners=listeners) as coordinator:
            yield coordinator

    def ask(self, question: str, shown: Callable[[Output], None] = lambda _: None) -> None:
        """Ask, after what is `shown`: the command ends unless the answer is yes. `SettingsError` where it prints JSON."""
        if self.out.as_json:
            raise SettingsError("--json does not ask", hint="add --yes")
        shown(self.out)
        typer.confirm(question, abort=True, err=True)


def on_table(command: Callable[..., None]) -> Callable[..., None]:
    """A command about a table: PATH stands where it takes its `call`, and it has --config, --set and --json, too.

    An error of lakelock is printed, and ends the process with its exit code.
    """

    @wraps(command)
    def run(path: str, config: Path | None, settings: list[str] | None, as_json: bool, **own: Any) -> None:
        with reporting(as_json) as out:
            command(call=Call(path, config, settings, out=out), **own)

    given = signature(command, eval_str=True).parameters.values()
    parameters = [*(_PATH if each.annotation is Call else each for each in given), *_COMMON]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return run


_PATH = Parameter("path", Parameter.POSITIONAL_OR_KEYWORD, annotation=TableArgument)
_COMMON = [
    Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, annotation=annotation, default=default)
    for name, annotation, default in (
        ("config", ConfigOption, None),
        ("settings", SetOption, None),
        ("as_json", JsonOption, False),
    )
]
