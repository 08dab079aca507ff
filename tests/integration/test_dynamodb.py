"""The DynamoDB lock on a real service (dynalite, or moto without Node). The test holds time, where it can."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest

from lakelock.clock import Runtime, SystemRuntime
from lakelock.errors import (
    LakelockError,
    LeaseLost,
    LockError,
    LockTimeout,
    ProviderMismatch,
    ProviderUnavailable,
    SettingsError,
)
from lakelock.events import Event, EventKind, Events
from lakelock.identity import WriterIdentity
from lakelock.occ.coordinator import Coordinator
from lakelock.providers import Lease, LockProvider, open_provider, renewing
from lakelock.providers.dynamodb import DynamodbLockProvider
from lakelock.providers.dynamodb_place import place_of
from lakelock.settings import Settings
from lakelock.storage_local import LocalStorage
from lakelock.storage_memory import MemoryStorage
from lakelock.storage_open import open_storage
from lakelock.testing import ManualRuntime
from lakelock.testing.servers.dynamodb import REGION, TABLE, dynamodb_server
from lakelock.testing.servers.dynamodb_proxy import Proxy, Rule, Trouble, operation, proxy_to, updates
from lakelock.testing.servers.s3 import S3_OPTIONS
from lakelock.testing.servers.service import Service
from tests.behaviour.tables import insert, new_table, put_file
from tests.behaviour.tables import writer as table_writer

LEASE_S = 15.0
UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
JAVA_OWNER = "vm06b9b046-6485-421f-8b2c-d896376ddda7"
_numbers = count(1)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with dynamodb_server(tmp_path_factory.mktemp("dynamodb")) as running:
        yield running


@pytest.fixture
def proxy(service: Service) -> Iterator[Proxy]:
    with proxy_to(service.port) as between:
        yield between


@cache
def plain_client(url: str) -> Any:
    import boto3

    return boto3.session.Session().client("dynamodb", endpoint_url=url, region_name=REGION)


@dataclass
class World:
    """One lock item, one clock, and any number of writers."""

    service: Service
    key: str
    runtime: ManualRuntime = field(default_factory=ManualRuntime)
    seen: list[Event] = field(default_factory=list)
    proxy: Proxy | None = None

    @property
    def uri(self) -> str:
        return self.service.url(self.key)

    def writer(self, name: str, *, runtime: Runtime | None = None, **options: object) -> LockProvider:
        """A writer; `proxied=True` sends its requests through the proxy."""
        clock = runtime or self.runtime
        given: dict[str, object] = {"lock.provider": self.uri, "lock.lease_s": LEASE_S, **self.service.options}
        if options.pop("proxied", False):
            assert self.proxy is not None
            given["dynamodb.endpoint_url"] = self.proxy.url
        given |= {key.replace("__", "."): value for key, value in options.items()}
        settings = Settings.resolve(given).settings
        writer = WriterIdentity(clock.uuid(), name, "vm", 1, "user")
        storage = MemoryStorage(self.runtime.now_ms, name=self.key)
        return open_provider(settings, storage, clock, writer, Events((self.seen.append,)))

    def kinds(self) -> list[EventKind]:
        return [event.kind for event in self.seen]

    def request(self, name: str, **request: Any) -> dict[str, Any]:
        """A request of the plain driver: what Java, or an operator, would send."""
        reply: dict[str, Any] = getattr(plain_client(self.service.options["dynamodb.endpoint_url"]), name)(
            **{"TableName": TABLE, **request}
        )
        return reply

    def item(self) -> dict[str, Any] | None:
        item: dict[str, Any] | None = self.request("get_item", Key={"key": {"S": self.key}}, ConsistentRead=True).get("Item")
        return item


@pytest.fixture
def world(service: Service) -> World:
    return World(service, f"flights-{os.getpid()}-{next(_numbers)}")


@pytest.fixture
def troubled(world: World, proxy: Proxy) -> World:
    """A lock that was used before, and a proxy in front of the service."""
    world.proxy = proxy
    provider = world.writer("earlier")
    provider.release(take(provider))
    return world


def take(provider: LockProvider, wait_s: float = 0.0) -> Lease:
    return provider.acquire(wait_s=wait_s)


# --- the item, as Java Hudi's lock client has it


def java_takes(world: World, condition: str = "attribute_not_exists(#pk)", lease_ms: int = 3000, **values: Any) -> None:
    """Java's PutItem, which replaces the whole item."""
    names = {"#pk": "key"} | ({"#ir": "isReleased"} if "#ir" in condition else {})
    names |= {"#rvn": "recordVersionNumber"} if "#rvn" in condition else {}
    world.request(
        "put_item",
        Item={
            "key": {"S": world.key},
            "ownerName": {"S": JAVA_OWNER},
            "leaseDuration": {"S": str(lease_ms)},
            "recordVersionNumber": {"S": world.runtime.uuid()},
        },
        ConditionExpression=condition,
        ExpressionAttributeNames=names,
        **({"ExpressionAttributeValues": values} if values else {}),
    )


