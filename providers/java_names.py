"""Names of locks that Java Hudi derives from a table, where a configuration names none."""

from __future__ import annotations

from lakelock.parsing import parse_java_properties
from lakelock.storage import Storage
from lakelock.table import layout
from lakelock.xxhash64 import HUDI_SEED, xxhash64


def table_name(storage: Storage) -> str:
    """The table's name, which is Java's default lock key; "" if the table has none that can be read."""
    found = storage.get(layout.PROPERTIES)
    return parse_java_properties(found.data, layout.PROPERTIES).get("hoodie.table.name", "") if found else ""


def path_hash(base_path: str) -> str:
    """The hash that Java's implicit providers derive from the table's path."""
    return f"{xxhash64(base_path.encode(), HUDI_SEED):016X}"
