"""Earlier states of merge-on-read tables: feeds, reads as of then, savepoints and restores, beside a writer that appends."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.api import ArrowEngine, LocalStorage, MemoryStorage, Storage
from tests.behaviour.beside_java.test_writes_merge_on_read import COLUMNS, content, group_of, logs_in, many, rows
from tests.behaviour.foreign import Peer
from tests.behaviour.tables import QUICK, leftovers, new_table, writer

from lakelock.errors import InputError, LakelockError
from lakelock.occ.change_feed import TableStream
from lakelock.occ.live_logs import slices_at
from lakelock.settings import ArchiveSettings, CleanSettings, OptimizeSettings, WriteSettings
from lakelock.table.properties import MERGE_ON_READ
from lakelock.table.slice_differences import CHANGE_TYPE

APPENDS = replace(QUICK, write=WriteSettings(append_below=1.0))
SWEEPS = replace(
    APPENDS,
    clean=CleanSettings(policy="KEEP_LATEST_COMMITS", keep_commits=1, readers_s=0),
    archive=ArchiveSettings(min_commits=3, max_commits=4, min_age_s=0),
)
COMPACT = OptimizeSettings(small_file_bytes=1)


@pytest.fixture
def engine(storage: Storage) -> ArrowEngine:
    return ArrowEngine(writer(storage, APPENDS))


def told(feed: pa.Table) -> list[tuple[str, str, int]]:
    return sorted((row[CHANGE_TYPE], row["id"], row["v"]) for row in feed.to_pylist())


def applied(state: dict[str, int], feed: pa.Table) -> dict[str, int]:
    """What a feed makes of a state: its before-images must be there."""
    rows_now = Counter(state.items())
    for row in feed.to_pylist():
        rows_now[row["id"], row["v"]] += 1 if row[CHANGE_TYPE] in ("insert", "update_postimage") else -1
    assert set(rows_now.values()) <= {0, 1}, rows_now
    return {key: v for (key, v), count in rows_now.items() if count}


def test_a_feed_tells_what_log_files_changed(engine: ArrowEngine, storage: Storage) -> None:
    engine.insert(many(5))
    mine = engine.upsert(rows(("k0001", 1)))
    Peer(storage).append(group_of(engine), rows(("k0002", 2)), ["k0003"])
    engine.optimize(sizes=COMPACT)
    assert told(engine.changes(mine.completion)) == [
        ("delete", "k0003", 0), ("update_postimage", "k0002", 2), ("update_preimage", "k0002", 0),
    ]  # fmt: skip
    engine.upsert(rows(("k0002", 0), ("k0001", 7)))
    net = engine.changes(mine.completion, mode="net")
    assert ("update_preimage", "k0001", 1) in told(net) and ("delete", "k0003", 0) in told(net)


def test_only_the_rows_of_the_named_keys_are_compared(engine: ArrowEngine, storage: Storage, monkeypatch) -> None:
    engine.insert(many(1000))
    before = engine.upsert(rows(("k0001", 1)))
    engine.upsert(rows(("k0002", 2)))
    seen = []
    monkeypatch.setattr("lakelock.table.slice_differences.compare", _noting(seen))
    assert len(told(engine.changes(before.completion))) == 2
    assert seen == [(1, 1)]


def _noting(seen):
    from lakelock.table.slice_differences import compare

    def noted(before, after, key):
        seen.append((before.num_rows, after.num_rows))
        return compare(before, after, key)

    return noted


def test_a_stream_begins_with_what_log_files_say_and_refuses_changes(engine: ArrowEngine, storage: Storage) -> None:
    engine.insert(many(3))
    engine.upsert(rows(("k0001", 5)))
    stream = TableStream(engine.coordinator.table)
    first = stream.first(None)
    end = stream.next(first)
    (part,) = stream.appended(first, end)
    assert len(part.file.logs) == 1 and content(engine.read_files([part.file], COLUMNS))["k0001"] == 5
    engine.optimize(sizes=COMPACT)
    after = stream.next(end)
    assert stream.appended(end, after) == ()
    engine.upsert(rows(("k0001", 6)))
    with pytest.raises(InputError, match="change_feed"):
        stream.appended(after, stream.next(after))


def test_a_savepoint_keeps_log_files_from_cleaning(storage: Storage) -> None:
    engine = ArrowEngine(writer(storage, SWEEPS))
    engine.insert(many(5))
    engine.upsert(rows(("k0001", 1)))
    saved = engine.coordinator.savepoint("good")
    (kept,) = logs_in(storage)
    assert saved.files == 2
    expected = content(engine.read())
    for number in range(3):
        engine.upsert(rows(("k0001", 10 + number)))
        engine.optimize(sizes=COMPACT)
        engine.coordinator.clean()
    assert content(engine.read(as_of=saved.instant)) == expected
    assert kept in logs_in(storage)
    engine.restore(saved.instant)
    assert content(engine.read()) == expected
    engine.coordinator.delete_savepoint("good")
    engine.insert(rows(("z", 0)))
    engine.coordinator.clean()
    assert kept not in logs_in(storage)
    assert content(engine.read()) == {**expected, "z": 0} and leftovers(storage) == []


def test_a_log_file_whose_base_file_is_gone_is_not_taken_for_the_whole_slice(engine: ArrowEngine, storage: Storage) -> None:
    engine.insert(many(5))
    good = engine.upsert(rows(("k0001", 1)))
    (old,) = engine.coordinator.snapshot().files
    engine.overwrite_partitions(rows(("x", 0)))
    storage.delete([old.key])
    with pytest.raises(Exception, match="are cleaned"):
        engine.restore(good.instant)


def test_a_repair_takes_a_log_file_out_that_a_rollback_has_removed(engine: ArrowEngine, storage: Storage) -> None:
    engine.insert(many(5))
    engine.upsert(rows(("k0001", 1)))
    peer = Peer(storage)
    peer.insert(rows(("other", 1)), "month=1")
    before = content(engine.read())
    done = engine.upsert(rows(("k0001", 2), ("new", 2)))
    peer.begin()
    peer.roll_back(done.instant)
    engine.insert(rows(("later", 3)))
    with pytest.raises(LakelockError, match=done.instant):
        ArrowEngine(writer(storage, APPENDS)).read()
    repaired = engine.repair()
    assert [each.instant for each in repaired.undone] == [done.instant]
    assert content(engine.read()) == content(ArrowEngine(writer(storage)).read()) == {**before, "later": 3}
    engine.upsert(rows(("k0001", 9)))
    assert content(engine.read())["k0001"] == 9


@pytest.mark.parametrize("seed", range(10))
def test_every_earlier_state_can_be_had_again(tmp_path, seed: int) -> None:
    """By reads as of then, by feeds from state to state, and by restores."""
    chance, storage = random.Random(seed), MemoryStorage() if seed % 2 else LocalStorage(str(tmp_path / "t"))
    new_table(storage, table_type=MERGE_ON_READ)
    engine, peer, model = ArrowEngine(writer(storage, APPENDS)), Peer(storage), dict[str, int]()
    states: list[tuple[str, str, dict[str, int]]] = []
    for step in range(25):
        keys = chance.sample("abcdefgh", chance.randint(1, 3))
        kind = chance.choice(["upsert", "upsert", "delete", "condition", "append", "append", "optimize", "compact", "restore"])
        if kind == "upsert" or not states:
            engine.upsert(rows(*((key, step) for key in keys)))
            model = {**model, **dict.fromkeys(keys, step)}
        elif kind == "delete":
            engine.delete(rows(*((key, 0) for key in keys)))
            model = {key: v for key, v in model.items() if key not in keys}
        elif kind == "condition":
            engine.delete(pc.field("v") == step - 2)
            model = {key: v for key, v in model.items() if v != step - 2}
        elif kind == "append":
            table = engine.coordinator.table
            there = {
                key: file.group
                for file in slices_at(table, table.timeline()).files
                for key in engine.read_files([file], COLUMNS).column("id").to_pylist()
            }
            mine = [key for key in keys if key in there and there[key] == there.get(keys[0])]
            if mine:
                gone, kept = mine[: len(mine) // 2], mine[len(mine) // 2 :]
                peer.append(there[mine[0]], rows(*((key, step) for key in kept)), gone)
                model = {key: v for key, v in {**model, **dict.fromkeys(kept, step)}.items() if key not in gone}
        elif kind == "restore":
            instant, _, model = chance.choice(states)
            engine.restore(instant)
        else:
            engine.optimize(sizes=COMPACT if kind == "compact" else None)
        assert content(engine.read()) == model, (step, kind)
        newest = engine.coordinator.table.timeline().commits[-1]
        if not states or newest.requested != states[-1][0]:
            states.append((newest.requested, newest.completion or "", model))
    for instant, _, expected in states:
        assert content(engine.read(as_of=instant)) == expected
    for _ in range(12):
        (_, since, before), (_, until, after) = sorted(chance.sample(states, 2), key=lambda state: state[1])
        assert applied(before, engine.changes(since, until)) == after
        assert applied(before, engine.changes(since, until, mode="net")) == after
    assert leftovers(storage) == []