def java_renews_or_deletes(world: World, *, delete: bool) -> None:
    """Java's heartbeat or release, on its condition."""
    item = world.item()
    assert item is not None
    request: dict[str, Any] = {
        "Key": {"key": {"S": world.key}},
        "ConditionExpression": "attribute_exists(#pk) AND #rvn = :rvn AND #on = :on",
        "ExpressionAttributeNames": {"#pk": "key", "#rvn": "recordVersionNumber", "#on": "ownerName"},
        "ExpressionAttributeValues": {":rvn": item["recordVersionNumber"], ":on": {"S": JAVA_OWNER}},
    }
    if delete:
        world.request("delete_item", **request)
        return
    request["ExpressionAttributeNames"]["#ld"] = "leaseDuration"
    request["ExpressionAttributeValues"] |= {":ld": item["leaseDuration"], ":newRvn": {"S": world.runtime.uuid()}}
    world.request("update_item", UpdateExpression="SET #ld = :ld, #rvn = :newRvn", **request)


def test_the_item_has_the_attributes_that_java_reads_in_every_state(world: World) -> None:
    provider = world.writer("one")
    states = []
    for _ in range(2):  # new, and taken again after a release
        lease = take(provider)
        states.append(world.item())
        provider.renew(lease)
        states.append(world.item())
        provider.release(lease)
        states.append(world.item())
    for item in states:
        assert item is not None
        assert item["key"] == {"S": world.key} and item["leaseDuration"] == {"S": "15000"}
        assert re.fullmatch(f"vm-{UUID}", item["ownerName"]["S"])
        assert re.fullmatch(UUID, item["recordVersionNumber"]["S"])
    assert [item.get("isReleased") for item in states if item] == [None, None, {"S": "1"}] * 2
    versions = [item["recordVersionNumber"]["S"] for item in states if item]
    assert len(set(versions)) == 4, "a new version with every grant and renewal"
    assert set(states[0] or {}) == {
        "key", "ownerName", "leaseDuration", "recordVersionNumber", "token", "tokenLimit", "writer"
    }  # fmt: skip


def test_java_is_kept_out_while_held_and_takes_the_lock_after_release(world: World) -> None:
    provider = world.writer("one")
    lease = take(provider)
    for condition, values in (
        ("attribute_not_exists(#pk)", {}),
        ("attribute_exists(#pk) AND #ir = :ir", {":ir": {"S": "1"}}),
    ):
        with pytest.raises(Exception, match="ConditionalCheckFailed"):
            java_takes(world, condition, **values)
    provider.release(lease)
    java_takes(world, "attribute_exists(#pk) AND #ir = :ir", **{":ir": {"S": "1"}})
    with pytest.raises(LockTimeout, match=f"another Hudi writer .*{JAVA_OWNER}"):
        take(provider)


