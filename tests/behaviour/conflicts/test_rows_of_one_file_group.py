"""On merge-on-read tables, writers of different rows of one file group do not collide; writers of one row do."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.api import ArrowEngine, MemoryStorage, Storage, StorageLocation
from tests.behaviour.foreign import Peer
from tests.behaviour.tables import QUICK, SCHEMA, leftovers, new_table, writer

import lakelock
from lakelock.conflict import ConflictRule
from lakelock.errors import ConflictError
from lakelock.settings import ConcurrencySettings
from lakelock.table.index import parsed_index
from lakelock.table.log_files import blocks_of, positions_in
from lakelock.table.properties import MERGE_ON_READ
from lakelock.table.rewriting import ARROW, Kernels

ROWS = 20
FIRST = {f"k{number:02}": number for number in range(ROWS)}
Write = Callable[[ArrowEngine, Any], object]
"""What an engine writes in a transaction, which it commits."""


def rows(**values: int) -> pa.Table:
    return pa.table([list(values), list(values.values()), ["1"] * len(values)], schema=SCHEMA)


def content(engine: ArrowEngine) -> dict[str, int]:
    table = engine.read()
    found = list(zip(table.column("id").to_pylist(), table.column("v").to_pylist(), strict=True))
    assert len(dict(found)) == len(found), found
    return dict(sorted(found))


@pytest.fixture
def storage() -> Storage:
    made = MemoryStorage()
    new_table(made, table_type=MERGE_ON_READ)
    ArrowEngine(writer(made)).insert(rows(**FIRST))
    return made


def upsert(**values: int) -> Write:
    return lambda engine, tx: engine.upsert_in(tx, rows(**values))


def delete_keys(*keys: str) -> Write:
    return lambda engine, tx: engine.delete_keys_in(tx, rows(**dict.fromkeys(keys, 0)))


def delete(condition: pc.Expression) -> Write:
    return lambda engine, tx: engine.delete_where_in(tx, condition)


def update(condition: pc.Expression | None, by: int = 100) -> Write:
    return lambda engine, tx: engine.update_in(tx, {"v": pc.add(pc.field("v"), by)}, condition)


def read_and_upsert(condition: pc.Expression, **values: int) -> Write:
    def write(engine: ArrowEngine, tx: Any) -> object:
        engine.read_in(tx, condition)
        return engine.upsert_in(tx, rows(**values))

    return write


V, ID = pc.field("v"), pc.field("id")
MANY = {key: 1000 + v for key, v in FIRST.items() if v < ROWS // 2}
"""So many rows that the file group is rewritten."""

APART: dict[str, tuple[Write, Write]] = {
    "upserts": (upsert(k00=500), upsert(k01=600)),
    "an upsert and a delete": (upsert(k00=500), delete_keys("k01")),
    "deletes by condition": (delete(V == 3), delete(V == 4)),
    "updates by condition": (update(V < 3), update(V == 7)),
    "an update and an upsert": (update(V == 3), upsert(k05=500)),
    "a read and an upsert": (read_and_upsert(V == 3, k04=500), upsert(k05=500)),
    "a log file and a new base file": (upsert(k19=500), upsert(**MANY)),
    "an update and a new base file": (update(V == 19), upsert(**MANY)),
    "a new base file and a log file": (upsert(**MANY), upsert(k19=500)),
    "a new base file and a delete": (update(V < 10), delete(V == 19)),
}
COLLIDING: dict[str, tuple[Write, Write]] = {
    "upserts": (upsert(k00=500), upsert(k00=600)),
    "an upsert and a delete": (upsert(k00=500), delete_keys("k00")),
    "a delete and an upsert": (delete_keys("k00"), upsert(k00=500)),
    "deletes by condition": (delete(V == 3), delete(ID == "k03")),
    "an update of a row that was changed": (update(V == 3), upsert(k03=600)),
    "an update of a row that was deleted": (update(V == 3), delete_keys("k03")),
    "an update of a row that would be chosen now": (update(V == 3), upsert(k05=3)),
    "a read of a row that was changed": (read_and_upsert(V == 3, k04=500), upsert(k03=600)),
    "a read of a row that was deleted": (read_and_upsert(V == 3, k04=500), delete_keys("k03")),
    "a read of a row that would be found now": (read_and_upsert(V == 3, k04=500), upsert(k05=3)),
    "a read without a condition": (read_and_upsert(V >= 0, k04=500), upsert(k05=500)),
    "a log file and a new base file": (upsert(k00=500), upsert(**MANY)),
    "a log file and a row that the new base file lacks": (upsert(k00=500), delete(V < 10)),
    "an update and a new base file": (update(V == 3), upsert(**MANY)),
    "an update and a new base file with such a row": (update(V == 19), upsert(**{**MANY, "k03": 19})),
    "a new base file and a log file": (upsert(**MANY), upsert(k03=500)),
    "a new base file and a delete": (update(V < 10), delete(V == 3)),
    "a new base file and a row that would be chosen": (update(V < 10), upsert(k19=3)),
    "new base files": (upsert(**MANY), update(V >= 10)),
}


def both(storage: Storage, mine: Write, other: Write, settings: Any = QUICK) -> None:
    """The other write is begun and committed while mine is open."""
    one, two = ArrowEngine(writer(storage, settings)), ArrowEngine(writer(storage, settings, name="other"))
    tx = one.coordinator.begin("UPSERT")
    tx.snapshot()
    with two.coordinator.begin("UPSERT") as theirs:
        other(two, theirs)
    with tx:
        mine(one, tx)


@pytest.mark.parametrize(
    "mine", [update(V == 1003), delete(V == 1003), read_and_upsert(V == 1003, k19=1), upsert(k03=5)],
    ids=["an update", "a delete", "a read", "an upsert"],
)  # fmt: skip
def test_a_writer_collides_with_a_restore_that_brings_an_earlier_version_of_its_row_back(storage: Storage, mine: Write) -> None:
    one, two = ArrowEngine(writer(storage)), ArrowEngine(writer(storage, name="other"))
    first = one.coordinator.history(1)[0].instant
    one.upsert(rows(k03=1003, k04=1004))
    tx = one.coordinator.begin("UPSERT")
    tx.snapshot()
    two.restore(first)
    with pytest.raises(ConflictError), tx:
        mine(one, tx)
    assert content(one) == FIRST


def test_a_reader_collides_with_a_delete_of_one_of_two_rows_of_a_key(storage: Storage) -> None:
    keys = ["d", "d", *(f"e{number:02}" for number in range(ROWS))]
    ArrowEngine(writer(storage)).insert(pa.table([keys, range(100, 100 + len(keys)), ["1"] * len(keys)], schema=SCHEMA))
    with pytest.raises(ConflictError):
        both(storage, read_and_upsert(V == 100, e01=500), delete(V == 100))


def one_by_one(*writes: Write) -> dict[str, int]:
    made = MemoryStorage()
    new_table(made, table_type=MERGE_ON_READ)
    engine = ArrowEngine(writer(made))
    engine.insert(rows(**FIRST))
    for write in writes:
        with engine.coordinator.begin("UPSERT") as tx:
            write(engine, tx)
    return content(engine)


@pytest.mark.parametrize("name", APART)
def test_writers_of_different_rows_do_not_collide(storage: Storage, name: str) -> None:
    mine, other = APART[name]
    both(storage, mine, other)
    assert content(ArrowEngine(writer(storage))) == one_by_one(other, mine)
    assert leftovers(storage) == []


@pytest.mark.parametrize("name", COLLIDING)
def test_writers_of_one_row_collide(storage: Storage, name: str) -> None:
    mine, other = COLLIDING[name]
    with pytest.raises(ConflictError) as caught:
        both(storage, mine, other)
    assert caught.value.conflict.retry_helps
    assert content(ArrowEngine(writer(storage))) == one_by_one(other)
    assert leftovers(storage) == []


@pytest.mark.parametrize("name", ["upserts", "an upsert and a delete", "a log file and a new base file", "new base files"])
@pytest.mark.parametrize("profile", ["hudi", "delta", "hive"])
def test_no_profile_loses_an_update_of_a_row(storage: Storage, name: str, profile: Any) -> None:
    settings = replace(QUICK, concurrency=ConcurrencySettings(profile=profile))
    with pytest.raises(ConflictError):
        both(storage, *COLLIDING[name], settings)


@pytest.mark.parametrize(
    ("profile", "rule"), [("hudi", None), ("delta", ConflictRule.APPEND), ("hive", ConflictRule.WRITE_SET)]
)
def test_only_some_profiles_let_writers_of_different_rows_pass(
    storage: Storage, profile: Any, rule: ConflictRule | None
) -> None:
    """Delta's rules know files and no rows; in Hive's, the first writer of a partition wins."""
    settings = replace(QUICK, concurrency=ConcurrencySettings(profile=profile))
    if rule is None:
        return both(storage, *APART["upserts"], settings)
    with pytest.raises(ConflictError) as caught:
        both(storage, *APART["upserts"], settings)
    assert caught.value.conflict.rule is rule
    return None


def test_a_log_file_on_a_new_base_file_of_other_rows_is_compacted_with_it(storage: Storage) -> None:
    both(storage, *APART["a log file and a new base file"])
    engine = ArrowEngine(writer(storage))
    (slice_,) = engine.coordinator.shown().logged
    assert slice_.base is not None and slice_.base.instant > slice_.logs[0].instant
    expected = content(engine)
    engine.update({"v": V})
    assert content(engine) == expected and engine.coordinator.shown().logged == ()


def test_an_append_needs_no_claim_and_ignores_those_of_others(storage: Storage) -> None:
    engine, other = ArrowEngine(writer(storage)), writer(storage, name="other")
    (file,) = other.snapshot().files
    with other.begin("UPSERT") as holder:
        holder.claim([file.group])
        engine.upsert(rows(k00=500))
        engine.delete(V == 3)
    assert content(engine)["k00"] == 500


def test_a_log_file_that_java_appends_meanwhile_is_compared_by_rows(storage: Storage) -> None:
    engine, peer = ArrowEngine(writer(storage)), Peer(storage)
    (file,) = engine.coordinator.snapshot().files
    tx = engine.coordinator.begin("UPSERT")
    peer.append(file.group, rows(k01=600), ["k02"])
    engine.upsert_in(tx, rows(k00=500))
    for lost in ("k03", "k04"):
        tx = engine.coordinator.begin("UPSERT")
        peer.append(file.group, rows(k03=600), ["k04"])
        with pytest.raises(ConflictError):
            engine.upsert_in(tx, rows(**{lost: 500}))
    found = content(engine)
    assert (found["k00"], found["k01"], found["k03"]) == (500, 600, 600) and found.keys().isdisjoint({"k02", "k04"})


def test_a_group_with_many_log_files_is_rewritten_by_one_writer_while_others_append(storage: Storage) -> None:
    engine = ArrowEngine(writer(storage))
    for number in range(10):
        engine.upsert(rows(k00=number))
    ones = [ArrowEngine(writer(storage, name=f"w{number}")) for number in range(3)]
    opened = [one.coordinator.begin("UPSERT") for one in ones]
    for number, (one, tx) in enumerate(zip(ones, opened, strict=True)):
        one.upsert_in(tx, rows(**{f"k0{number + 1}": 700}))
    found, (slice_,) = content(engine), engine.coordinator.shown().logged
    assert [found[f"k0{number}"] for number in range(4)] == [9, 700, 700, 700]
    assert len(slice_.logs) == 2 and slice_.base is not None and slice_.base.instant == opened[0].instant


def test_in_buckets_writers_of_different_keys_do_not_collide() -> None:
    storage = MemoryStorage()
    new_table(storage, table_type=MERGE_ON_READ, index=parsed_index("bucket:1"))
    ArrowEngine(writer(storage)).insert(rows(**FIRST))
    both(storage, upsert(k00=500), upsert(k01=600))
    found = content(ArrowEngine(writer(storage)))
    assert (found["k00"], found["k01"]) == (500, 600)
    with pytest.raises(ConflictError):
        both(storage, upsert(k02=500), upsert(k02=600))


def test_what_completes_while_a_transaction_begins_is_judged_and_not_part_of_its_snapshot(storage: Storage) -> None:
    """So writers that are many and fast keep none from beginning."""
    engine, other = ArrowEngine(writer(storage)), ArrowEngine(writer(storage, name="other"))
    table, looks = engine.coordinator.table, 0
    whole = type(table).timeline

    def timeline(self: Any) -> Any:
        nonlocal looks
        if self is table:
            looks += 1
            other.upsert(rows(k01=looks))
        return whole(self)

    type(table).timeline = timeline  # type: ignore[method-assign]
    try:
        tx = engine.coordinator.begin("UPSERT")
    finally:
        type(table).timeline = whole  # type: ignore[method-assign]
    assert looks <= 3 and content(engine)["k01"] == looks
    engine.upsert_in(tx, rows(k00=500))
    assert content(engine)["k00"] == 500


TURNS, PROCESSES = 2, 16
PATIENT = replace(QUICK, retry=replace(QUICK.retry, attempts=200), lock=replace(QUICK.lock, wait_s=120))


def in_processes(work: Callable[[str, int, Any], Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What each of sixteen processes gives back. They are forks of one that has imported this module."""
    monkeypatch.syspath_prepend(Path(__file__).parents[3])
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]), prepend=os.pathsep)
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload([__name__])
    with processes.Manager() as manager, ProcessPoolExecutor(PROCESSES, mp_context=processes) as pool:
        gate = manager.Barrier(PROCESSES)
        futures = [pool.submit(work, str(folder), number, gate) for number in range(PROCESSES)]
        return [future.result(timeout=300) for future in futures]


