"""A Java writer that does not do as the handbook asks is noticed, and the error names the option that it has to change."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.api import ArrowEngine, ConflictRule, Event, EventKind
from tests.interop.processes import lakelock_writer
from tests.interop.shared import NOTICED, Shared
from tests.interop.witness import JavaError

from lakelock.errors import CommitUndone, ConflictError, CorruptTableError, RolledBackError
from lakelock.occ.foreign import audit

Share = Callable[..., Shared]

EAGER_WRITES = 12
CARELESS = {"hoodie.write.concurrency.mode": "SINGLE_WRITER", "hoodie.clean.failed.writes.policy": "EAGER"}
"""Java's defaults: no lock, and whatever is pending is rolled back before each write."""


@pytest.fixture
def table(share: Share) -> Shared:
    """A table with two rows in one file group."""
    found = share()
    found.engine().insert(found.rows(("a", 1, "eu"), ("b", 2, "eu")))
    found.put(("a", 1, "eu"), ("b", 2, "eu"))
    return found


@pytest.mark.in_ci
def test_a_metadata_table_that_java_switches_on_and_off_is_kept_as_long_as_it_is_there(table: Shared) -> None:
    engine, coordinator = table.engine(), table.coordinator()
    with coordinator.begin("UPSERT") as tx:
        table.java_write("upsert", ("a", 2, "eu"), hoodie__metadata__enable="true")
        table.put(("a", 2, "eu"))
        engine.upsert_in(tx, table.rows(("c", 3, "us")))
    table.put(("c", 3, "us"))
    table.agree()
    table.is_listed()
    table.java_write("upsert", ("a", 3, "eu"), hoodie__metadata__enable="false")  # it removes the metadata table
    table.put(("a", 3, "eu"))
    engine.insert(table.rows(("d", 4, "us")))
    table.put(("d", 4, "us"))
    table.agree()


def test_an_eager_java_writer_that_rolls_back_a_live_transaction_is_named(table: Shared) -> None:
    engine, coordinator = table.engine(), table.coordinator()
    with coordinator.begin("UPSERT") as tx:
        tx.write_context()
        table.java_write("upsert", ("b", 20, "eu"), **CARELESS)
        table.put(("b", 20, "eu"))
        with pytest.raises(RolledBackError, match="by another Hudi writer") as caught:
            engine.upsert_in(tx, table.rows(("c", 3, "us")))
    assert "hoodie.clean.failed.writes.policy=LAZY" in caught.value.hint
    assert not [name for name in table.traces(tx.instant) if name.endswith(".parquet")]
    engine.upsert(table.rows(("c", 3, "us")))
    table.put(("c", 3, "us"))
    table.agree()


@pytest.mark.in_ci
def test_planned_clustering_refuses_writes_to_its_file_groups_until_java_has_executed_it(table: Shared) -> None:
    engine, sql = table.engine(retry_attempts=1), table.java.sql
    engine.insert(table.rows(("c", 3, "eu"), ("d", 4, "us")))
    table.put(("c", 3, "eu"), ("d", 4, "us"))
    table.agree()
    sql(f"create table {table.name} using hudi location '{table.path}'")
    options = ",".join(f"{key}={value}" for key, value in table.java_options().items() if "," not in value)

    def clustering(do: str) -> None:
        sql(f"call run_clustering(table => '{table.name}', op => '{do}', options => '{options}')")

    clustering("schedule")
    assert table.instants(".clustering.requested")
    with pytest.raises(ConflictError, match="hoodie.clustering.inline") as caught:
        engine.upsert(table.rows(("a", 10, "eu")))
    assert (caught.value.conflict.rule, caught.value.conflict.retry_helps) == (ConflictRule.PENDING_TABLE_SERVICE, False)
    engine.insert(table.rows(("e", 5, "eu")))
    table.put(("e", 5, "eu"))
    table.agree()
    clustering("execute")
    table.agree()
    engine.upsert(table.rows(("a", 10, "eu")))
    table.put(("a", 10, "eu"))
    table.agree()
    assert audit(table.coordinator().table, 100).overlaps == []


