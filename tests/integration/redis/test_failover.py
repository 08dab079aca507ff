"""What a failover of Redis does to the lock, as its declared strength says: two may hold it, and no commit is lost by that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from redis import exceptions
from tests.api import (
    ArrowEngine,
    Coordinator,
    Event,
    EventKind,
    LocalStorage,
    LockProvider,
    MemoryStorage,
    StorageLocation,
    SystemRuntime,
    WriterIdentity,
    open_provider,
)
from tests.behaviour.tables import SCHEMA, new_table
from tests.servers.locks.redis import RedisServer
from tests.servers.process import free_port
from tests.waiting import eventually

from lakelock.errors import LeaseLost, LockTimeout, ProviderUnavailable
from lakelock.settings import Settings
from lakelock.testing.proxy import Proxy

SENTINEL = """port {sentinel}
bind 127.0.0.1
dir {folder}
sentinel monitor {name} 127.0.0.1 {primary} 1
sentinel down-after-milliseconds {name} 500
sentinel failover-timeout {name} 3000
"""


@dataclass
class Pair:
    """A primary and its replica."""

    primary: RedisServer
    replica: RedisServer

    def replica_leads(self) -> bool:
        try:
            return bool(self.replica.client().info("replication")["role"] == "master")
        except exceptions.ConnectionError:  # a Sentinel ends all connections of the server that it promotes
            return False

    def caught_up(self) -> bool:
        ahead = self.primary.client().info("replication")["master_repl_offset"]
        return bool(self.replica.client().info("replication")["slave_repl_offset"] >= ahead)

    def cut(self) -> None:
        """From now on the replica learns nothing, and does not know it: as between a crash and its notice."""
        self.replica.client().replicaof("127.0.0.1", free_port())

    def promote(self) -> None:
        self.replica.client().replicaof("NO", "ONE")


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    quick = ("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")
    with (
        RedisServer(tmp_path / "primary", quick) as primary,
        RedisServer(tmp_path / "replica", (*quick, "--replicaof", "127.0.0.1", str(primary.port))) as replica,
    ):
        made = Pair(primary, replica)
        eventually(lambda: replica.client().info("replication")["master_link_status"] == "up")
        yield made


def settings(uri: str, **options: Any) -> Settings:
    values = {
        "lock.lease_s": 3,
        "lock.renew_s": 0.5,
        "lock.options.socket_timeout": 0.8,
        "lock.options.socket_connect_timeout": 0.5,
    }
    values |= {key.replace("__", "."): value for key, value in options.items()}
    return Settings.resolve(values | {"lock.provider": uri}).settings


@pytest.fixture
def writer() -> Iterator[Callable[..., LockProvider]]:
    opened: list[LockProvider] = []

    def open_one(uri: str, **options: Any) -> LockProvider:
        runtime = SystemRuntime()
        identity = WriterIdentity.of_this_process(runtime, f"w{len(opened)}")
        opened.append(open_provider(settings(uri, **options), MemoryStorage(name="table"), runtime, identity))
        return opened[-1]

    yield open_one
    for provider in opened:
        provider.close()


def at(server: RedisServer) -> str:
    return f"redis://127.0.0.1:{server.port}/0?key=failover"


def test_a_replica_that_knows_the_grant_goes_on_with_it(pair: Pair, writer: Callable[..., LockProvider]) -> None:
    lease = writer(at(pair.primary)).acquire(wait_s=1)
    eventually(pair.caught_up)
    pair.primary.stop()
    pair.promote()
    after = writer(at(pair.replica))
    with pytest.raises(LockTimeout, match="w0"):
        after.acquire(wait_s=0.2)
    next_one = after.acquire(wait_s=12)
    assert next_one.token > lease.token and lease.lost is not None, "the lease ran out before the lock was granted again"


def test_a_replica_that_never_got_the_grant_lets_two_hold_the_lock(pair: Pair, writer: Callable[..., LockProvider]) -> None:
    first, second = writer(at(pair.primary)), writer(at(pair.replica))
    first.release(first.acquire(wait_s=1))
    eventually(pair.caught_up)
    pair.cut()
    old = first.acquire(wait_s=1)
    pair.promote()
    new = second.acquire(wait_s=0)
    # Two holders at once: what `failover` of its strength says. Both leases are alive, and tell each other apart by token.
    old.ensure_active()
    new.ensure_active()
    assert new.token > old.token, "the counter stayed behind, but the clock of the server did not"
    # The old server is made a replica of the new one, as a Sentinel does: the old holder finds out, and disturbs nobody.
    pair.primary.client().replicaof("127.0.0.1", pair.replica.port)
    with pytest.raises((LeaseLost, ProviderUnavailable)):
        first.renew(old)
    first.release(old)
    second.renew(new)
    eventually(lambda: old.lost)


def test_two_holders_commit_and_no_update_is_lost(pair: Pair, tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path / "table"))
    new_table(storage)
    holds: list[str] = []

    with Proxy(pair.primary.port) as address:
        # One address for both servers, as with a virtual IP: a connection stays with the server that it was made to.
        def engine(listener: Callable[[Event], None]) -> ArrowEngine:
            # No early detection, or the second would wait for the first before it wants the lock.
            quick = {"lock__wait_s": 10, "lock__lease_s": 20, "concurrency__early_conflict_detection": False}
            chosen = settings(f"redis://127.0.0.1:{address.port}/0?key=failover", **quick)
            location = StorageLocation(storage.uri)
            return ArrowEngine(Coordinator.open(location, chosen, application="w", listeners=(listener,), storage=storage))

        def other(event: Event) -> None:
            if event.kind is EventKind.LOCKED:
                holds.append("second")

        def while_it_holds_the_lock(event: Event) -> None:
            if event.kind is EventKind.LOCKED and "first" not in holds:
                holds.append("first")
                assert pair.primary.client().get("{failover}") is not None
                pair.promote()
                address.target = pair.replica.port
                engine(other).upsert(rows(("b", 2)))
                holds.append("first goes on")
                assert pair.primary.client().get("{failover}") is not None, "it held the lock all the time"

        earlier = engine(lambda event: None)
        earlier.insert(rows(("a", 0), ("b", 0)))
        eventually(pair.caught_up)
        first = engine(while_it_holds_the_lock)
        pair.cut()
        first.upsert(rows(("a", 1)))
        assert holds == ["first", "second", "first goes on"]
        found = earlier.read()
    assert sorted(zip(found.column("id").to_pylist(), found.column("v").to_pylist(), strict=True)) == [("a", 1), ("b", 2)]


def rows(*values: tuple[str, int]) -> pa.Table:
    names, numbers = zip(*values, strict=True)
    return pa.table([list(names), list(numbers), ["1"] * len(values)], schema=SCHEMA)


def test_with_wait_a_grant_counts_only_when_the_replica_has_it(pair: Pair, writer: Callable[..., LockProvider]) -> None:
    options = {"lock__options__wait_replicas": 1}
    provider = writer(at(pair.primary), **options)
    lease = provider.acquire(wait_s=2)
    assert pair.replica.client().get("{failover}") is not None, "the replica has it as soon as the lease is here"
    provider.renew(lease)
    pair.cut()
    with pytest.raises(ProviderUnavailable, match="0 of 1 replicas"):
        provider.renew(lease)
    provider.release(lease)
    with pytest.raises(ProviderUnavailable, match="0 of 1 replicas"):
        provider.acquire(wait_s=0.3)
    assert pair.primary.client().get("{failover}") is None, "a grant that does not count is taken back"
    with pytest.raises(ProviderUnavailable, match="0 of 1 replicas"):
        provider.probe()


def test_sentinel_leads_writers_to_the_new_primary(pair: Pair, tmp_path: Path, writer: Callable[..., LockProvider]) -> None:
    port = free_port()
    config = tmp_path / "sentinel.conf"
    config.write_text(SENTINEL.format(sentinel=port, folder=tmp_path, name="lake", primary=pair.primary.port))
    with RedisServer(tmp_path / "sentinel", (str(config), "--sentinel"), port=port) as sentinel:
        eventually(lambda: sentinel.client().execute_command("SENTINEL", "REPLICAS", "lake"))
        provider = writer(f"redis+sentinel://127.0.0.1:{port}/lake/0?key=failover", lock__lease_s=30, lock__renew_s=5)
        assert provider.identity == f"redis+sentinel://127.0.0.1:{port}/lake/0?key=failover"
        lease = provider.acquire(wait_s=1)
        eventually(pair.caught_up)
        pair.primary.stop()
        eventually(pair.replica_leads, within_s=20)
        eventually(lambda: renewed(provider, lease), within_s=10)
        provider.release(lease)
        assert provider.acquire(wait_s=2).token > lease.token


def renewed(provider: LockProvider, lease: Any) -> bool:
    try:
        provider.renew(lease)
    except ProviderUnavailable:
        return False
    return True
