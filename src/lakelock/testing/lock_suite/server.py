"""What a lock promises when its server restarts, cannot be reached, or its answers get lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from lakelock.errors import LakelockError, LeaseLost, ProviderUnavailable
from lakelock.events import EventKind
from lakelock.providers import Lease, LockProvider
from lakelock.testing.lock_suite.arena import SLACK_S, Arena, LockedTable, Promises, column, not_for_this, taken
from lakelock.testing.proxy import Proxy
from lakelock.testing.service import Service

LONG_S = 20.0


class ServerPromises(Promises):
    """For a table that names its `server`; each promise is skipped for a lock that has none."""

    @pytest.fixture
    def server(self, locked_table: LockedTable) -> Service:
        if locked_table.server is None:
            not_for_this("no server stands between a writer and this lock")
        return locked_table.server

    @pytest.fixture
    def proxy(self, server: Service) -> Iterator[Proxy]:
        with Proxy(server.port, host=server.host, severs=server.sessions) as between:
            yield between

    @column("restart")
    def test_over_a_restart_the_lock_is_kept_or_its_loss_is_told_and_the_next_proceeds(
        self, arena: Arena, server: Service
    ) -> None:
        holder, rival = arena.writer("holder", lease_s=LONG_S), arena.writer("rival", lease_s=LONG_S)
        lease = holder.acquire(wait_s=12)
        server.stop()
        server.start()
        kept = arena.until(lambda: _renewed(holder, lease))
        if kept == "kept":
            arena.until(lambda: _renewed(holder, lease) == "kept" and _refused(rival))
            lease.ensure_active()
        else:
            arena.until(lambda: _answers(rival))
            with pytest.raises(LeaseLost):
                lease.ensure_active()
        holder.release(lease)
        # A server that has just started may not answer the release in time: the lock is then free after the lease.
        after = rival.acquire(wait_s=LONG_S + SLACK_S)
        assert after.token > lease.token
        rival.release(after)

    @column("unreachable")
    def test_without_its_server_waiting_is_bounded_and_the_lease_ends_when_it_says(self, arena: Arena, proxy: Proxy) -> None:
        holder, direct = arena.writer("holder", proxy=proxy), arena.writer("direct")
        lease = holder.acquire(wait_s=12)
        proxy.cut()
        ends_s = arena.runtime.monotonic_s() + arena.lease_s
        with pytest.raises(LakelockError):
            holder.renew(lease)
        arena.until(lambda: lease.lost, within_s=arena.lease_s + SLACK_S)
        assert lease.deadline_s <= ends_s
        holder.release(lease)
        began_s = arena.runtime.monotonic_s()
        with pytest.raises(ProviderUnavailable):
            holder.acquire(wait_s=0.5)
        assert arena.runtime.monotonic_s() - began_s < 0.5 + arena.table.gives_up_s
        after = direct.acquire(wait_s=arena.lease_s + SLACK_S)
        assert after.token > lease.token
        proxy.heal()
        assert taken(holder) is None
        direct.release(after)
        holder.release(holder.acquire(wait_s=12))

    @column("unreachable")
    def test_a_release_that_cannot_be_sent_raises_nothing_and_is_an_alert(self, arena: Arena, proxy: Proxy) -> None:
        holder, direct = arena.writer("holder", proxy=proxy), arena.writer("direct")
        lease = holder.acquire(wait_s=12)
        proxy.cut()
        holder.release(lease)
        assert EventKind.ALERT in arena.kinds()
        direct.release(direct.acquire(wait_s=arena.lease_s + SLACK_S))

    @column("lost reply")
    def test_grants_and_releases_whose_answer_is_lost_happen_once(self, arena: Arena, proxy: Proxy) -> None:
        one, two = arena.writer("one", lease_s=LONG_S, proxy=proxy), arena.writer("two", lease_s=LONG_S)
        one.release(one.acquire(wait_s=12))
        proxy.drop_replies(1)
        lease = one.acquire(wait_s=10)
        assert proxy.dropped == 1
        assert taken(two) is None
        assert two.inspect().token == lease.token
        lease.ensure_active()
        one.renew(lease)
        proxy.drop_replies(1)
        one.release(lease)
        assert proxy.dropped == 2
        # A session may end with its connection, and the lock with it: that is worth a word.
        assert EventKind.ALERT not in arena.kinds() or arena.table.sessions
        after = two.acquire(wait_s=LONG_S / 2)
        assert after.token > lease.token
        two.release(after)

    @column("lost reply")
    def test_giving_up_takes_back_a_grant_whose_answer_is_lost(self, arena: Arena, proxy: Proxy, server: Service) -> None:
        one, two = arena.writer("one", lease_s=LONG_S, proxy=proxy), arena.writer("two", lease_s=LONG_S)
        one.release(one.acquire(wait_s=12))
        proxy.drop_replies(1)
        # The client of an object store asks again by itself, and then the grant is found.
        with suppress(ProviderUnavailable) if server.tables else pytest.raises(ProviderUnavailable):
            one.release(one.acquire(wait_s=0))
        assert proxy.dropped == 1
        two.release(two.acquire(wait_s=LONG_S / 2))

    @column("lost reply")
    def test_a_request_that_is_carried_out_after_its_writer_gave_up_is_taken_back(self, arena: Arena, server: Service) -> None:
        one, two = arena.writer("one", lease_s=LONG_S), arena.writer("two", lease_s=LONG_S)
        one.release(one.acquire(wait_s=12))
        two.release(two.acquire(wait_s=12))
        server.pause()
        try:
            with pytest.raises(ProviderUnavailable):
                one.acquire(wait_s=0)
        finally:
            server.resume()
        two.release(two.acquire(wait_s=LONG_S / 2))

    @column("lost reply")
    def test_a_renewal_whose_answer_is_lost_does_not_lose_the_lock(self, arena: Arena, proxy: Proxy) -> None:
        one, two = arena.writer("one", lease_s=LONG_S, proxy=proxy), arena.writer("two")
        lease = one.acquire(wait_s=12)
        proxy.drop_replies(1)
        with suppress(ProviderUnavailable):
            one.renew(lease)
        assert proxy.dropped == 1
        lease.ensure_active()
        assert arena.until(lambda: _renewed(one, lease)) == "kept"
        assert taken(two) is None
        one.release(lease)


def _answers(provider: LockProvider) -> bool:
    try:
        provider.inspect()
    except LakelockError:
        return False
    return True


def _refused(provider: LockProvider) -> bool:
    """Whether the answer is that the lock is held; False while the service does not answer."""
    try:
        assert taken(provider) is None, "two hold the lock"
    except ProviderUnavailable:
        return False
    return True


def _renewed(provider: LockProvider, lease: Lease) -> str:
    """`kept`, `lost`, or empty while the service does not answer."""
    try:
        provider.renew(lease)
    except LeaseLost:
        return "lost"
    except LakelockError:
        return ""
    return "kept"
