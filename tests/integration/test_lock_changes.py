"""What people do to locks, on every lock service: breaking and its audit record, and moving a table from one to another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest
from tests.api import Coordinator, LocalStorage, Resource, lock_request
from tests.behaviour.cli.command_line import Ended, run
from tests.behaviour.tables import groups, insert, new_table, writer
from tests.integration.matrix import START_SOON, Services
from tests.servers import SERVICES, Service
from tests.sizes import but_in_ci
from tests.waiting import eventually

from lakelock.admin.manual_changes import read_audit
from lakelock.cli.output import Exit
from lakelock.errors import LeaseLost, ProviderMismatch
from lakelock.settings import Settings

tables = count()


@pytest.fixture(scope="module", params=but_in_ci(SERVICES, START_SOON))
def service(request: pytest.FixtureRequest, services: Services) -> Service:
    return services(request.param)


@dataclass
class World:
    """One table and the settings that its writers share."""

    service: Service
    storage: LocalStorage
    uri: str
    opened: list[Coordinator] = field(default_factory=list)

    def writer(self, name: str, uri: str = "", **more: object) -> Coordinator:
        given = {key.replace("__", "."): value for key, value in more.items()}
        settings = Settings.resolve({"lock.provider": uri or self.uri, **self.service.options, **given}).settings
        self.opened.append(writer(self.storage, settings, name))
        return self.opened[-1]

    def command(self, *arguments: str, uri: str = "") -> Ended:
        given = {"lock.provider": uri or self.uri, **self.service.options}
        sets = [part for key, value in given.items() for part in ("--set", f"{key}={value}")]
        name, operation, *rest = arguments
        return run(name, operation, self.storage.root, *rest, *sets)


@pytest.fixture
def world(service: Service, tmp_path: Path) -> Iterator[World]:
    storage = LocalStorage(tmp_path / "t")
    new_table(storage)
    made = World(service, storage, service.url(f"changes{next(tables)}"))
    yield made
    for each in made.opened:
        each.close()


def test_a_broken_commit_lock_is_lost_for_its_holder_and_leaves_a_record(world: World) -> None:
    holder = world.writer("holder").table.provider
    assert holder is not None
    lease = holder.acquire(wait_s=20)
    ended = world.command("locks", "break", "--token", str(lease.token), "--force", "--yes", "--reason", "gone")
    assert ended.code == Exit.OK, ended.err
    with pytest.raises(LeaseLost):
        holder.renew(lease)
    (record,) = read_audit(world.storage)
    assert (record.action, record.token, record.outcome, record.reason) == ("break commit lock", lease.token, "done", "gone")
    assert "holder" in record.holder and record.lock == holder.identity


def test_broken_data_locks_are_lost_for_their_holder_and_leave_a_record(world: World) -> None:
    locks = world.writer("holder").data.locks
    lease = locks.acquire(lock_request(exclusive=[Resource.of("month=1")], about="INSERT"), wait_s=20)
    shown = world.command("locks", "ls", "--json").json["locks"]
    assert [(row["token"], row["partition"], row["type"]) for row in shown] == [(lease.token, "month=1", "EXCLUSIVE")]
    ended = world.command("locks", "break", "--data", "--token", str(lease.token), "--force", "--yes")
    assert ended.code == Exit.OK, ended.err

    def lost() -> bool:
        try:
            locks.renew(lease)
        except LeaseLost:
            return True
        return False

    eventually(lost, 30)
    (record,) = read_audit(world.storage)
    assert (record.action, record.token, record.outcome) == ("break data locks", lease.token, "done")


def test_a_table_moves_from_the_default_lock_to_the_service_and_back(world: World) -> None:
    if world.uri == "storage:":
        pytest.skip("the default lock has nowhere to move from")
    before, stale = world.writer("before", "storage:"), world.writer("stale", "storage:")
    insert(before, world.storage, "month=1", "a")
    insert(stale, world.storage, "month=1", "b")
    ended = world.command("locks", "migrate", "--to", world.uri, "--yes", uri="storage:")
    assert ended.code == Exit.OK, ended.err
    with pytest.raises(ProviderMismatch):
        insert(stale, world.storage, "month=1", "x")
    insert(world.writer("after"), world.storage, "month=1", "c")
    ended = world.command("locks", "migrate", "--to", "storage:", "--yes")
    assert ended.code == Exit.OK, ended.err
    insert(stale, world.storage, "month=1", "d")
    assert sorted(groups(world.storage)) == [f"month=1/{name}" for name in "abcd"]


def test_a_table_moves_although_a_writer_was_killed_with_its_locks(world: World) -> None:
    if world.uri == "storage:" or "zookeeper" in world.uri:
        pytest.skip("shown in memory; a session ends with its process")
    killed = world.writer("killed", lock__lease_s=3, lock__renew_s=1, data_locks__lease_s=3, data_locks__renew_s=1)
    insert(killed, world.storage, "month=1", "a")
    assert killed.table.provider is not None
    lease = killed.table.provider.acquire(wait_s=20)
    killed.data.locks.acquire(lock_request(exclusive=[Resource.of("month=1")], about="INSERT"), wait_s=20)
    ended = world.command("locks", "migrate", "--to", "storage:", "--yes")
    assert ended.code == Exit.OK, ended.err
    assert lease.lost is not None


def test_a_lock_that_is_spelled_otherwise_is_not_waited_for_and_only_the_record_changes(world: World) -> None:
    host = world.uri.partition("127.0.0.1")
    if not host[1]:
        pytest.skip("there is one spelling")
    insert(world.writer("before"), world.storage, "month=1", "a")
    to = "localhost".join(host[::2])
    ended = world.command("locks", "migrate", "--to", to, "--yes")
    assert ended.code == Exit.OK, ended.err
    insert(world.writer("after", to), world.storage, "month=1", "b")
    with pytest.raises(ProviderMismatch):
        insert(world.writer("stale"), world.storage, "month=1", "x")


def test_the_settings_that_a_mismatch_names_are_accepted_and_name_the_recorded_lock(world: World) -> None:
    insert(world.writer("first"), world.storage, "month=1", "a")
    with pytest.raises(ProviderMismatch) as refused:
        insert(world.writer("other", "memory:"), world.storage, "month=1", "x")
    named = dict(re.findall(r'(\S+) to "([^"]*)"', refused.value.hint.partition(" here;")[0]))
    assert "lock.provider" in named
    rest = {key: value for key, value in world.service.options.items() if key not in named}
    follower = writer(world.storage, Settings.resolve({**rest, **named}).settings, "follower")
    world.opened.append(follower)
    insert(follower, world.storage, "month=1", "b")
