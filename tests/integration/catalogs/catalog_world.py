"""Tables that a catalog names, and their writers without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from tests.api import (
    ArrowEngine,
    Coordinator,
    Event,
    EventKind,
    StorageLocation,
    SystemRuntime,
    TableProperties,
    TableSchema,
    create_table,
)
from tests.tuning import settings_of

SCHEMA = pa.schema(
    [
        ("order_id", pa.int64()),
        ("shop", pa.string()),
        ("Price", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("attrs", pa.struct([("Colour", pa.string()), ("size", pa.int32())])),
        ("notes", pa.map_(pa.string(), pa.float64())),
    ]
)


@dataclass
class NamedTable:
    """One table on a disk and the settings of its writers."""

    path: Path
    options: Mapping[str, object]
    alerts: list[str] = field(default_factory=list)

    @classmethod
    def new(cls, path: Path, options: Mapping[str, object], partition_by: tuple[str, ...] = ("shop",)) -> NamedTable:
        columns = TableSchema.from_arrow(SCHEMA)
        properties = TableProperties.new(
            "orders", ("order_id",), partition_by, create_schema=columns.to_avro_json("orders", null_first=False)
        )
        create_table(StorageLocation.of(path).open(), properties, SystemRuntime())
        return cls(path, options)

    def writer(self, **more: object) -> ArrowEngine:
        """A writer as a process of its own would be one."""
        settings = settings_of({**self.options, **more})
        return ArrowEngine(Coordinator.open(StorageLocation.of(self.path), settings, listeners=(self._listen,)))

    def _listen(self, event: Event) -> None:
        if event.kind is EventKind.ALERT:
            self.alerts.append(str(event.facts["problem"]))


def orders(*rows: tuple[int, str], **columns: pa.DataType) -> pa.Table:
    """Rows of the table, with nulls but for the key and the shop; `columns` are further ones."""
    given = {"order_id": [row[0] for row in rows], "shop": [row[1] for row in rows]}
    schema = pa.schema([*SCHEMA, *columns.items()])
    return pa.table([given.get(name, [None] * len(rows)) for name in schema.names], schema=schema)
