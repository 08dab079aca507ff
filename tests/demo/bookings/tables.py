"""The two tables, what a move does to both, and what must be true of them at any moment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from lakelock.settings import Settings
from tests.api import ArrowEngine, Runtime, StorageLocation, TableProperties, TableSchema, create_table
from tests.demo.flights import DemoError
from tests.over_engines import transaction

BOOKINGS, SEATS = "bookings", "seats"
FREE = ""
BOOKINGS_SCHEMA = pa.schema([("booking", pa.string()), ("flight", pa.string()), ("seat", pa.string())])
SEATS_SCHEMA = pa.schema([("flight", pa.string()), ("seat", pa.string()), ("booking", pa.string())])
KEYS = {BOOKINGS: ("booking",), SEATS: ("flight", "seat")}
FLIGHTS = ("AA 1", "B6 725", "DL 1919", "EV 4372", "MQ 3737", "UA 15", "US 1491", "WN 272")
SEATS_A_FLIGHT = 8
BOOKED = 48


def create_both(root: str, options: Mapping[str, str], runtime: Runtime) -> None:
    """Make both tables below a folder or a URI, empty."""
    storage = Settings.resolve(options).settings.storage
    for name, schema in ((BOOKINGS, BOOKINGS_SCHEMA), (SEATS, SEATS_SCHEMA)):
        avro = TableSchema.from_arrow(schema).to_avro_json(name)
        place = StorageLocation.of(f"{root}/{name}", storage).open()
        create_table(place, TableProperties.new(name, KEYS[name], create_schema=avro), runtime)


def first_rows() -> tuple[pa.Table, pa.Table]:
    """Bookings and seats at the beginning: each booking has a seat, and some seats are free."""
    places = [(flight, f"{row}A") for row in range(1, SEATS_A_FLIGHT + 1) for flight in FLIGHTS]
    ids = [f"B{number:02}" if number < BOOKED else FREE for number in range(len(places))]
    seats = [(flight, seat, booking) for (flight, seat), booking in zip(places, ids, strict=True)]
    bookings = [(booking, flight, seat) for flight, seat, booking in seats if booking]
    return _rows(BOOKINGS_SCHEMA, bookings), _rows(SEATS_SCHEMA, seats)


def move(bookings: ArrowEngine, seats: ArrowEngine, booking: str, chance: float) -> str:
    """Move a booking to a free seat, in both tables or in none; where it is now. `chance` from 0 to 1 chooses the seat.

    Raises what a commit does. The block is not run again: a caller moves again, from the reads on.
    """
    with transaction(bookings, seats) as tx:
        (mine,) = tx[bookings].read(pc.field("booking") == booking).to_pylist()
        free = tx[seats].read(pc.field("booking") == FREE).to_pylist()
        # The tables are begun one after the other, so another move of this booking may have come between: then its own seat
        # still looks free, and the commit is rejected.
        free = [row for row in free if (row["flight"], row["seat"]) != (mine["flight"], mine["seat"])]
        there = sorted(free, key=lambda row: (row["flight"], row["seat"]))[int(chance * len(free))]
        tx[bookings].upsert(_rows(BOOKINGS_SCHEMA, [(booking, there["flight"], there["seat"])]))
        changed = [(mine["flight"], mine["seat"], FREE), (there["flight"], there["seat"], booking)]
        tx[seats].upsert(_rows(SEATS_SCHEMA, changed))
    return f"{there['flight']}, seat {there['seat']}"


def halves(bookings: pa.Table, seats: pa.Table) -> list[str]:
    """What is wrong with the two tables: bookings without their seat, seats without their booking. Empty if all is well."""
    booked = sorted((row["booking"], row["flight"], row["seat"]) for row in bookings.to_pylist())
    taken = sorted((row["booking"], row["flight"], row["seat"]) for row in seats.to_pylist() if row["booking"] != FREE)
    wrong = [f"{one} is booked, and has no such seat" for one in booked if one not in taken]
    wrong += [f"{one} is taken, and has no such booking" for one in taken if one not in booked]
    missing = BOOKED - len(booked)
    return wrong + ([f"{len(booked)} bookings of {BOOKED}"] if missing else [])


def read_by_hudi(table: Path) -> pa.Table:
    """One of the tables as hudi-rs reads it."""
    from hudi import HudiTableBuilder

    batches = HudiTableBuilder.from_base_uri(str(table)).build().read()
    if not batches:
        raise DemoError(f"hudi-rs reads nothing in {table.name}")
    return pa.Table.from_batches(batches)


def _rows(schema: pa.Schema, rows: list[tuple[str, str, str]]) -> pa.Table:
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=schema)
