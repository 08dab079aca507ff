"""Row by row: what a reader returned against the serial replay, both ways and with duplicates counted."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import pyarrow as pa

from tests.demo.flights import KEY, ORDERING, SCHEMA, DemoError
from tests.demo.replay import REPLAY

SHOWN = 5


@dataclass(frozen=True)
class Comparison:
    """`missing` and `unexpected` show the first rows of each kind; the counts are exact."""

    reader: str
    rows: int
    missing_count: int
    unexpected_count: int
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        return not self.missing_count and not self.unexpected_count

    def __str__(self) -> str:
        if self.same:
            return f"{self.reader}: {self.rows:,} rows, the same as the serial replay"
        lines = [f"{self.reader}: {self.rows:,} rows, NOT the same as the serial replay"]
        for what, count, shown in (
            ("missing", self.missing_count, self.missing),
            ("unexpected", self.unexpected_count, self.unexpected),
        ):
            lines += [f"  {count:,} {what}:" for _ in range(bool(count))] + [f"    {row}" for row in shown]
            if count > len(shown):
                lines.append(f"    and {count - len(shown):,} more")
        return "\n".join(lines)


def compare(connection: duckdb.DuckDBPyConnection, reader: str, rows: pa.Table) -> Comparison:
    """Compare `rows` with the table `replay` of the connection."""
    connection.register("found_rows", in_shape(reader, rows))
    try:
        missing = _difference(connection, REPLAY, "found_rows")
        unexpected = _difference(connection, "found_rows", REPLAY)
    finally:
        connection.unregister("found_rows")
    return Comparison(reader, rows.num_rows, missing[0], unexpected[0], missing[1], unexpected[1])


def in_shape(reader: str, rows: pa.Table) -> pa.Table:
    """The rows with the flights' columns and types; values that do not fit are an error, never rounded."""
    lacking = [name for name in SCHEMA.names if name not in rows.schema.names]
    if lacking:
        raise DemoError(f"{reader} returned no column {', '.join(lacking)}")
    try:
        return rows.select(SCHEMA.names).cast(SCHEMA)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DemoError(f"{reader} returned values of another type: {error}") from error


def _difference(connection: duckdb.DuckDBPyConnection, left: str, right: str) -> tuple[int, tuple[str, ...]]:
    """How many rows are in `left` and not in `right`, and the first of them."""
    names = ", ".join(SCHEMA.names)
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE difference AS SELECT {names} FROM {left} EXCEPT ALL SELECT {names} FROM {right}"
    )
    count = int(connection.execute("SELECT count(*) FROM difference").fetchall()[0][0])
    shown = (*KEY, "tailnum", "arr_delay", ORDERING)
    columns = ", ".join(f"CAST({name} AS VARCHAR)" for name in shown)
    first = connection.execute(f"SELECT {columns} FROM difference ORDER BY ALL LIMIT {SHOWN}").fetchall() if count else []
    return count, tuple(", ".join(f"{n}={v}" for n, v in zip(shown, row, strict=True)) for row in first)