def test_java_takes_over_a_dead_holder_and_the_holder_finds_out(world: World) -> None:
    provider = world.writer("one")
    lease = take(provider)
    item = world.item()
    assert item is not None
    java_takes(world, "attribute_exists(#pk) AND #rvn = :rvn", **{":rvn": item["recordVersionNumber"]})
    with pytest.raises(LeaseLost) as lost:
        provider.renew(lease)
    assert lost.value.details["reason"] == "taken-over"
    provider.release(lease)
    java_renews_or_deletes(world, delete=True)


def test_a_dead_java_holder_is_replaced_after_the_lease_in_its_item_and_a_live_one_never(world: World) -> None:
    java_takes(world, lease_ms=60_000)
    provider = world.writer("one")
    beat = world.runtime.every(20.0, lambda: java_renews_or_deletes(world, delete=False), name="java")
    with pytest.raises(LockTimeout):
        take(provider, wait_s=300)
    beat.stop()
    before_s = world.runtime.monotonic_s()
    with pytest.raises(LockTimeout):
        take(provider, wait_s=39)
    lease = take(provider, wait_s=60)
    assert 40 < world.runtime.monotonic_s() - before_s < 62
    assert lease.token > 0
    state = world.writer("other").inspect()
    assert state.holder is not None and state.holder.writer is not None and state.token == lease.token


def test_the_token_grows_although_java_deletes_the_item_that_carries_it(world: World) -> None:
    tokens = []
    for _ in range(3):
        provider = world.writer("one")
        for _ in range(2):
            lease = take(provider)
            tokens.append(lease.token)
            provider.release(lease)
        java_takes(world, "attribute_exists(#pk) AND #ir = :ir", **{":ir": {"S": "1"}})
        assert world.writer("looks").inspect().token == 0
        java_renews_or_deletes(world, delete=True)
        assert world.item() is None
        assert world.writer("looks").inspect().holder is None
    assert tokens == sorted(set(tokens)) and len(tokens) == 6


@pytest.mark.parametrize("asleep_after", ["looking", "fetching a token"])
def test_a_writer_that_slept_while_the_item_was_absent_has_no_token_below_those_of_the_meantime(
    troubled: World, asleep_after: str
) -> None:
    """The item is absent before and after, so its absence proves nothing: the token must be fetched while holding."""
    world, proxy = troubled, troubled.proxy
    assert proxy is not None
    world.request("delete_item", Key={"key": {"S": world.key}})
    between: list[int] = []

    def others_hold_it_and_java_deletes() -> None:
        other = world.writer("other")
        with suppress(LockTimeout):
            lease = take(other)
            between.append(lease.token)
            other.release(lease)
            java_takes(world, "attribute_exists(#pk) AND #ir = :ir", **{":ir": {"S": "1"}})
            java_renews_or_deletes(world, delete=True)

    concerns = operation("GetItem") if asleep_after == "looking" else updates("ADD #tk :n")
    proxy.plan = [Rule(concerns, None, meanwhile=others_hold_it_and_java_deletes)]
    lease = take(world.writer("one", proxied=True, dynamodb__read_timeout_s=30))
    assert proxy.plan[0].times == 0 and all(lease.token > token for token in between)
    assert bool(between) == (asleep_after == "looking"), "who fetches a token holds the lock"


def test_a_block_of_tokens_that_is_used_up_is_followed_by_a_higher_one(world: World) -> None:
    provider = world.writer("one")
    lease = take(provider)
    provider.release(lease)
    names, values = {"#tk": "token"}, {":end": {"N": str(lease.token + 999_999 - 1)}}
    world.request(
        "update_item",
        Key={"key": {"S": world.key}},
        UpdateExpression="SET #tk = :end",
        ExpressionAttributeNames=names,
        ExpressionAttributeValues=values,
    )
    tokens = []
    for _ in range(3):
        lease = take(provider)
        tokens.append(lease.token)
        provider.release(lease)
    assert tokens == [1_000_000, 1_000_001, 1_000_002]


