"""Moving a table to another lock: refused while anybody writes, and nobody commits under the old lock afterwards."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.api import Coordinator, LockProvider, MemoryStorage, Resource, Storage, layout
from tests.behaviour.tables import QUICK, groups, insert, leftovers, memory_table, put_file, writer
from tests.faulty_storage import FaultyStorage, Rule

from lakelock.admin.manual_changes import migrate, plan_migration, read_audit
from lakelock.errors import LeaseLost, LockError, LockTimeout, ProviderMismatch
from lakelock.occ import recorded_lock
from lakelock.occ.recorded_lock import recorded_provider
from lakelock.settings.sections import DataLockSettings

OLD = "storage:.hoodie/.locks/table_lock.json"
ELSEWHERE = replace(QUICK, lock=replace(QUICK.lock, provider="redis://127.0.0.1:1/0"))
NEW = replace(QUICK, lock=replace(QUICK.lock, provider="memory:"))
DATA = DataLockSettings(lease_s=2, renew_s=0.3, sleep_s=0.05)
SHORT = replace(QUICK, lock=replace(QUICK.lock, lease_s=1, renew_s=0.3), data_locks=DATA)


@pytest.fixture
def storage() -> MemoryStorage:
    made = memory_table()
    insert(writer(made), made, "month=1", "first")
    return made


def provider_of(storage: Storage) -> LockProvider:
    found = writer(storage, NEW).table.provider
    assert found is not None
    return found


def test_a_quiet_table_moves_and_writers_follow(storage: MemoryStorage) -> None:
    before, stream = writer(storage), writer(storage, name="stream")
    insert(stream, storage, "month=1", "a")
    moved = migrate(before, provider_of(storage), reason="ZooKeeper is retired")
    assert (moved.recorded, moved.to, moved.done) == (before.table.provider.identity, "memory:", True)  # type: ignore[union-attr]
    assert recorded_provider(storage) == "memory:"
    with pytest.raises(ProviderMismatch, match="memory:.*storage:") as refused:
        insert(stream, storage, "month=1", "b")
    assert "locks migrate" in refused.value.hint
    with pytest.raises(ProviderMismatch):
        stream.begin("INSERT")
    insert(writer(storage, NEW), storage, "month=1", "c")
    assert groups(storage) == ["month=1/a", "month=1/c", "month=1/first"] and leftovers(storage) == []
    (record,) = read_audit(storage)
    assert (record.action, record.outcome, record.reason) == ("migrate lock to memory:", "done", "ZooKeeper is retired")
    assert migrate(writer(storage, NEW), provider_of(storage)).done is False


def test_a_writer_that_had_checked_the_record_before_does_not_commit_under_the_old_lock(storage: MemoryStorage) -> None:
    late, begun = writer(storage, name="late"), []
    insert(late, storage, "month=1", "a")
    boundary = Rule(key=layout.DECISIONS_BOUNDARY, op="put*", fault=None, meanwhile=lambda: begun.append(late.begin("INSERT")))
    migrate(writer(FaultyStorage(storage, [boundary])), provider_of(storage))
    (tx,) = begun
    stat = put_file(tx, storage, "month=1", "b")
    with pytest.raises(ProviderMismatch):
        tx.commit([stat])
    assert groups(storage) == ["month=1/a", "month=1/first"] and leftovers(storage) == []


def test_live_writers_holders_and_data_locks_are_named_and_nothing_changes(storage: MemoryStorage) -> None:
    hasty = replace(QUICK, lock=replace(QUICK.lock, wait_s=0.2), data_locks=DATA)
    operator, busy = writer(storage, hasty, name="operator"), writer(storage, hasty, name="busy")
    tx = busy.begin("UPSERT")
    with pytest.raises(LockError, match=f"UPSERT {tx.instant} by busy"):
        migrate(operator, provider_of(storage))
    tx.abort()
    assert busy.table.provider is not None
    lease = busy.table.provider.acquire(wait_s=1)
    assert "who holds the lock" in plan_migration(operator, provider_of(storage)).live[0]
    with pytest.raises(LockTimeout, match="held by busy"):
        migrate(operator, provider_of(storage))
    busy.table.provider.release(lease)
    with busy.data.holding(busy.data.request("INSERT", (Resource.of("month=1"),))):
        assert "with data locks" in plan_migration(operator, provider_of(storage)).live[0]
        with pytest.raises(LockError, match="busy .* with data locks"):
            migrate(operator, provider_of(storage))
    assert recorded_provider(storage) == busy.table.provider.identity
    assert plan_migration(operator, provider_of(storage)).live == ()
    assert recorded_provider(storage) == busy.table.provider.identity


def test_locks_of_writers_that_were_killed_are_dropped_after_their_lease_and_the_table_moves(storage: MemoryStorage) -> None:
    killed = writer(storage, SHORT, name="killed")
    assert killed.table.provider is not None
    lease = killed.table.provider.acquire(wait_s=1)
    locks = killed.data.locks
    held = [locks.acquire(killed.data.request("INSERT", (Resource.of(f"month={month}"),))) for month in (1, 2)]
    operator = writer(storage, SHORT, name="operator")
    assert len(plan_migration(operator, provider_of(storage)).live) == 3
    assert migrate(operator, provider_of(storage)).done
    assert lease.lost is not None and operator.data.locks.inspect() == ()
    for each in held:
        with pytest.raises(LeaseLost):
            locks.renew(each)


def test_a_writer_that_begins_while_the_old_lock_is_held_is_found(
    storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator, begun = writer(storage), []
    original = Coordinator.begin
    provider = provider_of(storage)

    def probe() -> None:
        begun.append(original(writer(storage, name="quick"), "INSERT"))

    monkeypatch.setattr(provider, "probe", probe)
    with pytest.raises(LockError, match="by quick"):
        migrate(operator, provider)
    begun[0].commit([put_file(begun[0], storage, "month=1", "q")])
    assert "month=1/q" in groups(storage)


def test_settings_that_are_not_those_of_the_old_lock_are_refused(storage: MemoryStorage) -> None:
    migrate(writer(storage), provider_of(storage))
    with pytest.raises(ProviderMismatch, match="the old lock must be held"):
        migrate(writer(storage), writer(storage, ELSEWHERE).table.provider)  # type: ignore[arg-type]
    single = replace(QUICK, concurrency=replace(QUICK.concurrency, mode="SINGLE_WRITER"))
    with pytest.raises(ProviderMismatch):
        migrate(writer(storage, single), writer(storage).table.provider)  # type: ignore[arg-type]
    back = migrate(writer(storage, NEW), writer(storage).table.provider)  # type: ignore[arg-type]
    assert back.done
    insert(writer(storage), storage, "month=1", "a")


def test_of_two_migrations_at_once_one_wins_and_the_table_can_be_written(
    storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = writer(storage)
    original = operator.table.log.move_lock

    def overtaken(lock: str) -> bool:
        monkeypatch.undo()
        assert original("redis://other") and recorded_lock.move_recorded(storage, operator.table.log, OLD, "redis://other")
        return original(lock)

    monkeypatch.setattr(operator.table.log, "move_lock", overtaken)
    with pytest.raises(LockError, match="changed by another process"):
        migrate(operator, provider_of(storage))
    assert recorded_provider(storage) == "redis://other" == operator.table.log.look().lock
    assert read_audit(storage)[0].outcome.startswith("failed: ")


def test_a_migration_that_died_half_way_lets_nobody_commit_under_the_old_lock_and_can_be_completed(
    storage: MemoryStorage,
) -> None:
    tx = writer(storage, name="late").begin("INSERT")
    stat = put_file(tx, storage, "month=1", "b")
    operator = writer(storage)
    assert operator.table.log.move_lock("memory:")
    with pytest.raises(ProviderMismatch):
        tx.commit([stat])
    with pytest.raises(ProviderMismatch):
        writer(storage).begin("INSERT")
    assert migrate(operator, provider_of(storage)).done
    insert(writer(storage, NEW), storage, "month=1", "c")
    assert leftovers(storage) == []


def test_the_move_outlives_the_collection_of_old_decisions(storage: MemoryStorage) -> None:
    stale = writer(storage, name="stale")
    insert(stale, storage, "month=1", "a")
    migrate(writer(storage), provider_of(storage))
    new = writer(storage, NEW)
    for number in range(4):
        insert(new, storage, "month=1", f"f{number}")
    assert new.collect() > 0
    with pytest.raises(ProviderMismatch):
        stale.begin("INSERT")
    insert(new, storage, "month=1", "last")
