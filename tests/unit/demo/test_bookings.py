"""The demo's bookings and seats: a move changes both, and half a move is recognised."""

from pathlib import Path

import pyarrow.compute as pc
import pytest
from tests.api import ArrowEngine, Coordinator, StorageLocation, SystemRuntime
from tests.demo.bookings.tables import BOOKED, KEYS, create_both, first_rows, halves, move, read_by_hudi
from tests.over_engines import snapshot, transaction


@pytest.fixture
def engines(tmp_path: Path) -> list[ArrowEngine]:
    create_both(str(tmp_path), {}, SystemRuntime())
    both = [ArrowEngine(Coordinator.open(StorageLocation.of(str(tmp_path / name)))) for name in KEYS]
    with transaction(*both) as tx:
        for engine, rows in zip(both, first_rows(), strict=True):
            tx[engine].insert(rows)
    return both


def test_at_the_beginning_each_booking_has_a_seat_and_some_seats_are_free():
    bookings, seats = first_rows()
    assert bookings.num_rows == BOOKED < seats.num_rows
    assert halves(bookings, seats) == []


def test_after_any_move_each_booking_has_its_seat_for_every_reader(engines: list[ArrowEngine], tmp_path: Path):
    bookings, seats = engines
    before = bookings.read().filter(pc.field("booking") == "B07")
    for chance in (0.0, 0.5, 0.999):
        move(bookings, seats, "B07", chance)
        seen = snapshot(bookings, seats)
        assert halves(seen[bookings].read(), seen[seats].read()) == []
    assert bookings.read().filter(pc.field("booking") == "B07") != before
    assert halves(*(read_by_hudi(tmp_path / name) for name in KEYS)) == []


@pytest.mark.parametrize("moved", ["bookings", "seats"])
def test_a_move_that_one_table_shows_and_the_other_does_not_is_recognised(engines: list[ArrowEngine], moved: str):
    before = [engine.read() for engine in engines]
    move(*engines, "B07", 0.3)
    after = [engine.read() for engine in engines]
    half = (after[0], before[1]) if moved == "bookings" else (before[0], after[1])
    assert any("B07" in one for one in halves(*half))


def test_a_booking_that_is_gone_is_recognised():
    bookings, seats = first_rows()
    assert halves(bookings.filter(pc.field("booking") != "B07"), seats)
    assert halves(bookings.slice(0, 0), seats.slice(0, 0)) == [f"0 bookings of {BOOKED}"]
