"""Data locks beside the commit lock and in forked processes; and what is special about the documents in Redis and DynamoDB."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.api import DataLocks, MemoryStorage, Resource, WriterIdentity, open_provider
from tests.behaviour.data_locks.data_lock_suite import P1, TABLE, Later, granted, own, share
from tests.integration.data_locks.test_data_locks import RUNTIME, open_one, options, tables
from tests.integration.matrix import Services
from tests.servers import Service
from tests.servers.locks.redis import RedisServer
from tests.servers.process import free_port
from tests.waiting import Stopwatch, eventually

from lakelock.errors import (
    CorruptTableError,
    LakelockError,
    LeaseLost,
    LockError,
    LockTimeout,
    ProviderRefused,
    ProviderUnavailable,
)
from lakelock.settings import Settings

SECRET = "hunter2"
Open = Callable[..., DataLocks]


@pytest.fixture(scope="module", params=["redis", "dynamodb", "zookeeper"])
def service(request: pytest.FixtureRequest, services: Services) -> Service:
    return services(request.param)


@pytest.fixture
def opened() -> Iterator[list[DataLocks]]:
    """Writers that are closed at the end."""
    made: list[DataLocks] = []
    yield made
    for locks in made:
        locks.close()


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def in_redis(redis: RedisServer, opened: list[DataLocks]) -> Open:
    def open_in_redis(name: str, **more: object) -> DataLocks:
        opened.append(open_one(at(redis.port), "redis-table", name, 30.0, **more))
        return opened[-1]

    return open_in_redis


def at(port: int, user: str = "") -> Service:
    return Service("redis", lambda table: f"redis://{user}127.0.0.1:{port}/0?key={table}", port)


def test_the_commit_lock_and_the_data_locks_of_a_table_do_not_meet(service: Service) -> None:
    table = f"data{next(tables)}"
    storage = MemoryStorage(RUNTIME.now_ms, name=table)
    settings = Settings.resolve(options(service, table, 30.0)).settings
    committing = open_provider(settings, storage, RUNTIME, WriterIdentity.of_this_process(RUNTIME, "committing"))
    one = open_one(service, table, "one", 30.0)
    data, commit = one.acquire(own(TABLE), wait_s=12), committing.acquire(wait_s=5)
    state = committing.inspect()
    assert state.holder is not None and state.queue == ()
    assert [shown.token for shown in one.inspect()] == [data.token]
    assert one.identity != committing.identity
    committing.release(commit)
    one.release(data)
    committing.close()
    one.close()


def test_a_forked_child_holds_nothing_and_disturbs_nobody(service: Service) -> None:
    one = open_one(service, f"data{next(tables)}", "one", 30.0)
    lease = one.acquire(own(P1), wait_s=12)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # only plain calls here: a failure must end this process, not run the rest of the suite
        told = []
        try:
            told.append("holds" if lease.lost is None else lease.lost.reason)
            one.release(lease)
            try:
                one.acquire(own(P1), wait_s=0)
                told.append("took it")
            except LakelockError as error:
                told.append(type(error).__name__)
            one.close()
        finally:
            os.write(writing, ",".join(told).encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told_by_child = pipe.read()
    os.waitpid(child, 0)
    assert told_by_child == "session-lost,LockTimeout"
    one.renew(lease)
    lease.ensure_active()
    one.release(lease)
    assert one.inspect() == ()
    one.close()


def test_a_waiter_in_redis_is_woken_by_the_release_and_not_by_its_next_look(redis: RedisServer, in_redis: Open) -> None:
    slow = {"data_locks.sleep_s": 20, "data_locks.lease_s": 60, "data_locks.renew_s": 20}
    holder, first, second = (in_redis(name, **slow) for name in ("holder", "first", "second"))
    lease = holder.acquire(own(P1), wait_s=12)
    waiting = [Later(first, own(P1), wait_s=60), Later(second, share(P1), wait_s=60)]
    with redis.client() as client:
        eventually(lambda: len(client.pubsub_channels("*granted*")) == 2)
        with Stopwatch() as watch:
            holder.release(lease)
            after = waiting[0].lease()
            assert not waiting[1].done
            first.release(after)
            second.release(waiting[1].lease())
        assert watch.took_s < 8, "half of sleep_s is the shortest pause"
        eventually(lambda: client.pubsub_channels("*granted*") == [])
    assert holder.inspect() == ()


def test_a_cluster_keeps_swaps_and_wakes(tmp_path: Path, opened: list[DataLocks]) -> None:
    # The nodes of a cluster talk to each other at a port that is 10,000 higher.
    port = next(port for port in iter(free_port, 0) if port < 55_000)
    with RedisServer(tmp_path / "node", ("--cluster-enabled", "yes"), port=port) as server, server.client() as client:
        client.execute_command("CLUSTER", "ADDSLOTS", *range(16384))
        eventually(lambda: b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO"))
        service = Service("redis", lambda table: f"redis+cluster://127.0.0.1:{port}?key={table}", port)
        one, two = (open_one(service, "in cluster", name, 30.0) for name in ("one", "two"))
        opened += [one, two]
        lease = one.acquire(own(P1), wait_s=12)
        waiting = Later(two, own(P1))
        one.renew(lease)
        one.release(lease)
        two.release(waiting.lease())
        assert one.inspect() == ()


def test_missing_replicas_keep_redis_from_granting(redis: RedisServer, in_redis: Open) -> None:
    strict = in_redis("strict", **{"lock.options.wait_replicas": 1})
    with pytest.raises(ProviderUnavailable, match="0 of 1 replicas"):
        strict.acquire(own(P1), wait_s=0.3)
    assert in_redis("lenient").inspect() == ()


def test_an_unreadable_document_in_redis_is_not_taken_for_free_and_cleared_by_force(redis: RedisServer, in_redis: Open) -> None:
    one = in_redis("one")
    before = one.acquire(own(P1), wait_s=12)
    with redis.client() as client:
        (key,) = client.keys("*data-locks")
        client.hset(key, "data", b"{")
    with pytest.raises(CorruptTableError):
        one.acquire(own(P1), wait_s=0)
    one.break_all()
    after = one.acquire(own(P1), wait_s=12)
    assert after.token > before.token
    one.release(after)


def test_a_holder_whose_locks_redis_lost_finds_out_and_tokens_still_grow(redis: RedisServer, in_redis: Open) -> None:
    one, two = in_redis("one"), in_redis("two")
    lease = one.acquire(own(P1), wait_s=12)
    with redis.client() as client:
        client.flushall()
    after = two.acquire(own(P1), wait_s=12)
    assert after.token > lease.token
    with pytest.raises(LeaseLost):
        one.renew(lease)
    one.release(lease)
    two.renew(after)
    two.release(after)


def test_passwords_of_redis_are_in_no_message_and_no_identity(tmp_path: Path, opened: list[DataLocks]) -> None:
    with RedisServer(tmp_path, ("--requirepass", SECRET), password=SECRET) as server:
        right, wrong = (open_one(at(server.port, f":{word}@"), "t", "one", 30.0) for word in (SECRET, f"not-{SECRET}"))
        opened += [right, wrong]
        lease = right.acquire(own(P1), wait_s=12)
        right.release(lease)
        with pytest.raises(ProviderRefused, match="refused") as refused:
            wrong.acquire(own(P1), wait_s=5)
        assert SECRET not in str(refused.value) + right.identity + repr(right) + repr(lease)


def test_an_item_in_dynamodb_is_compressed_and_never_outgrows_what_dynamodb_takes(dynamodb: Service) -> None:
    table = f"data{next(tables)}"
    one, two = (open_one(dynamodb, table, name, 30.0) for name in ("one", "two"))
    # Random names, which cannot be compressed to less than half. (moto counts an attribute that is replaced twice.)
    many = [Resource.of(f"key={RUNTIME.uuid()}{RUNTIME.uuid()}") for _ in range(3_000)]
    lease = one.acquire(own(*many), wait_s=20)
    with pytest.raises(LockError, match="400 KB") as refused:
        two.acquire(own(*(Resource.of(f"key={RUNTIME.uuid()}{RUNTIME.uuid()}") for _ in range(9_000))), wait_s=20)
    assert "data_locks.escalate_above" in refused.value.hint and not isinstance(refused.value, LockTimeout)
    one.renew(lease)
    assert granted(two, own(many[3])) is None
    one.release(lease)
    two.release(two.acquire(own(many[3]), wait_s=12))
    one.close()
    two.close()


def test_a_missing_table_in_dynamodb_is_named_with_how_to_make_it(dynamodb: Service) -> None:
    missing = {"lock.provider": "dynamodb://no_such_table/key", "lock.options.create_table": "false"}
    one = open_one(dynamodb, "t", "one", 30.0, **missing)
    with pytest.raises(ProviderRefused, match="no_such_table") as refused:
        one.acquire(own(P1), wait_s=0)
    assert "create_table" in refused.value.hint