def test_an_item_that_no_lock_client_wrote_is_never_taken_for_free(world: World) -> None:
    world.writer("first").probe()
    world.request("put_item", Item={"key": {"S": world.key}, "ownerName": {"S": "somebody"}})
    with pytest.raises(LockError, match="cannot be read as a lock"):
        take(world.writer("one"), wait_s=60)


def test_attributes_that_others_keep_in_the_item_stay(world: World) -> None:
    world.writer("first").probe()
    item = {"key": world.key, "ownerName": "x", "leaseDuration": "3000", "recordVersionNumber": "v", "isReleased": "1"}
    world.request("put_item", Item={name: {"S": value} for name, value in item.items()} | {"data": {"B": b"theirs"}})
    provider = world.writer("one")
    provider.release(take(provider))
    kept = world.item()
    assert kept is not None and kept["data"]["B"] == b"theirs"


# --- what it costs


def cost(proxy: Proxy, provider: LockProvider) -> list[str]:
    proxy.requests.clear()
    provider.release(take(provider))
    return proxy.operations


def test_taking_and_giving_back_costs_two_requests_alone_and_in_turns(troubled: World) -> None:
    world, proxy = troubled, troubled.proxy
    assert proxy is not None
    one, two = world.writer("one", proxied=True), world.writer("two", proxied=True)
    assert [cost(proxy, provider) for provider in (one, one, two, one, two)] == [["UpdateItem"] * 2] * 5


def test_after_java_the_token_costs_four_requests_more(troubled: World) -> None:
    world, proxy = troubled, troubled.proxy
    assert proxy is not None
    world.request("delete_item", Key={"key": {"S": world.key}})
    provider = world.writer("one", proxied=True)
    assert cost(proxy, provider) == ["UpdateItem", "GetItem", "UpdateItem", "UpdateItem", "UpdateItem", "UpdateItem"]
    assert cost(proxy, provider) == ["UpdateItem"] * 2


def test_a_waiter_only_reads_while_the_lock_is_held(troubled: World) -> None:
    world, proxy = troubled, troubled.proxy
    assert proxy is not None
    take(world.writer("holder"))
    with pytest.raises(LockTimeout):
        take(world.writer("waiter", proxied=True), wait_s=LEASE_S - 1)
    assert proxy.operations[0] == "UpdateItem" and set(proxy.operations[1:]) == {"GetItem"}
    assert len(proxy.operations) < 60


# --- replies that get lost, requests that arrive late, throttling


def test_a_grant_whose_reply_was_lost_is_adopted(troubled: World) -> None:
    world, proxy = troubled, troubled.proxy
    assert proxy is not None
    proxy.plan = [Rule(updates("ADD #tk :one"), "lost reply")]
    provider = world.writer("one", proxied=True)
    lease = take(provider, wait_s=5)
    lease.ensure_active()
    state = world.writer("looks").inspect()
    assert state.holder is not None and (state.holder.owner, state.token) == (lease.grant, lease.token)
    with pytest.raises(LockTimeout):
        take(world.writer("two"))
    provider.renew(lease)
    provider.release(lease)
    assert take(world.writer("two")).token > lease.token


@pytest.mark.parametrize("lost", ["REMOVE #ir, #tk", "ADD #tk :n", "SET #rvn = :rvn, #tk = :tk"])
def test_each_step_of_taking_an_absent_item_survives_a_lost_reply(troubled: World, lost: str) -> None:
    world, proxy = troubled, troubled.proxy
    assert proxy is not None
    earlier = world.writer("looks").inspect().token
    world.request("delete_item", Key={"key": {"S": world.key}})
    rule = Rule(updates(lost), "lost reply")
    proxy.plan = [rule]
    provider = world.writer("one", proxied=True)
    lease = take(provider, wait_s=5)
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


def test_giving_up_takes_back_a_grant_that_nobody_heard_of(troubled: World) -> None:
    world, proxy = troubled, troubled.proxy
    assert proxy is not None
    proxy.plan = [Rule(updates("ADD #tk :one"), "lost reply")]
    with pytest.raises(ProviderUnavailable):
        take(world.writer("one", proxied=True))
    take(world.writer("two"))


