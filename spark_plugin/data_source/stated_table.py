"""What the options of a write say about its table: how to make it, and how it must be where it exists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyspark.sql.types import StructType

from lakelock.errors import SettingsError, TableError
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.definition import Definition
from lakelock.spark_plugin.data_source.flags import true_or_false
from lakelock.spark_plugin.frames import arrow_schema
from lakelock.storage.location import StorageLocation
from lakelock.table.index import parsed_index
from lakelock.table.properties import NEWEST_VERSION
from lakelock.table.transforms import parsed_transform, split_columns

OPTIONS = ("key", "partition_by", "order_by", "name", "hive_style", "index", "table_version")


@dataclass(frozen=True)
class StatedTable:
    """The arguments of `LakeTable.create` as options; None where there is no such option. Columns are separated by commas."""

    key: tuple[str, ...] | None = None
    partition_by: tuple[str, ...] | None = None
    order_by: str | None = None
    name: str | None = None
    hive_style: bool | None = None
    index: str | None = None
    table_version: int | None = None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> StatedTable:
        """From options with lower-case names; `SettingsError` for a value that means nothing."""
        hive_style = given.get("hive_style", "").strip()
        return cls(
            key=_columns(given.get("key")),
            partition_by=_columns(given.get("partition_by")),
            order_by=given.get("order_by"),
            name=given.get("name"),
            hive_style=true_or_false("hive_style", hive_style) if hive_style else None,
            index=given.get("index"),
            table_version=_version(given.get("table_version", "").strip()),
        )

    def definition(self, location: StorageLocation, columns: StructType) -> Definition:
        """The table to make for rows with these columns; without a key if no option names one."""
        return Definition.of(
            location,
            arrow_schema(columns),
            key=self.key or (),
            partition_by=self.partition_by or (),
            order_by=self.order_by or None,
            name=self.name,
            hive_style=self.hive_style is not False,
            index=self.index or None,
            table_version=self.table_version or NEWEST_VERSION,
        )

    def check(self, table: Coordinator) -> None:
        """`TableError` if the table is not as the options say, where they say something."""
        wrong = list(self._differences(table))
        if wrong:
            raise TableError(
                f"{table.table.storage.uri} is a table already, and not as the options say:\n  " + "\n  ".join(wrong),
                hint="leave these options out, for the table records what it is; or check the path",
            )

    def _differences(self, table: Coordinator) -> Iterator[str]:
        found = table.properties
        given, computed = self.partition_by, {str(transform).lower(): str(transform) for transform in found.transforms}
        texts = None if given is None else tuple(str(parsed_transform(text) or text) for text in given)
        partition_by = None if texts is None else tuple(computed.get(text.lower(), text) for text in texts)
        index = None if self.index is None else str(parsed_index(self.index).hashing(found.record_keys))
        for what, wanted, has in (
            ("key", self.key, found.record_keys),
            ("partition_by", partition_by, found.partition_by),
            ("order_by", self.order_by, found.ordering_field or ""),
            ("name", self.name, found.name),
            ("hive_style", self.hive_style, found.hive_style if found.partition_fields else self.hive_style),
            ("index", index, str(found.index)),
            ("table_version", self.table_version, found.version),
        ):
            if wanted is not None and wanted != has:
                yield f"{what}: {_shown(wanted)} was given, the table has {_shown(has)}"


def _columns(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(split_columns(text))


def _version(text: str) -> int | None:
    if text and not (text.isascii() and text.isdigit()):
        raise SettingsError(f"table_version is {text!r}, which is no number", hint="write 8 or 9", key="table_version")
    return int(text) if text else None


def _shown(value: object) -> str:
    text = ", ".join(value) if isinstance(value, tuple) else str(value)
    return text or "none"
