"""The lock in a real Hive metastore: what it adds to the promises of every provider (see `test_lock_matrix`)."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.api import EventKind, Events, renewing
from tests.integration.given import Start, check_given
from tests.integration.metastore.metastore_world import LEASE_S, World, take
from tests.servers.locks.hive_metastore import (
    ENVIRONMENT_URL,
    LOCK_TIMEOUT_S,
    PATIENT_URL,
    hive_metastore_server,
    patient_metastore_server,
)
from tests.waiting import Stopwatch, eventually

from lakelock.errors import LeaseLost, LockTimeout, SettingsError
from lakelock.providers.hive_metastore.client import WAITING
from lakelock.testing.lock_processes import Worker
from lakelock.testing.service import Service


def test_a_killed_waiter_does_not_hold_up_those_behind_it(world: World, metastore: Service, tmp_path: Path) -> None:
    holder = world.writer("holder", lease_s=4.0)
    lease = take(holder)
    arena = {"uri": str(tmp_path / "table"), "options": {}, "lease_s": LEASE_S, "renew_s": LEASE_S / 3, "folder": str(tmp_path)}
    dead = Worker({**arena, "settings": {"lock.provider": world.uri}})
    try:
        dead.ask("take 60")
        eventually(lambda: len(world.rows(metastore.port)) == 2)
    finally:
        dead.end()
    holder.release(lease)
    with Stopwatch() as watch:
        take(world.writer("next"), wait_s=20)
    assert watch.took_s < LOCK_TIMEOUT_S


def test_a_holder_that_renews_keeps_the_lock_beyond_its_lease_and_the_timeout_of_the_metastore(world: World) -> None:
    holder, rival = world.writer("holder"), world.writer("rival")
    lease = take(holder)
    with renewing(holder, lease, world.runtime, LEASE_S / 3), pytest.raises(LockTimeout):
        take(rival, wait_s=LOCK_TIMEOUT_S + 1.5)
    lease.ensure_active()


def test_a_lock_that_the_metastore_dropped_is_noticed_by_the_heartbeat_and_told_once(world: World, metastore: Service) -> None:
    holder = world.writer("holder", lease_s=4.0)
    lease = take(holder)
    world.calls(metastore.port).unlock(lease.token)
    with renewing(holder, lease, world.runtime, 0.1, Events((world.seen.append,))):
        eventually(lambda: lease.lost is not None)
    assert lease.lost is not None and lease.lost.reason == "taken-over"
    holder.release(lease)
    assert [event.kind for event in world.seen].count(EventKind.LEASE_LOST) == 1
    with pytest.raises(LeaseLost):
        lease.ensure_active()


def test_a_lease_longer_than_the_metastore_keeps_locks_is_refused(world: World) -> None:
    provider = world.writer("one", lease_s=LOCK_TIMEOUT_S + 1)
    for check in (lambda: take(provider), provider.probe):
        with pytest.raises(SettingsError, match=f"after {LOCK_TIMEOUT_S} s") as refused:
            check()
        assert "lock.lease_s" in refused.value.hint


def test_a_dead_holder_is_broken_without_force(world: World) -> None:
    lease, operator = take(world.writer("dead", lease_s=1.0)), world.writer("operator")

    def is_over() -> bool:
        """By the metastore's clock, which is the one that counts: its lease began when the request arrived there."""
        holder = operator.inspect().holder
        return holder is None or holder.left_s == 0

    eventually(is_over)
    operator.break_lock(lease.token)
    take(world.writer("next"))


def test_the_probe_passes_and_leaves_nothing_behind(world: World, metastore: Service) -> None:
    provider = world.writer("one")
    provider.probe()
    every = world.calls(metastore.port).call("show_locks", ((1, 12, ()),))
    assert not [row for row in every[1] if row[2] == world.database and str(row[3]).startswith(world.table)]  # type: ignore[index]
    assert "@" not in provider.identity and provider.identity == world.uri
    assert all(vars(provider.strength).values())


def test_a_java_writer_excludes_us_and_is_left_alone_until_the_metastore_drops_it(world: World, metastore: Service) -> None:
    java = world.calls(metastore.port)
    held = java.lock(world.database, world.table, user="etl", host="node-7", agent="Unknown")
    provider = world.writer("one")
    began_s = time.monotonic()
    with pytest.raises(LockTimeout, match="etl@node-7"):
        take(provider, wait_s=LEASE_S + 1)
    java.heartbeat(held.lock_id)
    take(provider, wait_s=20)
    assert time.monotonic() - began_s > LOCK_TIMEOUT_S + LEASE_S


def test_a_java_writer_is_excluded(world: World, metastore: Service) -> None:
    lease = take(world.writer("one"))
    answer = world.calls(metastore.port).lock(world.database, world.table, user="etl", host="node-7", agent="Unknown")
    assert answer.state == WAITING and answer.lock_id > lease.token


def test_names_are_sent_letter_by_letter(world: World, metastore: Service) -> None:
    lower, upper = world.writer("one"), world.writer("two", uri=world.uri.replace("table_", "TABLE%20"))
    take(lower)
    lease = take(upper)
    (row,) = world.calls(metastore.port).show_locks(world.database, world.table.replace("table_", "TABLE "))
    assert row.lock_id == lease.token and "TABLE%20" in upper.identity


def test_an_unusual_name_of_an_application_harms_nobody(world: World) -> None:
    provider = world.writer("it's a \\ 'job'; drop table x -- é" * 9)
    lease = take(provider)
    holder = world.writer("looker").inspect().holder
    assert holder is not None and holder.writer is not None and holder.writer.application.startswith("it-s a - -job-")
    provider.release(lease)


@pytest.mark.parametrize(
    ("variable", "start"), [(ENVIRONMENT_URL, hive_metastore_server), (PATIENT_URL, patient_metastore_server)]
)
def test_the_metastore_that_the_environment_names_is_used_and_is_not_ours_to_stop(
    variable: str, start: Start, metastore: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, f"hive_metastore://localhost:{metastore.port}")
    check_given(start, tmp_path, variable, metastore)
