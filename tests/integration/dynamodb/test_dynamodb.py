"""The DynamoDB lock on a real service (dynalite, or moto without Node): its item, which is that of Java, and its cost."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from tests.api import LockProvider
from tests.integration.dynamodb.dynamodb_world import (
    JAVA_OWNER,
    LEASE_S,
    UUID,
    World,
    java_renews_or_deletes,
    java_takes,
    take,
)
from tests.servers.locks.dynamodb_proxy import Proxy, Rule, operation, updates

from lakelock.errors import (
    LeaseLost,
    LockError,
    LockTimeout,
)


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
        "key", "ownerName", "leaseDuration", "recordVersionNumber", "token", "tokenLimit", "writer", "since"
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
    provider = world.writer("one")
    provider.probe()  # makes the table
    java_takes(world, lease_ms=60_000)
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
            lease = take(other, wait_s=60 if asleep_after == "looking" else 0)
            between.append(lease.token)
            other.release(lease)
            java_takes(world, "attribute_exists(#pk) AND #ir = :ir", **{":ir": {"S": "1"}})
            java_renews_or_deletes(world, delete=True)

    concerns = operation("GetItem") if asleep_after == "looking" else updates("ADD #tk :n")
    proxy.plan = [Rule(concerns, None, meanwhile=others_hold_it_and_java_deletes)]
    lease = take(world.writer("one", proxied=True, lock__options__read_timeout=60), wait_s=60)
    assert proxy.plan[0].times == 0 and all(lease.token > token for token in between)
    assert bool(between) == (asleep_after == "looking"), "a writer that fetches a token holds the lock"


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


def test_a_wait_of_less_than_the_watch_says_so_and_the_one_that_it_names_gets_past_a_dead_holder(world: World) -> None:
    take(world.writer("dead"))
    world.runtime.advance(10 * LEASE_S)
    with pytest.raises(LockTimeout) as refused:
        take(world.writer("hasty"), wait_s=LEASE_S)
    assert "recognised by a wait of 17 s: if it may be dead, give lock.wait_s at least that" in refused.value.hint
    take(world.writer("patient"), wait_s=17)
