"""What lost replies, late requests and throttling can do to the DynamoDB lock, in the time of the test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from threading import Thread

import pytest
from tests.api import EventKind, Lease
from tests.integration.dynamodb.dynamodb_world import (
    LEASE_S,
    World,
    take,
)
from tests.servers.locks.dynamodb_proxy import Rule, Trouble, operation, updates

from lakelock.errors import (
    LeaseLost,
    LockError,
    LockTimeout,
    ProviderUnavailable,
)


@pytest.mark.parametrize("lost", ["REMOVE #ir, #tk", "ADD #tk :n", "SET #rvn = :rvn, #tk = :tk"])
def test_each_step_of_taking_an_absent_item_survives_a_lost_reply(troubled: World, lost: str) -> None:
    world, proxy = troubled, troubled.proxy
    assert proxy is not None
    earlier = world.writer("looks").inspect().token
    world.request("delete_item", Key={"key": {"S": world.key}})
    rule = Rule(updates(lost), "lost reply")
    proxy.plan = [rule]
    provider = world.writer("one", proxied=True)
    lease = take(provider, wait_s=12)
    assert rule.times == 0
    assert lease.token > earlier and world.writer("looks").inspect().token == lease.token
    provider.renew(lease)
    provider.release(lease)
    assert take(world.writer("two")).token > lease.token


def test_an_adopted_grant_keeps_the_deadline_of_its_request(troubled: World) -> None:
    world, proxy = troubled, troubled.proxy
    assert proxy is not None
    proxy.plan = [Rule(updates("ADD #tk :one"), "lost reply", meanwhile=lambda: world.runtime.advance(6))]
    assert take(world.writer("one", proxied=True), wait_s=30).remaining_s() < LEASE_S - 5.9


def test_a_grant_that_is_over_when_it_is_found_is_given_back_and_a_new_one_taken(troubled: World) -> None:
    world, proxy = troubled, troubled.proxy
    assert proxy is not None
    proxy.plan = [Rule(updates("ADD #tk :one"), "lost reply", meanwhile=lambda: world.runtime.advance(LEASE_S))]
    lease = take(world.writer("one", proxied=True), wait_s=60)
    assert lease.remaining_s() > LEASE_S - 1


def test_a_grant_request_that_arrives_late_is_refused_while_the_lock_is_held(troubled: World) -> None:
    world, proxy = troubled, troubled.proxy
    assert proxy is not None
    proxy.plan = [Rule(updates("ADD #tk :one"), "late")]
    provider = world.writer("one", proxied=True)
    lease = take(provider, wait_s=12)
    assert proxy.deliver() == [400]
    provider.renew(lease)
    assert world.writer("looks").inspect().token == lease.token


def test_a_grant_request_that_arrives_after_its_writer_gave_up_holds_others_up_for_one_lease_only(troubled: World) -> None:
    world, proxy = troubled, troubled.proxy
    assert proxy is not None
    proxy.plan = [Rule(updates("ADD #tk :one"), "late")]
    with pytest.raises(ProviderUnavailable):
        take(world.writer("one", proxied=True))
    assert proxy.deliver() == [200]
    ghost = world.writer("looks").inspect().token
    assert take(world.writer("two"), wait_s=LEASE_S + 1).token > ghost


def test_a_renewal_whose_reply_was_lost_does_not_lose_the_lock(troubled: World) -> None:
    world, proxy = troubled, troubled.proxy
    assert proxy is not None
    provider = world.writer("one", proxied=True)
    lease = take(provider)
    proxy.plan = [Rule(updates("SET #ld = :ld, #rvn"), "lost reply")]
    provider.renew(lease)
    lease.ensure_active()
    assert proxy.operations[-2:] == ["UpdateItem"] * 2


def test_a_release_after_the_lease_is_over_is_not_repeated(troubled: World) -> None:
    world, proxy = troubled, troubled.proxy
    assert proxy is not None
    provider = world.writer("one", proxied=True)
    lease = take(provider)
    before = len(proxy.requests)
    proxy.plan = [Rule(operation("UpdateItem"), "lost request", times=99)]
    world.runtime.advance(LEASE_S)
    provider.release(lease)
    assert len(proxy.requests) == before + 1
    assert world.kinds() == [EventKind.ALERT]


@pytest.mark.parametrize("seed", range(3))
def test_no_mix_of_lost_and_late_requests_doubles_a_grant_or_keeps_the_lock_for_ever(troubled: World, seed: int) -> None:
    world, proxy, random = troubled, troubled.proxy, Random(seed)
    assert proxy is not None
    writers = [world.writer(name, proxied=True, lock__poll_s=2) for name in ("one", "two")]
    tokens, found = [], 0

    def a_third(*_: object) -> bool:
        return random.random() < 1 / 3

    for _ in range(8):
        troubles: list[Trouble] = ["lost reply", "lost request", "late"]
        proxy.plan = [Rule(a_third, random.choice(troubles), times=3) for _ in range(2)]
        if random.random() < 0.3:
            world.request("delete_item", Key={"key": {"S": world.key}})  # as Java leaves it
        provider, other = random.sample(writers, 2)
        lease = take(provider, wait_s=10 * LEASE_S)
        tokens.append(lease.token)
        found += len(proxy.late)
        proxy.deliver()
        if lease.lost is None:
            with pytest.raises((LockTimeout, ProviderUnavailable)):
                take(other)
            proxy.deliver()
        if random.random() < 0.7:
            provider.release(lease)
        else:
            world.runtime.advance(LEASE_S)
            provider.release(lease)
    assert tokens == sorted(set(tokens)) and found


def test_throttling_is_waited_out_within_the_bound(troubled: World) -> None:
    world, proxy = troubled, troubled.proxy
    assert proxy is not None
    provider = world.writer("one", proxied=True)
    proxy.plan = [Rule(lambda *_: True, "throttled", times=6)]
    lease = take(provider, wait_s=10)
    proxy.plan = [Rule(lambda *_: True, "throttled", times=2)]
    provider.renew(lease)
    proxy.plan = [Rule(lambda *_: True, "throttled", times=2)]
    provider.release(lease)
    assert world.writer("looks").inspect().holder is None
    proxy.plan = [Rule(lambda *_: True, "throttled", times=999)]
    with pytest.raises(ProviderUnavailable, match="ProvisionedThroughputExceeded") as refused:
        take(provider, wait_s=5)
    assert "capacity" in refused.value.hint
    assert world.runtime.monotonic_s() < 20


def test_a_break_by_force_hits_a_holder_that_renews_just_now_and_never_a_later_grant(troubled: World) -> None:
    world, proxy = troubled, troubled.proxy
    assert proxy is not None
    holder, operator = world.writer("holder"), world.writer("operator", proxied=True)
    lease = take(holder)
    proxy.plan = [Rule(operation("GetItem"), None, meanwhile=lambda: holder.renew(lease))]
    operator.break_lock(lease.token, force=True)
    with pytest.raises(LeaseLost):
        holder.renew(lease)
    holder.release(lease)
    lease = take(holder)
    later: list[Lease] = []

    def changes_hands() -> None:
        holder.release(lease)
        later.append(take(world.writer("later")))

    proxy.plan = [Rule(operation("GetItem"), None, meanwhile=changes_hands)]
    with pytest.raises(LockError, match="changed hands"):
        operator.break_lock(lease.token, force=True)
    assert world.writer("looks").inspect().token == later[0].token


def test_a_break_without_force_watches_the_holder_for_its_lease_and_breaks_a_dead_one(world: World) -> None:
    lease = take(world.writer("dead"))
    world.runtime.advance(10 * LEASE_S)
    operator, before_s = world.writer("operator"), world.runtime.monotonic_s()
    operator.break_lock(lease.token)
    assert LEASE_S < world.runtime.monotonic_s() - before_s < LEASE_S * 1.1
    assert operator.inspect().holder is None
    operator.break_lock(lease.token)


def test_a_break_without_force_is_refused_as_soon_as_the_holder_renews(world: World) -> None:
    holder = world.writer("holder")
    lease = take(holder)
    operator, before_s = world.writer("operator"), world.runtime.monotonic_s()
    beat = world.runtime.every(LEASE_S / 3, lambda: holder.renew(lease), name="beat")  # type: ignore[arg-type, return-value]
    with pytest.raises(LockError, match=r"is held by holder .*, which renewed its lease just now"):
        operator.break_lock(lease.token)
    beat.stop()
    assert world.runtime.monotonic_s() - before_s < LEASE_S / 2
    holder.renew(lease)


def test_a_break_without_force_ends_when_the_lock_is_given_back_or_changes_hands(world: World) -> None:
    holder, operator = world.writer("holder"), world.writer("operator")
    lease = take(holder)
    ends = world.runtime.every(2.0, lambda: holder.release(lease), name="ends")
    operator.break_lock(lease.token)
    ends.stop()
    first = take(holder)

    def changes_hands() -> None:
        if first.lost is None:
            holder.release(first)
            take(world.writer("later"))

    changes = world.runtime.every(2.0, changes_hands, name="changes hands")
    with pytest.raises(LockError, match="another grant has followed"):
        operator.break_lock(first.token)
    changes.stop()


def test_a_table_that_was_just_created_may_not_be_known_yet(troubled: World) -> None:
    """DescribeTable is eventually consistent."""
    assert troubled.proxy is not None
    uri = f"dynamodb://new-{os.getpid()}/flights"
    provider = troubled.writer("one", proxied=True, lock__provider=uri, lock__options__create_table=True)
    troubled.proxy.plan = [Rule(operation("DescribeTable"), "unknown table", times=2)]
    provider.release(take(provider, wait_s=30))
    assert troubled.proxy.operations.count("CreateTable") == 1


@contextmanager
def answering(content_type: str, body: bytes) -> Iterator[str]:
    """The URL of a server that gives each request the same answer."""

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-type", content_type)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@pytest.mark.parametrize(
    ("content_type", "body"),
    [("text/html", b"<html>sign in</html>"), ("application/json", b"{}"), ("application/x-amz-json-1.0", b"[1]")],
)
def test_an_answer_that_is_not_dynamodbs_is_no_answer(world: World, content_type: str, body: bytes) -> None:
    with answering(content_type, body) as url:
        provider = world.writer("one", lock__options__endpoint_url=url)
        asked: list[Callable[[], object]] = [provider.probe, lambda: take(provider)]
        # An object without anything in it is also what DynamoDB says of an item that is not there.
        for ask in asked if body == b"{}" else [*asked, provider.inspect]:
            with pytest.raises(ProviderUnavailable, match="is not DynamoDB") as failed:
                ask()
            assert "lock.options.endpoint_url" in failed.value.hint
        provider.close()
