"""Each side removes what a dead writer of the other left, whole, and leaves a live one alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.interop.conftest import FULL
from tests.interop.processes import lakelock_writer
from tests.interop.shared import DEAD_WRITERS, Shared
from tests.interop.witness import JavaError, witness
from tests.waiting import eventually

from lakelock.errors import RolledBackError

Share = Callable[..., Shared]


@pytest.fixture
def table(share: Share) -> Shared:
    """A table with a file group for each of three regions."""
    found = share()
    found.engine().insert(found.rows(("a", 1, "eu"), ("b", 2, "us"), ("c", 3, "ap")))
    found.put(("a", 1, "eu"), ("b", 2, "us"), ("c", 3, "ap"))
    return found


@pytest.mark.in_ci
@pytest.mark.sampled(promise=DEAD_WRITERS)
def test_javas_cleaner_removes_a_dead_writer_of_lakelock_and_leaves_a_live_one_alone(table: Shared) -> None:
    with lakelock_writer(table, ("a", 100, "eu"), ("n", 5, "sa"), crash_at="validated"):
        (dead,) = table.pending()
        assert len([name for name in table.traces(dead) if name.endswith(".parquet")]) == 2
        table.age(dead)
    with lakelock_writer(table, ("b", 200, "us"), stop_at="data-written") as live:
        (alive,) = [i for i in table.pending() if i != dead]
        before = table.traces(alive)
        table.java_write("upsert", ("c", 30, "ap"))
        table.put(("c", 30, "ap"))
        assert table.traces(dead) == []
        assert table.traces(alive) == before
        table.agree()
        assert live.go_on()["committed"] == alive
    table.put(("b", 200, "us"))
    table.agree()
    table.engine().upsert(table.rows(("a", 1000, "eu")))
    table.put(("a", 1000, "eu"))
    table.agree()


def test_a_writer_of_lakelock_that_java_took_for_dead_is_rejected_and_says_so(table: Shared) -> None:
    engine = table.engine()
    with table.coordinator().begin("UPSERT") as tx:
        tx.write_context()
        table.age(tx.instant)
        table.java_write("upsert", ("c", 30, "ap"))
        with pytest.raises(RolledBackError, match="was rolled back by another Hudi writer"):
            engine.upsert_in(tx, table.rows(("b", 5, "us")))
    table.put(("c", 30, "ap"))
    assert [name for name in table.traces(tx.instant) if name.endswith(".parquet")] == []
    table.agree()


@pytest.mark.in_ci
@pytest.mark.sampled(promise=DEAD_WRITERS)
def test_lakelock_removes_a_java_job_that_died_half_way_and_leaves_a_live_one_alone(table: Shared, tmp_path: Path) -> None:
    dead_gate, live_gate, engine = tmp_path / "dead", tmp_path / "live", table.engine()
    dying = table.begin_java("bulk_insert", ("x", 1, "eu"), ("y", 2, "us"), gate=dead_gate, half="id = 'y'", **DIRECT)
    eventually(lambda: data_files(table, table.pending()), saying="the first half of the Java job is written")
    (dead,) = table.pending()
    named = tmp_path / "dead.new"
    named.write_text("the job dies here")
    named.rename(dead_gate)  # whole at once: a gate that is there and still empty lets the job through
    with pytest.raises(JavaError):
        dying.result()
    assert data_files(table, [dead])
    table.age(dead)

    living = table.begin_java("upsert", ("c", 33, "ap"), gate=live_gate)
    (alive,) = eventually(lambda: [i for i in table.pending() if i != dead], saying="the live Java job has begun")
    engine.upsert(table.rows(("a", 10, "eu")))
    table.put(("a", 10, "eu"))
    table.agree()
    assert table.traces(dead) == []
    assert alive in table.pending()
    live_gate.touch()
    living.result()
    table.put(("c", 33, "ap"))
    table.agree()
    assert table.traces(dead) == [] and table.pending() == []


@pytest.mark.in_ci
@pytest.mark.sampled(promise=DEAD_WRITERS)
@pytest.mark.parametrize("step", ["requested", "inflight", "begun"])
def test_java_removes_a_writer_that_died_as_it_began(table: Shared, step: str) -> None:
    """Java cannot remove an inflight file that stands without the requested one."""
    with lakelock_writer(table, ("a", 100, "eu"), crash_at=step):
        (dead,) = table.pending()
    table.agree()
    table.age(dead)
    table.java_write("upsert", ("c", 30, "ap"))
    table.put(("c", 30, "ap"))
    assert table.traces(dead) == [] and table.pending() == []
    table.agree()


@pytest.mark.skipif(not FULL, reason="a second JVM: make interop FULL=1")
def test_a_killed_jvm_leaves_nothing_that_lakelock_does_not_remove(table: Shared, tmp_path: Path) -> None:
    from tests.servers.fetched.java_hudi import java_hudi

    with witness(java_hudi(), tmp_path) as other:
        options = table.java_options("bulk_insert", **DIRECT)
        other.begin_write(
            table.path, table.rows(("x", 1, "eu"), ("y", 2, "us")), options, gate=str(tmp_path / "never"), half="id = 'y'"
        )
        eventually(lambda: data_files(table, table.pending()), saying="the first half of the Java job is written")
        os.kill(other.jvm_pid, 9)
    (dead,) = table.pending()
    table.age(dead)
    table.engine().upsert(table.rows(("a", 10, "eu")))
    table.put(("a", 10, "eu"))
    assert table.traces(dead) == []
    table.agree()


DIRECT = {"hoodie.write.markers.type": "DIRECT"}


def data_files(table: Shared, instants: list[str]) -> list[str]:
    return [name for instant in instants for name in table.traces(instant) if name.endswith(".parquet")]
