"""The lock in Redis where a cluster or Sentinels say which server has it: in time, after an outage, explained."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.api import EventKind, Events, SystemRuntime, renewing
from tests.integration.redis.redis_world import World, take
from tests.servers.locks.redis import RedisServer
from tests.servers.process import free_port
from tests.waiting import Stopwatch, eventually

from lakelock.errors import LockError, ProviderRefused, ProviderUnavailable

SECRETS = {"lock__options__password": "open-sesame", "lock__options__sentinel_password": "open-the-sentinel"}


class Cluster(RedisServer):
    """A cluster of one server."""

    def __init__(self, folder: Path) -> None:
        # The nodes of a cluster talk to each other at a port that is 10,000 higher.
        port = next(found for found in iter(free_port, 0) if found < 55_000)
        super().__init__(folder, ("--cluster-enabled", "yes", "--appendonly", "yes", "--appendfsync", "always"), port=port)

    def wait_until_ok(self) -> None:
        eventually(lambda: b"cluster_state:ok" in self.client().execute_command("CLUSTER", "INFO"))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "node") as server:
        server.client().execute_command("CLUSTER", "ADDSLOTS", *range(16384))
        server.wait_until_ok()
        yield server


def world_of(server: RedisServer) -> World:
    return World(server.port, server, key="in cluster", uri="redis+cluster://127.0.0.1:{port}?key={key}")


def test_a_cluster_grants_queues_and_wakes(cluster: Cluster) -> None:
    world = world_of(cluster)
    first, second = world.writer("first", lock__lease_s=10), world.writer("second", lock__lease_s=10)
    first.probe()
    lease = first.acquire(wait_s=2)
    runtime = SystemRuntime()

    def give_back() -> None:
        eventually(lambda: first.inspect().queue)
        first.release(lease)

    with Stopwatch() as watch:
        after, _ = runtime.gather([lambda: second.acquire(wait_s=10), give_back], limit=2)  # type: ignore[list-item]
    assert after is not None and after.token > lease.token and watch.took_s < 2
    second.renew(after)
    second.close()
    first.close()


def test_a_cluster_that_was_away_is_asked_again_for_renewals_releases_and_locks(cluster: Cluster) -> None:
    world = world_of(cluster)
    provider = world.writer(lock__lease_s=30, lock__renew_s=1)
    lease = take(provider)
    with renewing(provider, lease, SystemRuntime(), 0.05, Events((world.seen.append,))):
        cluster.stop()
        eventually(lambda: lease.trouble)
        cluster.start()
        eventually(lambda: not lease.trouble)
        lease.ensure_active()
    cluster.stop()
    provider.release(lease)
    assert EventKind.ALERT in world.kinds(), "nobody could be told that the lock is free"
    with pytest.raises(ProviderUnavailable, match="no server of the cluster knows who has the key"):
        take(provider)
    cluster.start()
    cluster.wait_until_ok()
    assert provider.inspect().token == lease.token
    provider.close()


@pytest.mark.parametrize(("scheme", "kind"), [("redis+cluster", "cluster"), ("redis+sentinel", "sentinel")])
def test_a_single_server_is_refused_where_another_kind_is_named(server: RedisServer, scheme: str, kind: str) -> None:
    world = World(server.port, server, uri=f"{scheme}://127.0.0.1:{{port}}/{'lake' if kind == 'sentinel' else ''}")
    for ask in (world.writer().probe, world.writer().inspect, lambda: take(world.writer(), wait_s=30)):
        with pytest.raises(ProviderRefused, match=f"is no {kind}") as refused:
            ask()
        assert "write redis://" in refused.value.hint


@pytest.mark.parametrize("scheme", ["redis+sentinel", "redis+cluster"])
def test_silent_servers_share_the_time_of_a_wait(scheme: str) -> None:
    with ExitStack() as stack:
        silent = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(4)]
        hosts = ",".join(f"127.0.0.1:{each.getsockname()[1]}" for each in silent)
        world = World(0, uri=f"{scheme}://{hosts}/{'lake' if scheme == 'redis+sentinel' else ''}")
        patient = {
            "lock__options__socket_timeout": 2,
            "lock__options__socket_connect_timeout": 2,
            "lock__lease_s": 10,
            "lock__renew_s": 1,
        }
        with Stopwatch() as watch, pytest.raises(ProviderUnavailable):
            take(world.writer(**patient), wait_s=1)
        assert watch.took_s < 1 + 0.75


@pytest.mark.parametrize("secure", ["", "s"])
def test_an_unreachable_sentinel_is_named_with_the_service_and_without_a_secret(secure: str) -> None:
    ports = [free_port(), free_port()]
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    world = World(0, uri=f"redis{secure}+sentinel://me:in-the-uri@{hosts}/lake")
    with pytest.raises(LockError) as failed:
        take(world.writer(**SECRETS))
    shown = f"{failed.value} {failed.value.as_dict()}"
    assert "no Sentinel knows a primary of 'lake'" in shown and all(str(port) in shown for port in ports)
    assert not [secret for secret in (*SECRETS.values(), "in-the-uri") if secret in shown]
    assert "<redis" not in shown and len(failed.value.message) < 600


def test_a_sentinel_that_does_not_know_the_service_says_so(tmp_path: Path) -> None:
    config, port = tmp_path / "sentinel.conf", free_port()
    config.write_text(f"port {port}\nbind 127.0.0.1\ndir {tmp_path}\n")
    writer = World(port, uri="redis+sentinel://127.0.0.1:{port}/lake").writer()
    sentinel = RedisServer(tmp_path / "sentinel", (str(config), "--sentinel"), port=port)
    with sentinel, pytest.raises(ProviderUnavailable, match=f"127.0.0.1:{port} knows none"):
        take(writer)