def test_a_grant_request_that_arrives_late_is_refused_while_the_lock_is_held(troubled: World) -> None:
    world, proxy = troubled, troubled.proxy
    assert proxy is not None
    proxy.plan = [Rule(updates("ADD #tk :one"), "late")]
    provider = world.writer("one", proxied=True)
    lease = take(provider, wait_s=5)
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


def test_a_release_whose_reply_was_lost_frees_the_lock_and_raises_nothing(troubled: World) -> None:
    world, proxy = troubled, troubled.proxy
    assert proxy is not None
    provider = world.writer("one", proxied=True)
    lease = take(provider)
    proxy.plan = [Rule(updates("SET #ir = :ir"), "lost reply")]
    provider.release(lease)
    assert world.kinds() == []
    take(world.writer("two"))


def test_a_release_that_cannot_be_sent_is_told_and_raises_nothing(troubled: World) -> None:
    world, proxy = troubled, troubled.proxy
    assert proxy is not None
    provider = world.writer("one", proxied=True)
    lease = take(provider)
    proxy.plan = [Rule(operation("UpdateItem"), "lost request", times=99)]
    provider.release(lease)
    assert world.kinds() == [EventKind.ALERT]
    take(world.writer("two"), wait_s=2 * LEASE_S)


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


def test_a_dead_holder_may_be_broken_without_force_once_its_lease_was_watched(world: World) -> None:
    lease = take(world.writer("dead"))
    operator = world.writer("operator")
    with pytest.raises(LockError, match=r"dead .*15 s more"):
        operator.break_lock(lease.token)
    world.runtime.advance(LEASE_S * 1.02)
    operator.break_lock(lease.token)
    assert operator.inspect().holder is None


# --- the service goes away


def test_a_service_that_is_gone_is_unreachable_within_the_wait_and_the_lease_is_lost_at_its_deadline(
    troubled: World, service: Service
) -> None:
    world = troubled
    provider = world.writer("one")
    lease = take(provider)
    service.stop()
    try:
        with renewing(provider, lease, world.runtime, 5.0, Events((world.seen.append,))):
            world.runtime.advance(LEASE_S - 0.5)
            assert lease.lost is None
            world.runtime.advance(5)
        assert lease.lost is not None and lease.lost.reason == "unreachable"
        assert world.kinds().count(EventKind.LEASE_LOST) == 1
        with pytest.raises(ProviderUnavailable) as refused:
            take(world.writer("two"), wait_s=2)
        assert "dynamodb.endpoint_url" in refused.value.hint
    finally:
        service.start()
    assert take(world.writer("two"), wait_s=2 * LEASE_S).token > lease.token


def test_a_restart_in_the_middle_keeps_the_lock_with_its_holder(troubled: World, service: Service) -> None:
    world = troubled
    provider = world.writer("one")
    lease = take(provider)
    with renewing(provider, lease, world.runtime, 5.0):
        service.stop()
        world.runtime.advance(6)
        service.start()
        world.runtime.advance(30)
        lease.ensure_active()
        with pytest.raises(LockTimeout):
            take(world.writer("two"), wait_s=5)
    provider.release(lease)
    assert take(world.writer("two")).token == lease.token + 1


def test_a_service_that_hangs_is_given_up_in_bounded_time(world: World, service: Service) -> None:
    clock = SystemRuntime()
    provider = world.writer("one", runtime=clock, dynamodb__read_timeout_s=0.3)
    provider.release(take(provider))
    service.pause()
    try:
        began_s = clock.monotonic_s()
        with pytest.raises(ProviderUnavailable, match="gave no answer"):
            provider.acquire(wait_s=0.5)
        assert clock.monotonic_s() - began_s < 3
    finally:
        service.resume()
    provider.release(provider.acquire(wait_s=LEASE_S * 2))