@pytest.fixture
def on_disk(tmp_path: Path) -> ArrowEngine:
    """A table on a disk with one file group."""
    storage = StorageLocation.of(str(tmp_path)).open()
    new_table(storage, table_type=MERGE_ON_READ)
    engine = ArrowEngine(writer(storage))
    engine.insert(rows(**FIRST))
    return engine


def _own_row(folder: str, number: int, gate: Any) -> int:
    """The attempts of one process."""
    engine = ArrowEngine(writer(StorageLocation.of(folder).open(), PATIENT, name=f"w{number}"))
    gate.wait(timeout=120)
    return sum(engine.upsert(rows(**{f"k{number:02}": 1000 + turn})).attempts for turn in range(TURNS))


@pytest.mark.waits
def test_sixteen_processes_write_rows_of_one_file_group_and_none_runs_again(
    on_disk: ArrowEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    attempts = sum(in_processes(_own_row, tmp_path, monkeypatch))
    found = content(on_disk)
    assert attempts == PROCESSES * TURNS
    assert [found[f"k{number:02}"] for number in range(PROCESSES)] == [999 + TURNS] * PROCESSES
    assert leftovers(on_disk.coordinator.table.storage) == []


def _one_row(folder: str, number: int, gate: Any) -> None:
    """Adds one to a row that it reads, and then upserts another."""
    engine = ArrowEngine(writer(StorageLocation.of(folder).open(), PATIENT, name=f"w{number}"))

    def add(tx: Any) -> Any:
        (seen,) = engine.read_in(tx, ID == "k00")["v"].to_pylist()
        return engine.upsert_in(tx, rows(k00=seen + 1))

    gate.wait(timeout=120)
    engine.run(add)
    engine.upsert(rows(k01=1000 + number), tag=str(number))


@pytest.mark.waits
def test_sixteen_processes_write_one_row_and_no_update_is_lost(
    on_disk: ArrowEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    in_processes(_one_row, tmp_path, monkeypatch)
    found, commits = content(on_disk), on_disk.coordinator.history(2 * PROCESSES)
    upserts = [[each.tag for each in entry.members] or [entry.tag] for entry in commits if entry.members or entry.tag]
    assert found["k00"] == PROCESSES and sorted(chain(*upserts)) == sorted(map(str, range(PROCESSES)))
    assert found["k01"] == 1000 + int(upserts[0][-1])
    assert leftovers(on_disk.coordinator.table.storage) == []


def test_a_redo_copies_the_log_files_of_groups_that_nobody_has_changed() -> None:
    storage = MemoryStorage()
    new_table(storage, table_type=MERGE_ON_READ)
    months = ["1", "2", "3"]

    def in_each(key: str, v: int, chosen: list[str]) -> pa.Table:
        return pa.table([[key] * len(chosen), [v] * len(chosen), chosen], schema=SCHEMA)

    engine, other = ArrowEngine(writer(storage)), ArrowEngine(writer(storage, name="other"))
    engine.insert(pa.concat_tables([in_each(key, 0, months) for key in FIRST]))
    met = []

    def meanwhile(change: Any, *given: Any, **named: Any) -> Any:
        if not met:
            met.append(other.upsert(in_each("k00", 600, ["2"])))
        return ARROW.log(change, *given, **named)

    class Meanwhile(Kernels):
        log = staticmethod(meanwhile)

    done = ArrowEngine(writer(storage), Meanwhile()).upsert(in_each("k00", 500, months))
    assert (done.attempts, done.files_kept) == (2, 2)
    table = engine.read()
    assert table.filter(pc.field("id") == "k00")["v"].to_pylist() == [500] * 3 and table.num_rows == 3 * ROWS
    stamps = {log.instant for slice_ in engine.coordinator.shown().logged for log in slice_.logs}
    assert stamps == {done.instant, met[0].instant} and leftovers(storage) == []
    logs = [log for slice_ in engine.coordinator.shown().logged for log in slice_.logs]
    blocks = [block for log in logs for block in blocks_of(storage.open_input(log.key), log.size_bytes, log.key)]
    assert len(blocks) == 4 and all(positions_in(block, ROWS) is not None for block in blocks)


NAN = float("nan")
FLOATS = pa.schema([("id", pa.string()), ("v", pa.float64()), ("s", pa.struct([("x", pa.float64())]))])


@pytest.mark.parametrize(
    ("condition", "value", "collide"),
    [
        ("{} = 0", -0.0, True),
        ("{} in (-0.0, 7)", 0.0, True),
        ("{} >= 0 and {} <= 0", -0.0, True),
        ("{} > 5000000000", NAN, True),
        ("{} < 5", NAN, False),
        ("{} is null", NAN, False),
        ("{} is null", None, True),
    ],
)
@pytest.mark.parametrize("column", ["v", "s.x"])
@pytest.mark.parametrize("changed", ["before", "after"])
def test_a_changed_row_matches_what_another_reads_by_sparks_rule_for_numbers(
    condition: str, value: float | None, collide: bool, column: str, changed: str, tmp_path: Path
) -> None:
    """Whether the row matched before the change or matches after it."""

    def row(value: float | None) -> dict[str, object]:
        return {"id": "a", "v": value, "s": {"x": value}}

    first, then = (value, 50.0) if changed == "before" else (50.0, value)
    settings = {"write.append_below": 1.0}
    with (
        lakelock.create(tmp_path / "t", schema=FLOATS, key="id", table_type="mor", settings=settings) as table,
        lakelock.open(tmp_path / "t", settings=settings) as other,
    ):
        table.insert([row(first), {"id": "b", "v": 20.0, "s": {"x": 20.0}}])
        expected = pytest.raises(ConflictError) if collide else nullcontext()
        with expected, table.transaction() as tx:
            assert tx.read(condition.replace("{}", column)).num_rows == (collide and changed == "before")
            other.upsert([row(then)])
            tx.upsert([{"id": "b", "v": 30.0, "s": {"x": 30.0}}])
        assert len(list((tmp_path / "t").glob(".*.log.*"))) == 1 + (not collide)
