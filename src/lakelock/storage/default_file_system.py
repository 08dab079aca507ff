"""Paths that leave something to Hadoop's setting `fs.defaultFS`: their file system, or the name node of `hdfs:///data/t`."""

from __future__ import annotations

import os
import re
from typing import TypeVar

from lakelock.errors import SettingsError
from lakelock.storage.hdfs.options import Get
from lakelock.storage.location import canonical_uri

SETTING = "fs.defaultFS"

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_NO_NAME_NODE = re.compile(r"hdfs:(?://)?(/(?!/).*)", re.IGNORECASE | re.DOTALL)

AnyPath = TypeVar("AnyPath", bound="str | os.PathLike[str]")


def with_name_node(path: str, get: Get) -> str:
    """`hdfs:///data/t` with the name node or name service of `fs.defaultFS`; any other path, or without such one, as it is."""
    match = _NO_NAME_NODE.fullmatch(path.strip())
    default = _default(get) if match else ""
    return f"{default}{match[1]}" if match and default.lower().startswith("hdfs://") else path


def as_spark_reads(path: AnyPath, get: Get) -> AnyPath | str:
    """The path in full, as Spark's readers take it: one without a scheme is in `fs.defaultFS`, wherever that is.

    A `pathlib.Path`, and a path that starts with `~/`, is on this machine. `SettingsError` for a relative path in a default
    file system elsewhere, and for a file system that lakelock does not have.
    """
    if not isinstance(path, str):
        return path
    text = path.strip()
    if _SCHEME.match(text):
        return with_name_node(text, get)
    default = _default(get)
    if not text or text.startswith("~/") or default.partition(":")[0].lower() in ("", "file"):
        return path
    where = f"{text!r} has no scheme, so it is in Spark's default file system, {default} ({SETTING})"
    hint = f"write {default}/..., or file:///... for a folder of this machine"
    if not text.startswith("/"):
        raise SettingsError(f"{where}, and it is not absolute", hint=hint)
    try:
        canonical_uri(f"{default}{text}")
    except SettingsError as error:
        hint = "name it by a file system that lakelock has, such as hdfs://CLUSTER/..., or write file:///... for this machine"
        raise SettingsError(f"{where}: {error.message}", hint=hint) from error
    return f"{default}{text}"


def _default(get: Get) -> str:
    return (get(SETTING) or "").strip().rstrip("/")