def test_a_forked_child_does_not_hold_the_lock_and_connects_anew(world: World) -> None:
    clock = SystemRuntime()
    provider = world.writer("parent", runtime=clock)
    lease = take(provider)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # only plain calls here: a failure must end this process, not run the rest of the suite
        answers = []
        try:
            answers.append("holds" if lease.lost is None else lease.lost.reason)
            provider.release(lease)
            provider.close()
            try:
                provider.acquire(wait_s=0.1)
                answers.append("took it")
            except LakelockError as error:
                answers.append(type(error).__name__)
        finally:
            os.write(writing, ",".join(answers).encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    assert told == "session-lost,LockTimeout"
    provider.renew(lease)
    provider.release(lease)


# --- the table, its place, and what a person gets to see


def named(world: World, **given: object) -> DynamodbLockProvider:
    provider = world.writer("one", **given)
    assert isinstance(provider, DynamodbLockProvider)
    return provider


def test_a_missing_table_is_created_only_where_the_settings_say_so(world: World) -> None:
    name = f"locks-{os.getpid()}"
    uri = f"dynamodb://{name}/flights"
    with pytest.raises(ProviderUnavailable, match="ResourceNotFound") as refused:
        named(world, lock__provider=uri, dynamodb__create_table=False).probe()
    assert f"aws dynamodb create-table --table-name {name}" in refused.value.hint
    assert "dynamodb.create_table" in refused.value.hint
    provisioned = {"dynamodb__billing_mode": "PROVISIONED", "dynamodb__read_capacity": 7, "dynamodb__write_capacity": 8}
    provider = named(world, lock__provider=uri, **provisioned)
    provider.release(take(provider, wait_s=30))
    table = world.request("describe_table", TableName=name)["Table"]
    assert table["KeySchema"] == [{"AttributeName": "key", "KeyType": "HASH"}]
    throughput = table["ProvisionedThroughput"]
    assert (throughput["ReadCapacityUnits"], throughput["WriteCapacityUnits"]) == (7, 8)
    named(world, lock__provider=uri, dynamodb__create_table=False).probe()


def test_a_table_with_another_key_is_refused_by_the_probe(world: World) -> None:
    name = f"other-{os.getpid()}"
    world.request(
        "create_table",
        TableName=name,
        KeySchema=[{"AttributeName": "tablePath", "KeyType": "HASH"}, {"AttributeName": "fileName", "KeyType": "RANGE"}],
        AttributeDefinitions=[{"AttributeName": one, "AttributeType": "S"} for one in ("tablePath", "fileName")],
        BillingMode="PAY_PER_REQUEST",
    )
    with pytest.raises(LockError, match=r"tablePath S \(HASH\), fileName S \(RANGE\)"):
        named(world, lock__provider=f"dynamodb://{name}/flights").probe()


def test_the_identity_tells_regions_and_foreign_endpoints_apart(world: World) -> None:
    here = named(world)
    assert here.identity == f"{world.uri}?region=us-east-1&endpoint=127.0.0.1:{world.service.port}"
    eu = {"lock__provider": "dynamodb://locks/a%20b", "dynamodb__region": "eu-west-1"}
    aws = named(world, **eu, dynamodb__endpoint_url="")
    assert aws.identity == "dynamodb://locks/a%20b?region=eu-west-1"
    inside = named(world, **eu, dynamodb__endpoint_url="https://vpce-1.dynamodb.eu-west-1.vpce.amazonaws.com")
    assert inside.identity == aws.identity


@pytest.mark.parametrize(
    "uri", ["dynamodb:", "dynamodb://AKIAKEY:s3cret@locks/x", "dynamodb://ab/x", "dynamodb://locks/x?region=a"]
)
def test_a_uri_that_is_not_table_and_key_is_refused_without_showing_it(world: World, uri: str) -> None:
    with pytest.raises(SettingsError, match="TABLE/PARTITION-KEY") as refused:
        named(world, lock__provider=uri)
    assert "s3cret" not in str(refused.value) + repr(refused.value.details)


def test_without_a_partition_key_it_is_the_name_of_the_table_as_in_java(world: World) -> None:
    with pytest.raises(SettingsError, match="which item"):
        named(world, lock__provider=f"dynamodb://{TABLE}")
    storage = MemoryStorage(world.runtime.now_ms, name="named")
    storage.put(".hoodie/hoodie.properties", b"#Properties\nhoodie.table.name=trips\nhoodie.table.version=9\n")
    settings = Settings.resolve({"lock.provider": f"dynamodb://{TABLE}", **world.service.options}).settings
    writer = WriterIdentity.of_this_process(world.runtime)
    assert open_provider(settings, storage, world.runtime, writer).identity.startswith(f"dynamodb://{TABLE}/trips?")


def test_credentials_are_never_shown(world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    secret = "not-to-be-seen"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    monkeypatch.setenv("AWS_SESSION_TOKEN", secret)
    provider = named(world, dynamodb__endpoint_url="http://127.0.0.1:1")
    with pytest.raises(ProviderUnavailable) as refused:
        take(provider)
    shown = f"{refused.value!s}{json.dumps(refused.value.as_dict(), default=str)}{provider!r}{provider.identity}{caplog.text}"
    assert secret not in shown


def test_missing_credentials_and_a_missing_region_say_what_to_do(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(ProviderUnavailable, match="NoCredentialsError") as refused:
        take(named(world))
    assert "AWS_PROFILE" in refused.value.hint
    with pytest.raises(SettingsError) as unset:
        take(named(world, dynamodb__region=""))
    assert "AWS_REGION" in unset.value.hint


def test_without_the_driver_the_package_to_install_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "boto3", None)
    with pytest.raises(ProviderUnavailable) as refused:
        take(named(world))
    assert refused.value.hint == "pip install 'lakelock[dynamodb]'"


@pytest.mark.parametrize("uri", ["s3://bkt/warehouse/tbl", "s3a://bkt/warehouse/tbl/"])
def test_the_implicit_key_is_the_hash_of_the_path_that_java_takes(uri: str) -> None:
    assert place_of(f"dynamodb://{TABLE}?implicit=true", open_storage(uri, S3_OPTIONS)) == (TABLE, "0F4477E0DC06AAF2")


def test_the_implicit_key_of_a_local_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="several locks"):
        place_of("dynamodb://hudi_locks?implicit=true", LocalStorage(str(tmp_path)))


# --- a table that is guarded by it


def guarded(world: World, storage: LocalStorage, name: str, **options: object) -> Coordinator:
    given = {"lock.provider": world.uri, "lock.lease_s": 3, "lock.renew_s": 0.5, **world.service.options}
    settings = Settings.resolve({**given, **{key.replace("__", "."): value for key, value in options.items()}}).settings
    return table_writer(storage, settings, name)


def test_a_commit_whose_lock_service_is_gone_changes_nothing_and_the_next_one_goes_through(
    world: World, service: Service, tmp_path: Path
) -> None:
    storage = LocalStorage(str(tmp_path))
    new_table(storage)
    first = guarded(world, storage, "first", lock__wait_s=1)
    insert(first, storage, "1", "a")
    with pytest.raises(ProviderMismatch):
        insert(guarded(world, storage, "elsewhere", lock__provider=f"{world.uri}-2"), storage, "1", "x")
    with first.begin("INSERT") as tx:
        stat = put_file(tx, storage, "1", "b")
        service.stop()
        try:
            with pytest.raises(LakelockError):
                tx.commit([stat])
        finally:
            service.start()
    assert [file.group.file_id for file in first.snapshot().files] == ["a"]
    insert(guarded(world, storage, "second"), storage, "1", "c")
    assert sorted(file.group.file_id for file in first.snapshot().files) == ["a", "c"]
    first.close()
    insert(first, storage, "1", "d")  # closing lets go of connections, and a later write opens new ones
