"""Data locks in ZooKeeper when sessions end, connections break and servers fail."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic

import pytest
from tests.behaviour.data_locks.data_lock_suite import LEASE_S, P1, P2, SLACK_S, Later, own
from tests.integration.data_locks.test_data_locks import RUNTIME, open_one
from tests.integration.data_locks.zookeeper_data_world import Queues, queues_in
from tests.integration.zookeeper.zookeeper_world import after_a_change_of_sessions, before_a_watch, expire
from tests.servers.locks.zookeeper import zookeeper_ensemble
from tests.waiting import Stopwatch, eventually

from lakelock.data_locks.zookeeper import DataWaiter, ZooKeeperDataLease, node_data
from lakelock.errors import LeaseLost, ProviderUnavailable, SettingsError
from lakelock.testing.proxy import Proxy
from lakelock.testing.service import Service

pytestmark = pytest.mark.in_ci


@pytest.fixture
def queues(zookeeper: Service) -> Iterator[Queues]:
    with queues_in(zookeeper) as made:
        yield made


def test_a_lease_ends_with_its_session_and_the_next_request_gets_a_new_one(queues: Queues) -> None:
    one, two = queues.writer("one"), queues.writer("two")
    lease = one.acquire(own(P1), wait_s=12)
    expire(one)
    eventually(lambda: lease.lost is not None)
    assert lease.lost is not None and lease.lost.reason == "session-lost"
    after = two.acquire(own(P1), wait_s=12)
    with pytest.raises(LeaseLost):
        one.renew(lease)
    one.release(lease)
    assert [shown.token for shown in two.inspect()] == [after.token]
    two.release(after)
    one.release(one.acquire(own(P1), wait_s=12))


def test_a_waiter_whose_session_ended_goes_to_the_end_of_the_queue(queues: Queues) -> None:
    holder, lost, other = queues.writer("holder"), queues.writer("lost"), queues.writer("other")
    lease = holder.acquire(own(P1), wait_s=12)
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


def test_a_waiter_whose_session_ends_while_it_sets_its_watch_enters_the_queues_again(
    queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, lost = queues.writer("holder"), queues.writer("lost")
    lease = holder.acquire(own(P1), wait_s=12)
    changed = before_a_watch(monkeypatch, lambda: expire(lost))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lost.acquire, own(P1), wait_s=60)
        try:
            assert changed.wait(60)
            eventually(
                lambda: len(holder.inspect()) == 2, 20, saying="it waits in the queues, and not only for the holder to go"
            )
        finally:
            holder.release(lease)
        lost.release(waiting.result(60))


def test_nodes_that_were_made_in_the_next_session_are_not_forgotten(queues: Queues, monkeypatch: pytest.MonkeyPatch) -> None:
    one = queues.writer("one")
    one.release(one.acquire(own(P1), wait_s=12))
    after_a_change_of_sessions(monkeypatch)
    lease = one.acquire(own(P1), wait_s=12)
    assert [shown.token for shown in one.inspect()] == [lease.token]
    one.release(lease)
    assert not any(queues.nodes().values())


def test_a_part_of_a_request_is_no_request(queues: Queues, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes that were not made together have no common place in the queues."""
    one = queues.writer("one")
    lease = one.acquire(own(P1), wait_s=12)
    assert isinstance(lease, ZooKeeperDataLease)
    one.release(lease)
    request, grant, session = own(P1), RUNTIME.uuid(), lease.session
    waiter = DataWaiter(session, queues.path, request, node_data(request, one.writer, grant, 30.0), grant, RUNTIME)

    def without_a_reply(*_: object) -> None:
        raise session.unreachable("the reply was lost")

    with monkeypatch.context() as doubtful:
        doubtful.setattr(session, "ask", without_a_reply)
        with pytest.raises(ProviderUnavailable):
            waiter.step(lambda: 5.0)
    queues.plain.create(f"{queues.path}/month=1/write-{grant}-lock-", b"", ephemeral=True, sequence=True)
    assert waiter.step(lambda: 5.0) is not None
    assert {stat.czxid for stat in queues.stats()} == {waiter.token}
    waiter.leave(lambda: 5.0)
    assert not any(queues.nodes().values())


def test_an_interrupted_connection_is_no_loss_and_is_checked_before_it_is_trusted(queues: Queues) -> None:
    with Proxy(queues.service.port, host=queues.service.host, severs=True) as proxy:
        one, two = queues.writer("one", 10.0, proxy.port), queues.writer("two")
        lease = one.acquire(own(P1), wait_s=12)
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
    with Proxy(queues.service.port, host=queues.service.host, severs=True) as proxy:
        holder, waiter = queues.writer("holder"), queues.writer("waiter", 10.0, proxy.port)
        lease = holder.acquire(own(P1), wait_s=12)
        waiting = Later(waiter, own(P1))
        before = holder.inspect()
        proxy.interrupt()
        eventually(lambda: proxy.connections >= 2)
        holder.release(lease)
        after = waiting.lease()
        assert after.token == before[1].token
        waiter.release(after)


def test_a_holder_that_dies_while_its_lock_is_being_broken_is_waited_for(queues: Queues) -> None:
    with Proxy(queues.service.port, host=queues.service.host, severs=True) as proxy:
        holder, operator = queues.writer("holder", LEASE_S, proxy.port), queues.writer("operator")
        asked_s = monotonic()
        lease = holder.acquire(own(P1), wait_s=12)
        proxy.cut()
        with Stopwatch() as watch:
            operator.break_lock(lease.token)
        assert monotonic() - asked_s > LEASE_S / 3 and watch.took_s < LEASE_S + SLACK_S
        assert operator.inspect() == ()


def test_leases_are_never_longer_than_the_session_that_the_server_grants(queues: Queues) -> None:
    with pytest.raises(SettingsError, match="40 s") as refused:
        queues.writer("long", 90.0).acquire(own(P1), wait_s=5)
    assert refused.value.details["key"] == "data_locks.lease_s"
    one = queues.writer("one", 60.0)
    lease = one.acquire(own(P1), wait_s=12)
    assert lease.lease_s == 40.0 and lease.remaining_s() <= 40.0
    one.release(lease)


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
