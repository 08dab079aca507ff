"""The demo's input: the flights, and who writes which of them."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.demo.flights import FLIGHTS, KEY, SCHEMA, load, parse_size
from tests.demo.plan import (
    CHUNKS,
    CORRECTION_A,
    CORRECTION_B,
    ERASURE,
    LATE_FEED,
    LOADER,
    RECOUNT,
    Plan,
    make_plan,
)


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    return load(8_000)


def rows(plan: Plan, work: Path, writer: str) -> pa.Table:
    return pa.concat_tables([pq.read_table(work / path) for path in plan.operations[writer].inputs])


def distinct(table: pa.Table, columns: tuple[str, ...]) -> int:
    return table.group_by(list(columns)).aggregate([]).num_rows


def test_the_key_identifies_each_of_the_336776_flights_and_is_never_null():
    flights = load()
    assert flights.num_rows == FLIGHTS == 336_776
    assert distinct(flights, KEY) == FLIGHTS
    assert distinct(flights, KEY[:-1]) < FLIGHTS  # without the origin it does not
    assert all(flights[name].null_count == 0 for name in KEY)
    assert flights.schema.equals(SCHEMA)


@pytest.mark.parametrize(("text", "size"), [("0.5", 168_388), ("50000", 50_000), ("50,000", 50_000), ("2x", 2 * FLIGHTS)])
def test_a_size_is_a_share_a_number_or_years(text: str, size: int):
    assert parse_size(text) == size


@pytest.mark.parametrize("seed", range(6))
def test_every_flight_is_brought_by_exactly_one_insert_whatever_the_seed(flights: pa.Table, tmp_path: Path, seed: int):
    plan = make_plan(flights, seed, tmp_path)
    inserts = [o for o in plan.operations.values() if o.kind == "insert"]
    brought = pa.concat_tables([rows(plan, tmp_path, o.writer) for o in inserts])
    assert brought.num_rows == distinct(brought, KEY) == flights.num_rows
    assert len(plan.chunks) == CHUNKS
    assert {o.writer for o in inserts} == {LOADER, LATE_FEED, "stream"}


@pytest.mark.parametrize("seed", range(6))
def test_the_corrections_change_loaded_flights_only_and_meet_in_some_months_and_keys(
    flights: pa.Table, tmp_path: Path, seed: int
):
    plan = make_plan(flights, seed, tmp_path)
    loaded, a, b = (rows(plan, tmp_path, w) for w in (LOADER, CORRECTION_A, CORRECTION_B))
    for correction in (a, b, rows(plan, tmp_path, RECOUNT)):
        assert correction.join(loaded.select(KEY), list(KEY), join_type="left anti").num_rows == 0
        assert correction["arr_delay"].null_count == 0
    months = set(a["month"].unique().to_pylist()) & set(b["month"].unique().to_pylist())
    assert len(months) == 4
    both = a.join(b, list(KEY), join_type="inner", right_suffix="_b")
    order = [pc.sum(compare(both["updated_at"], both["updated_at_b"])).as_py() for compare in (pc.less, pc.equal, pc.greater)]
    assert all(order), "some rows of B must be newer than A's, some as old, and some older"


def test_the_killed_recount_never_meets_the_second_correction(flights: pa.Table, tmp_path: Path):
    for seed in range(6):
        plan = make_plan(flights, seed, tmp_path)
        months = [set(rows(plan, tmp_path, w)["month"].unique().to_pylist()) for w in (RECOUNT, CORRECTION_B)]
        assert months[0].isdisjoint(months[1])


def test_the_erased_aircraft_are_in_the_load_and_in_one_chunk_at_most(flights: pa.Table, tmp_path: Path):
    plan = make_plan(flights, 1, tmp_path)
    tails = pa.array(plan.operations[ERASURE].tails)
    found = [pc.sum(pc.is_in(pq.read_table(tmp_path / chunk)["tailnum"], tails)).as_py() for chunk in plan.chunks]
    assert sum(count > 0 for count in found) <= 1
    assert pc.sum(pc.is_in(rows(plan, tmp_path, LOADER)["tailnum"], tails)).as_py() > 0
    assert plan.operations[ERASURE].condition == "tailnum IN ({})".format(", ".join(f"'{t}'" for t in tails.to_pylist()))


def test_a_plan_is_decided_by_its_seed_alone_and_survives_being_saved(flights: pa.Table, tmp_path: Path):
    folders = [tmp_path / name for name in ("one", "same", "other")]
    for folder in folders:
        folder.mkdir()
    one, same, other = (make_plan(flights, seed, folder) for seed, folder in zip((5, 5, 6), folders, strict=True))
    assert one == same == Plan.load(folders[0])
    assert other.operations != one.operations
    assert rows(one, folders[0], CORRECTION_A).equals(rows(same, folders[1], CORRECTION_A))
