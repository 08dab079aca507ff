"""Hadoop's settings as files on this machine say them, for commands that start no Spark."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

from lakelock.errors import SettingsError

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
