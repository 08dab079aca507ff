"""Another engine on the same table, as its files tell: met early at its markers, and never overlooked after a commit."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from tests.api import (
    Action,
    CommitMetadata,
    Coordinator,
    DataFile,
    EventKind,
    Instant,
    LocalStorage,
    MemoryStorage,
    State,
    Storage,
    StorageLocation,
    WriteStat,
    format_instant,
    layout,
    parse_instant,
)
from tests.behaviour.foreign import Peer
from tests.behaviour.tables import QUICK, Recorder, insert, memory_table, new_table, put_file, writer
from tests.faulty_storage import Wrapped
from typer.testing import CliRunner

from lakelock.cli.main import app
from lakelock.errors import EarlyConflictError, TableError
from lakelock.markers import data_files
from lakelock.markers.data_files import MarkerKind
from lakelock.occ.foreign import alarm, audit
from lakelock.occ.log import Decision
from lakelock.testing import ManualRuntime


def after(instant: str, ms: int) -> str:
    return format_instant(parse_instant(instant) + ms)


def foreign_commit(storage: Storage, old: DataFile, requested: str, completed: str) -> str:
    """What another engine leaves when it has rewritten `old`: its timeline files and its metadata, no key of ours."""
    name = f"{old.file_id}_0-5-5_{requested}.parquet"
    with storage.open_output(layout.in_partition(old.partition, name)) as out:
        out.write(b"rows")
    stat = WriteStat(
        old.file_id,
        layout.in_partition(old.partition, name),
        old.instant,
        num_writes=1,
        partition_path=old.partition,
        file_size_bytes=4,
        prev_base_file=old.name,
    )
    storage.put(layout.timeline(f"{requested}.commit.requested"), b"")
    storage.put(layout.timeline(f"{requested}.inflight"), b"")
    done = Instant(requested, "commit", State.COMPLETED, completed)
    storage.put(layout.timeline(done.file_name), CommitMetadata({old.partition: (stat,)}, "UPSERT").to_bytes())
    return requested


def foreign_writer(storage: Storage, old: DataFile, instant: str) -> None:
    """Another engine in the middle of rewriting `old`: requested, an empty heartbeat, a marker."""
    storage.put(layout.timeline(f"{instant}.commit.requested"), b"")
    storage.put(layout.heartbeat(instant), b"")
    data_files.place(storage, instant, DataFile(old.partition, old.file_id, "0-5-5", instant, 0), MarkerKind.MERGE)


def decision_of(coordinator: Coordinator, number: int) -> Decision:
    found = coordinator.table.log.read(number)
    assert found is not None
    return found


def test_a_claim_meets_the_markers_of_another_engine_that_was_there_when_the_transaction_began() -> None:
    storage = memory_table()
    first = insert(writer(storage), storage, "month=1", "a")
    (old,) = writer(storage).snapshot().files
    instant = after(first.completion, 5)
    foreign_writer(storage, old, instant)
    with writer(storage).begin("UPSERT") as tx, pytest.raises(EarlyConflictError) as caught:
        tx.claim([old.group])
    conflict = caught.value.conflict
    assert (conflict.other.instant, conflict.other.writer, conflict.overlap) == (instant, None, ("month=1/a",))
    assert "another Hudi writer" in str(conflict) and "markers" in conflict.detail
    with writer(storage).begin("UPSERT") as tx:
        tx.claim([DataFile("month=1", "b", "", "", 0).group])


def test_a_claim_meets_another_engine_that_came_later_on_a_table_where_one_was_met_before() -> None:
    storage = memory_table()
    first = insert(writer(storage), storage, "month=1", "a")
    (old,) = writer(storage).snapshot().files
    foreign_commit(storage, old, after(first.completion, 5), after(first.completion, 6))
    with writer(storage).begin("UPSERT") as tx:
        foreign_writer(storage, old, after(tx.instant, 5))
        with pytest.raises(EarlyConflictError, match="markers"):
            tx.claim([old.group])


def test_a_claim_finds_what_another_engine_has_committed_since_the_transaction_began() -> None:
    storage = memory_table()
    first = insert(writer(storage), storage, "month=1", "a")
    (old,) = writer(storage).snapshot().files
    foreign_commit(storage, old, after(first.completion, 5), after(first.completion, 6))
    with writer(storage).begin("UPSERT") as tx:
        other = foreign_commit(storage, old, after(tx.instant, 5), after(tx.instant, 6))
        with pytest.raises(EarlyConflictError) as caught:
            tx.claim([old.group])
    assert caught.value.conflict.other.instant == other and caught.value.conflict.early


def test_a_commit_of_another_engine_that_the_lock_let_through_raises_an_alert_and_stays_in_the_audit() -> None:
    runtime, told = ManualRuntime(), Recorder()
    new_table(storage := MemoryStorage(runtime.now_ms))
    place = StorageLocation(storage.uri)
    mine = Coordinator.open(place, QUICK, runtime=runtime, listeners=(told,), storage=storage)
    insert(mine, storage, "month=1", "a")
    (old,) = mine.snapshot().files
    runtime.advance(1)
    with mine.begin("UPSERT") as tx:
        done = tx.commit([put_file(tx, storage, "month=1", "a")])
    decision = decision_of(mine, done.decision)
    assert audit(mine.table, 100).overlaps == []

    # It landed after my look under the lock and before my decision: only a writer without the lock can do that.
    theirs = foreign_commit(storage, old, after(done.instant, -1), done.completion)
    alarm(table=mine.table, baseline=tx.baseline, decision=decision, known={})
    assert EventKind.ALERT.value not in told.kinds()  # no other engine was ever met: nobody looks
    mine.table.observed.met_foreign()
    alarm(table=mine.table, baseline=tx.baseline, decision=decision, known={})
    (alert,) = [e for e in told.events if e.kind is EventKind.ALERT]
    assert theirs in str(alert.facts["problem"]) and done.instant in str(alert.facts["problem"])
    assert "hoodie.write.lock.provider" in str(alert.facts["hint"])
    assert [(o.first.instant, o.second.instant) for o in audit(mine.table, 100).overlaps] == [(theirs, done.instant)]


class CommitsBeforeMyDecision(Wrapped):
    """A storage in which another engine that takes no lock commits right before the next decision."""

    commits: Callable[[], object] | None = None

    def carry(self, op, key, request, *, weight=1):
        if op == "put_if_absent" and key.startswith(layout.DECISIONS) and self.commits is not None:
            commits, self.commits = self.commits, None
            commits()
        return request()


def test_opening_the_table_finds_the_other_engine_although_the_newest_commit_is_lakelocks() -> None:
    runtime, told = ManualRuntime(), Recorder()
    new_table(inner := MemoryStorage(runtime.now_ms))
    storage = CommitsBeforeMyDecision(inner)

    def opened() -> Coordinator:
        runtime.advance(1)
        return Coordinator.open(StorageLocation(storage.uri), QUICK, runtime=runtime, listeners=(told,), storage=storage)

    insert(opened(), storage, "month=1", "a")
    runtime.advance(1)
    now = format_instant(runtime.now_ms())
    (old,) = opened().snapshot().files
    foreign_commit(storage, old, now, after(now, 5))
    for name in "bc":  # the first has met the other engine's commit, the second only what the first left
        insert(opened(), storage, "month=2", name)

    mine = opened()
    old = next(f for f in mine.snapshot().files if f.partition == "month=1")
    with mine.begin("UPSERT") as tx:
        written = put_file(tx, storage, "month=1", "a")
        runtime.advance(1)
        storage.commits = lambda: foreign_commit(storage, old, after(tx.instant, -1), format_instant(runtime.now_ms()))
        done = tx.commit([written])
    (alert,) = [e for e in told.events if e.kind is EventKind.ALERT]
    assert after(done.instant, -1) in str(alert.facts["problem"]) and done.instant in str(alert.facts["problem"])


def test_another_engine_that_is_no_longer_on_the_timeline_is_forgotten() -> None:
    storage = memory_table()
    first = writer(storage)
    first.table.observed.met_foreign("20200101000000000")
    insert(first, storage, "month=1", "a")
    second = writer(storage)
    insert(second, storage, "month=1", "b")
    assert first.table.observed.foreign_writers and not second.table.observed.foreign_writers


def test_a_storage_that_fails_after_the_commit_is_told_and_does_not_undo_it() -> None:
    storage, told = memory_table(), Recorder()
    mine = writer(storage, listener=told)
    with mine.begin("UPSERT") as tx:
        done = tx.commit([put_file(tx, storage, "month=1", "a")])
    storage.put(layout.timeline(f"{after(done.completion, 1)}_{after(done.completion, 2)}.commit"), b"torn")
    mine.table.observed.met_foreign()
    alarm(table=mine.table, baseline=tx.baseline, decision=decision_of(mine, done.decision), known={})
    assert "could not be checked" in str(told.events[-1].facts["problem"])


def test_the_command_audit_says_what_it_did_not_read(tmp_path) -> None:
    storage = LocalStorage(str(tmp_path / "t"))
    new_table(storage)
    for name in "abc":
        insert(writer(storage), storage, "month=1", name)
    told = CliRunner().invoke(app, ["audit", storage.root, "--limit", "2"]).stdout
    assert "2 commits: none" in told and "not read: 1 older commit; to read them, too: --limit 3" in told
    assert json.loads(CliRunner().invoke(app, ["audit", storage.root, "-n", "2", "--json"]).stdout)["not_read"] == 1


def test_the_command_audit_prints_each_pair_and_ends_with_4(tmp_path) -> None:
    storage = LocalStorage(str(tmp_path / "t"))
    new_table(storage)
    first = insert(writer(storage), storage, "month=1", "a")
    run = CliRunner().invoke(app, ["audit", storage.root])
    assert (run.exit_code, run.stdout) == (
        0,
        "1 commit: none rewrote file groups behind the back of another, and none was undone\n",
    )
    (old,) = writer(storage).snapshot().files
    one = foreign_commit(storage, old, after(first.completion, 1), after(first.completion, 9))
    two = foreign_commit(storage, old, after(first.completion, 2), after(first.completion, 8))
    run = CliRunner().invoke(app, ["audit", storage.root])
    assert run.exit_code == 4 and one in run.stdout and two in run.stdout
    assert "hoodie.write.concurrency.mode=OPTIMISTIC_CONCURRENCY_CONTROL" in run.stdout.replace("\n", "")
    checks = json.loads(CliRunner().invoke(app, ["doctor", "--json", storage.root]).stdout)["checks"]
    assert [c["hint"] for c in checks if "does not know of" in c["found"]] == [f"lakelock audit {storage.root}"]
    run = CliRunner().invoke(app, ["audit", "--json", storage.root])
    (pair,) = json.loads(run.stdout)["overlaps"]
    assert (pair["first"], pair["second"], pair["file_groups"]) == (two, one, ["month=1/a"])


def test_no_transaction_begins_or_commits_while_another_engine_restores_the_table() -> None:
    storage = memory_table()
    mine = writer(storage)
    insert(mine, storage, "month=1", "a")
    with mine.begin("INSERT") as tx:
        stat = put_file(tx, storage, "month=1", "b")
        restore = Peer(storage).begin(Action.RESTORE, plan=b"plan")
        with pytest.raises(TableError, match=f"the restore {restore} .requested. of another engine takes commits out"):
            tx.commit([stat])
    with pytest.raises(TableError, match=f"the restore {restore}"):
        insert(writer(storage), storage, "month=1", "c")
    shown = mine.table.timeline()
    assert not shown.pending and len(shown.commits) == 1
    assert not [item.key for item in storage.list(layout.HEARTBEATS)]
    storage.put(layout.timeline(f"{restore}_{Peer(storage).later()}.restore"), b"done")
    insert(writer(storage), storage, "month=1", "c")