@pytest.mark.in_ci
@pytest.mark.sampled(promise=NOTICED)
def test_a_java_writer_with_another_lock_is_noticed_after_the_commit_and_found_in_the_history(table: Shared) -> None:
    table.java_write("upsert", ("b", 3, "eu"))  # so that this is a table with another engine
    table.put(("b", 3, "eu"))
    alone = {"hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider"}
    with lakelock_writer(table, ("a", 100, "eu"), stop_at="validated") as mine:
        table.java_write("upsert", ("b", 200, "eu"), **alone)
        told = mine.go_on()
    (alert,) = told["alerts"]
    assert "does not know of" in alert and "hoodie.write.lock.provider" in alert and told["committed"] in alert
    done = audit(table.coordinator().table, 100)
    (found,) = done.overlaps
    assert (done.read, found.second.instant, found.first.writer) == (4, told["committed"], None) and len(found.groups) == 1


@pytest.mark.in_ci
@pytest.mark.sampled(promise=NOTICED)
def test_a_java_writer_that_checks_and_locks_as_asked_is_never_alarmed_about(table: Shared, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    late = table.begin_java("upsert", ("x", 1, "us"), gate=gate)
    with lakelock_writer(table, ("a", 100, "eu"), stop_at="data-written") as mine:
        gate.touch()
        late.result()
        told = mine.go_on()
    assert told["alerts"] == []
    table.put(("x", 1, "us"), ("a", 100, "eu"))
    table.agree()
    assert audit(table.coordinator().table, 100).overlaps == []


@pytest.mark.in_ci
@pytest.mark.sampled(promise=NOTICED)
@pytest.mark.parametrize("stop_at", ["validated", "decided"])
def test_an_eager_java_writer_that_rolls_back_a_commit_under_the_lock_is_found_in_time_or_told(
    table: Shared, stop_at: str
) -> None:
    table.java_write("upsert", ("b", 3, "eu"))  # so that this is a table with another engine
    table.put(("b", 3, "eu"))
    with lakelock_writer(table, ("a", 100, "eu"), ("n", 1, "us"), stop_at=stop_at) as mine:
        table.java_write("upsert", ("x", 1, "eu"), **CARELESS)
        table.put(("x", 1, "eu"))
        told = mine.go_on()
    if stop_at == "validated" or "committed" in told:  # its lock may have run out meanwhile: then it looks once more
        assert told["committed"] and told["alerts"] == []
        table.put(("a", 100, "eu"), ("n", 1, "us"))
        table.agree()
        return
    undone = told["details"]["instant"]
    assert told["error"] == "CommitUndone" and "hoodie.clean.failed.writes.policy=LAZY" in told["hint"]
    assert any(undone in alert and "lakelock repair" in alert for alert in told["alerts"])
    assert [each.instant for each in audit(table.coordinator().table, 100).undone] == [undone]
    with pytest.raises(CorruptTableError, match="was undone by rollback"):
        table.by_lakelock()
    engine = table.engine()
    assert [each.instant for each in engine.repair().undone] == [undone]
    table.agree()
    engine.upsert(table.rows(("a", 100, "eu"), ("n", 1, "us")))
    table.put(("a", 100, "eu"), ("n", 1, "us"))
    table.agree()


@pytest.mark.in_ci
@pytest.mark.sampled(promise=NOTICED)
def test_every_insert_beside_an_eager_java_writer_is_there_or_named(table: Shared) -> None:
    inserts, raised, told = dict[str, str](), set[str](), list[str]()
    stop = threading.Event()

    def listen(event: Event) -> None:
        if event.kind is EventKind.ALERT:
            told.append(str(event.facts["problem"]))

    def insert() -> None:
        engine = ArrowEngine(table.coordinator(listen, retry_attempts=20))
        while not stop.is_set():
            key = f"l{len(inserts) + len(raised)}"
            try:
                inserts[key] = engine.insert(table.rows((key, 1, "us"))).instant
            except CommitUndone:
                raised.add(key)

    writer = threading.Thread(target=insert)
    writer.start()
    try:
        for number in range(EAGER_WRITES):
            with suppress(JavaError):  # it fails where an instant was completed while it rolled it back
                table.java_write("insert", (f"j{number}", 2, "eu"), **CARELESS)
    finally:
        stop.set()
        writer.join()
    assert len(inserts) > EAGER_WRITES
    found = table.coordinator(listen)
    found.begin("INSERT").abort()  # whoever begins next finds what came late
    named = {each.instant for each in audit(found.table, 1000).undone}
    there = set(table.by_java().column("id").to_pylist())
    lost = {instant for key, instant in inserts.items() if key not in there}
    assert lost <= named, "an insert that was told as committed is gone, and nothing names it"
    assert all(any(instant in problem for problem in told) for instant in named)
    ArrowEngine(found).repair()
    assert set(table.by_lakelock().column("id").to_pylist()) == there
