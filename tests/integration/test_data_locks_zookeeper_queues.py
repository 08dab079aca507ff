"""How data locks use a real ZooKeeper: one transaction per request, one watch per waiter, sessions that come and go."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from lakelock.data_locks import DataLocks, Resource
from lakelock.data_locks import zookeeper_waiter as waiter_module
from lakelock.data_locks.zookeeper import ZooKeeperDataLease, ZooKeeperDataLocks
from lakelock.data_locks.zookeeper_nodes import node_data
from lakelock.data_locks.zookeeper_waiter import DataWaiter
from lakelock.errors import LeaseLost, LockError, LockTimeout, SettingsError
from lakelock.events import Event, EventKind, Events
from lakelock.testing.servers.proxy import Proxy
from lakelock.testing.servers.service import Service
from lakelock.testing.servers.zookeeper import zookeeper_ensemble
from tests.behaviour.data_lock_suite import LEASE_S, P1, P2, SLACK_S, TABLE, Later, eventually, granted, own, share
from tests.integration.test_data_locks import open_one, tables
from tests.integration.zookeeper_world import World

SECRET = "hunter2"


@dataclass
class Queues:
    """The nodes of one table, and its writers."""

    service: Service
    plain: Any
    table: str = field(default_factory=lambda: f"data{next(tables)}")
    opened: list[DataLocks] = field(default_factory=list)

    @property
    def path(self) -> str:
        return "/" + self.service.url(self.table).partition("://")[2].partition("/")[2] + ".data"

    def writer(self, name: str, lease_s: float = 30.0, port: int = 0, **more: Any) -> ZooKeeperDataLocks:
        locks = open_one(self.service, self.table, name, lease_s, port, **more)
        assert isinstance(locks, ZooKeeperDataLocks)
        self.opened.append(locks)
        return locks

    def nodes(self) -> dict[str, list[str]]:
        """The nodes in each queue."""
        self.plain.sync(self.path)
        return {name: sorted(self.plain.get_children(f"{self.path}/{name}")) for name in self.plain.get_children(self.path)}

    def stats(self) -> list[Any]:
        return [self.plain.exists(f"{self.path}/{queue}/{node}") for queue, nodes in self.nodes().items() for node in nodes]


@pytest.fixture
def queues(zookeeper: Service) -> Iterator[Queues]:
    from kazoo.client import KazooClient

    plain = KazooClient(f"127.0.0.1:{zookeeper.port}")
    plain.start(10)
    made = Queues(zookeeper, plain)
    yield made
    for locks in made.opened:
        locks.close()
    plain.stop()
    plain.close()


def expire(locks: ZooKeeperDataLocks) -> None:
    """End the session behind its back, as the server does with one that is silent."""
    from kazoo.client import KazooClient

    assert locks._session is not None
    victim = locks._session._client
    twin = KazooClient(",".join(f"{host}:{port}" for host, port in victim.hosts), client_id=victim.client_id)
    twin.start(10)
    twin.stop()
    twin.close()


def watches(port: int) -> int:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as talking:
        talking.sendall(b"wchs")
        told = b"".join(iter(lambda: talking.recv(4096), b"")).decode()
    return int(told.rpartition("Total watches:")[2])


def test_all_nodes_of_a_request_are_made_in_one_transaction_and_go_with_the_session(queues: Queues) -> None:
    one = queues.writer("one")
    lease = one.acquire(own(P1, Resource.of("year=1/month=1")), wait_s=5)
    nodes = queues.nodes()
    assert sorted(nodes) == ["@table", "month=1", "year=1", "year=1%2Fmonth=1"]
    assert [name.partition("-")[0] for queue in sorted(nodes) for name in nodes[queue]] == ["read", "write", "read", "write"]
    assert {stat.czxid for stat in queues.stats()} == {lease.token}
    assert {stat.ephemeralOwner for stat in queues.stats()} == {lease.session.id}  # type: ignore[attr-defined]
    one.close()
    assert list(queues.nodes().values()) == [[]] * 4


def test_the_commit_lock_and_the_data_locks_of_a_table_do_not_meet(queues: Queues, zookeeper: Service) -> None:
    world = World(zookeeper, queues.table)
    committing, one = world.writer("committing"), queues.writer("one")
    data, commit = one.acquire(own(TABLE), wait_s=5), committing.acquire(wait_s=5)
    state = committing.inspect()
    assert state.holder is not None and state.queue == ()
    assert [shown.token for shown in one.inspect()] == [data.token]
    assert one.identity == f"{committing.identity}.data"
    committing.release(commit)
    one.release(data)
    world.close()


def test_a_waiter_watches_one_node_and_a_release_wakes_one_writer(queues: Queues) -> None:
    holder, waiters = queues.writer("holder"), [queues.writer(f"waiter-{number}") for number in range(4)]
    before = watches(queues.service.port)
    lease = holder.acquire(own(P1, P2), wait_s=5)
    waiting = [Later(waiter, own(P1, P2)) for waiter in waiters]
    eventually(lambda: watches(queues.service.port) == before + len(waiters))
    for waiter, each in zip(waiters, waiting, strict=True):
        assert not each.done
        holder.release(lease)
        holder, lease = waiter, each.lease()
        eventually(lambda: watches(queues.service.port) == before + sum(not later.done for later in waiting))
    holder.release(lease)


def test_readers_wait_for_the_writer_and_not_for_each_other(queues: Queues) -> None:
    writer, readers = queues.writer("writer"), [queues.writer(f"reader-{number}") for number in range(3)]
    lease = writer.acquire(own(P1), wait_s=5)
    waiting = [Later(reader, share(P1)) for reader in readers]
    writer.release(lease)
    assert len({each.lease().token for each in waiting}) == 3


def test_who_waits_for_many_gets_through_when_the_last_of_them_has_left(queues: Queues) -> None:
    holders = [queues.writer(f"holder-{number}") for number in range(3)]
    months = [Resource.of(f"month={number}") for number in range(3)]
    leases = [holder.acquire(own(month), wait_s=5) for holder, month in zip(holders, months, strict=True)]
    everything = queues.writer("everything")
    waiting = Later(everything, own(*months))
    for holder, lease in reversed(list(zip(holders, leases, strict=True))):
        assert not waiting.done
        holder.release(lease)
    everything.release(waiting.lease())
    assert everything.inspect() == ()


def test_a_thousand_new_partitions_take_a_moment_and_leave_nothing_but_their_queues(queues: Queues) -> None:
    one = queues.writer("one")
    one.inspect()
    many = [Resource.of(f"day={day}/country=se") for day in range(1000)]
    began_s = monotonic()
    one.release(one.acquire(own(*many), wait_s=20))
    assert monotonic() - began_s < 10
    assert len(queues.nodes()) == 2001 and not any(queues.nodes().values())


def test_a_request_that_no_transaction_holds_is_refused_with_the_way_out(queues: Queues) -> None:
    one = queues.writer("one")
    huge = [Resource.of(f"{'x' * 900}={number}") for number in range(1000)]
    with pytest.raises(LockError, match="1000 partitions|1001 data locks") as refused:
        one.acquire(own(*huge), wait_s=5)
    assert "data_locks.escalate_above" in refused.value.hint and not isinstance(refused.value, LockTimeout)
    one.release(one.acquire(own(P1), wait_s=5))


def test_a_lease_ends_with_its_session_and_the_next_request_gets_a_new_one(queues: Queues) -> None:
    one, two = queues.writer("one"), queues.writer("two")
    lease = one.acquire(own(P1), wait_s=5)
    expire(one)
    eventually(lambda: lease.lost is not None)
    assert lease.lost is not None and lease.lost.reason == "session-lost"
    after = two.acquire(own(P1), wait_s=5)
    with pytest.raises(LeaseLost):
        one.renew(lease)
    one.release(lease)
    assert [shown.token for shown in two.inspect()] == [after.token]
    two.release(after)
    one.release(one.acquire(own(P1), wait_s=5))


def test_a_waiter_whose_session_ended_goes_to_the_end_of_the_queue(queues: Queues) -> None:
    holder, lost, other = queues.writer("holder"), queues.writer("lost"), queues.writer("other")
    lease = holder.acquire(own(P1), wait_s=5)
    waiting, behind = Later(lost, own(P1)), Later(other, own(P1))
    before = holder.inspect()
    expire(lost)
    eventually(lambda: len(holder.inspect()) == 3 and holder.inspect() != before)
    holder.release(lease)
    first = behind.lease()
    assert not waiting.done
    other.release(first)
    lost.release(waiting.lease())
    assert other.inspect() == ()


def lonely_waiter(queues: Queues) -> tuple[ZooKeeperDataLocks, DataWaiter]:
    """One that asks for P1, with no `acquire` around it."""
    one = queues.writer("one")
    one.release(one.acquire(own(P1), wait_s=5))
    request, grant, session = own(P1), one.runtime.uuid(), one._session
    assert session is not None
    data = node_data(request, one.writer, grant, 30.0)
    return one, DataWaiter(session, queues.path, request, data, grant, one.runtime)


def test_nodes_that_were_made_in_the_next_session_are_not_forgotten(queues: Queues) -> None:
    """The session may end while a request waits for a connection; its nodes belong to the next session then."""
    one, waiter = lonely_waiter(queues)
    waiter._epoch -= 1
    assert waiter.step(lambda: 5.0) is None
    assert waiter.is_out and len(one.inspect()) == 1
    one._abandon_later(waiter)
    eventually(lambda: not any(queues.nodes().values()))


def test_a_part_of_a_request_is_no_request(queues: Queues) -> None:
    """Nodes that were not made together have no common place in the queues."""
    _, waiter = lonely_waiter(queues)
    waiter._in_doubt = waiter._unsure = True
    queues.plain.create(f"{queues.path}/month=1/write-{waiter.grant}-lock-", b"", ephemeral=True, sequence=True)
    assert waiter.step(lambda: 5.0) is not None
    assert {stat.czxid for stat in queues.stats()} == {waiter.token}
    waiter.leave(lambda: 5.0)
    assert not any(queues.nodes().values())


def test_an_interrupted_connection_is_no_loss_and_is_checked_before_it_is_trusted(queues: Queues) -> None:
    with Proxy(queues.service.port, severs=True) as proxy:
        one, two = queues.writer("one", 10.0, proxy.port), queues.writer("two")
        lease = one.acquire(own(P1), wait_s=5)
        assert isinstance(lease, ZooKeeperDataLease)
        waiting = Later(two, own(P1))
        proxy.interrupt()
        eventually(lambda: lease.is_doubtful)
        assert lease.lost is None
        lease.ensure_active()
        assert not lease.is_doubtful and not waiting.done
        one.release(lease)
        two.release(waiting.lease())


def test_a_waiter_survives_an_interruption_in_its_place(queues: Queues) -> None:
    with Proxy(queues.service.port, severs=True) as proxy:
        holder, waiter = queues.writer("holder"), queues.writer("waiter", 10.0, proxy.port)
        lease = holder.acquire(own(P1), wait_s=5)
        waiting = Later(waiter, own(P1))
        before = holder.inspect()
        proxy.interrupt()
        eventually(lambda: proxy.connections >= 2)
        holder.release(lease)
        after = waiting.lease()
        assert after.token == before[1].token
        waiter.release(after)


def test_who_is_removed_from_the_queue_queues_up_again(queues: Queues) -> None:
    holder, waiter, operator = queues.writer("holder"), queues.writer("waiter"), queues.writer("operator")
    lease = holder.acquire(own(P1), wait_s=5)
    waiting = Later(waiter, own(P1, P2))
    token = holder.inspect()[1].token
    operator.break_lock(token, force=True)
    holder.release(lease)
    after = waiting.lease()
    assert after.token >= token
    waiter.release(after)
    assert not any(queues.nodes().values())


def test_a_holder_that_dies_while_its_lock_is_being_broken_is_waited_for(queues: Queues) -> None:
    with Proxy(queues.service.port, severs=True) as proxy:
        holder, operator = queues.writer("holder", LEASE_S, proxy.port), queues.writer("operator")
        lease = holder.acquire(own(P1), wait_s=5)
        proxy.cut()
        began_s = monotonic()
        operator.break_lock(lease.token)
        assert LEASE_S / 3 < monotonic() - began_s < LEASE_S + SLACK_S
        assert operator.inspect() == ()


def test_a_foreign_node_keeps_out_whom_it_should_until_all_is_cleared_by_force(queues: Queues) -> None:
    one = queues.writer("one")
    one.release(one.acquire(own(P1), wait_s=5))
    foreign = queues.plain.create(f"{queues.path}/@table/read-", b"not ours", ephemeral=True, sequence=True)
    assert granted(one, own(TABLE)) is None
    lease = one.acquire(own(P1), wait_s=5)
    assert [shown.writer is None for shown in one.inspect()] == [True, False]
    one.break_lock(0, force=True)
    assert queues.plain.exists(foreign) is None and not any(queues.nodes().values())
    with pytest.raises(LeaseLost):
        one.renew(lease)


def test_queues_that_nobody_uses_are_removed_when_there_are_too_many(queues: Queues, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiter_module, "_MANY_QUEUES", 20)
    one, two = queues.writer("one"), queues.writer("two")
    kept = one.acquire(own(P1), wait_s=5)
    for day in range(60):
        two.release(two.acquire(own(Resource.of(f"day={day}")), wait_s=5))
    nodes = queues.nodes()
    assert len(nodes) <= 25
    assert len(nodes["month=1"]) == len(nodes["@table"]) == 1
    kept.ensure_active()
    one.renew(kept)
    assert granted(two, own(P1)) is None
    one.release(kept)


def test_leases_are_never_longer_than_the_session_that_the_server_grants(queues: Queues) -> None:
    with pytest.raises(SettingsError, match="40 s") as refused:
        queues.writer("long", 90.0).acquire(own(P1), wait_s=5)
    assert refused.value.details["key"] == "data_locks.lease_s"
    one = queues.writer("one", 60.0)
    lease = one.acquire(own(P1), wait_s=5)
    assert lease.lease_s == 40.0 and lease.remaining_s() <= 40.0
    one.release(lease)


def test_who_waits_tells_once_for_whom(queues: Queues) -> None:
    seen: list[Event] = []
    holder, waiter = queues.writer("holder"), queues.writer("waiter")
    waiter._events = Events((seen.append,))
    lease = holder.acquire(own(P1), wait_s=5)
    with pytest.raises(LockTimeout):
        waiter.acquire(share(P1), wait_s=1.5)
    assert [event.kind for event in seen] == [EventKind.WAITING_FOR_LOCK]
    assert str(seen[0].facts["holder"]).startswith("holder")
    holder.release(lease)


def test_held_locks_and_waiters_survive_the_loss_of_the_leader(tmp_path: Path) -> None:
    with zookeeper_ensemble(tmp_path) as ensemble:
        holder, other = (open_one(ensemble.service, "t", name, 30.0) for name in ("holder", "other"))
        lease = holder.acquire(own(P1, P2), wait_s=10)
        waiting = Later(other, own(P1, P2), wait_s=60)
        before = [locked.token for locked in other.inspect()]
        ensemble.stop_leader()
        eventually(lambda: lease.is_doubtful, within_s=30)  # type: ignore[attr-defined]
        lease.ensure_active()
        assert not waiting.done and lease.lost is None
        assert [locked.token for locked in holder.inspect()] == before
        holder.release(lease)
        other.release(waiting.lease())
        holder.close()
        other.close()


def test_the_nodes_of_a_digest_user_are_closed_to_everybody_else(queues: Queues) -> None:
    owner = queues.writer("owner", **{"zookeeper.digest": f"spark:{SECRET}", "zookeeper.acl": "creator"})
    lease = owner.acquire(own(P1), wait_s=5)
    stranger = queues.writer("stranger")
    with pytest.raises(LockError, match="may not use") as refused:
        stranger.acquire(own(P2), wait_s=5)
    assert SECRET not in str(refused.value) + owner.identity + repr(owner)
    owner.renew(lease)
    owner.release(lease)
