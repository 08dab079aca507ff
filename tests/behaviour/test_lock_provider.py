"""One suite of promises over every lock provider; time is held by the test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lakelock.errors import LeaseLost, LockError, LockTimeout, ProviderUnavailable, SettingsError, StorageUnavailable
from lakelock.events import Event, EventKind, Events
from lakelock.identity import WriterIdentity
from lakelock.providers import Lease, LockProvider, open_provider, renewing
from lakelock.settings import LockSettings, Settings
from lakelock.storage import Storage
from lakelock.storage_faulty import CountingStorage, Fault, FaultyStorage, Rule
from lakelock.storage_local import LocalStorage
from lakelock.storage_memory import MemoryStorage
from lakelock.testing import ManualRuntime

LEASE_S = 15.0


@dataclass
class World:
    """One table, one clock, and any number of writers."""

    uri: str
    storage: Storage
    runtime: ManualRuntime = field(default_factory=ManualRuntime)
    seen: list[Event] = field(default_factory=list)

    def writer(self, name: str, storage: Storage | None = None, runtime: ManualRuntime | None = None) -> LockProvider:
        identity = WriterIdentity(self.runtime.uuid(), name, "host", 1, "user")
        settings = Settings(lock=LockSettings(provider=self.uri, lease_s=LEASE_S))
        return open_provider(settings, storage or self.storage, runtime or self.runtime, identity, Events((self.seen.append,)))

    def kinds(self) -> list[EventKind]:
        return [event.kind for event in self.seen]


def make_storage(request: pytest.FixtureRequest, kind: str, runtime: ManualRuntime) -> Storage:
    tmp_path: Path = request.getfixturevalue("tmp_path")
    if kind == "on local disk":
        return LocalStorage(tmp_path)
    if kind == "on S3":
        make: Callable[[], Storage] = request.getfixturevalue("s3_table")
        return make()
    return MemoryStorage(runtime.now_ms, name=str(tmp_path))


@pytest.fixture(params=["memory: in memory", "storage: in memory", "storage: on local disk", "storage: on S3"])
def world(request: pytest.FixtureRequest) -> World:
    uri, _, kind = request.param.partition(" ")
    runtime = ManualRuntime()
    return World(uri, make_storage(request, kind, runtime), runtime)


@pytest.fixture(params=["in memory", "on local disk", "on S3"])
def storage_world(request: pytest.FixtureRequest) -> World:
    runtime = ManualRuntime()
    return World("storage:", make_storage(request, request.param, runtime), runtime)


def take(provider: LockProvider, wait_s: float = 0.0) -> Lease:
    return provider.acquire(wait_s=wait_s)


def test_one_holds_the_lock_and_the_other_is_told_who(world: World) -> None:
    first, second = world.writer("stream"), world.writer("backfill")
    lease = take(first)
    lease.ensure_active()
    with pytest.raises(LockTimeout, match="stream") as refused:
        take(second, wait_s=2.0)
    holder = refused.value.details["holder"]
    assert isinstance(holder, dict) and holder["writer"]["application"] == "stream"
    assert world.runtime.monotonic_s() <= 2.0 + 0.001
    first.release(lease)
    take(second).ensure_active()


def test_waiting_is_told_with_the_holder_and_the_time(world: World) -> None:
    take(world.writer("stream"))
    with pytest.raises(LockTimeout):
        take(world.writer("backfill"), wait_s=3.0)
    waits = [event for event in world.seen if event.kind is EventKind.WAITING_FOR_LOCK]
    assert 2 <= len(waits) <= 4
    assert "stream" in str(waits[-1].facts["holder"]) and waits[-1].facts["waited_s"] >= 1  # type: ignore[operator]


def test_tokens_grow_across_release_and_crash(world: World) -> None:
    tokens = []
    for name in ("a", "b", "a"):
        provider = world.writer(name)
        lease = take(provider)
        tokens.append(lease.token)
        provider.release(lease)
    take(world.writer("crashes"))
    tokens.append(world.writer("looks").inspect().token)
    tokens.append(take(world.writer("after"), wait_s=3 * LEASE_S).token)
    assert tokens == sorted(set(tokens)) and len(tokens) == 5


def test_a_dead_holder_is_replaced_after_its_lease_and_not_before(world: World) -> None:
    dead = take(world.writer("dead"))
    next_one = world.writer("next")
    with pytest.raises(LockTimeout):
        take(next_one, wait_s=LEASE_S - 1)
    assert dead.lost is None
    lease = take(next_one, wait_s=LEASE_S)
    assert dead.lost is not None and lease.lost is None
    assert world.runtime.monotonic_s() < LEASE_S + 2


def test_a_holder_that_renews_is_never_replaced(world: World) -> None:
    holder, rival = world.writer("holder"), world.writer("rival")
    lease = take(holder)
    with renewing(holder, lease, world.runtime, 5.0), pytest.raises(LockTimeout):
        take(rival, wait_s=10 * LEASE_S)
    lease.ensure_active()
    assert world.runtime.repeating == []


def test_the_deadline_counts_from_before_the_request(world: World) -> None:
    lease = take(world.writer("holder"))
    assert lease.remaining_s() == pytest.approx(LEASE_S)
    world.runtime.advance(5)
    assert lease.remaining_s() == pytest.approx(LEASE_S - 5)
    lease.ensure_active(margin_s=9)
    with pytest.raises(LeaseLost):
        lease.ensure_active(margin_s=11)
    assert lease.lost is None


def test_an_expired_lease_is_never_renewed_even_if_nobody_took_the_lock(world: World) -> None:
    holder = world.writer("holder")
    lease = take(holder)
    world.runtime.advance(LEASE_S)
    with pytest.raises(LeaseLost) as lost:
        holder.renew(lease)
    assert lost.value.details["reason"] == "expired"
    assert lease.lost is not None and lease.remaining_s() == 0
    with pytest.raises(LeaseLost):
        lease.ensure_active()
    holder.release(lease)
    assert take(holder).token > lease.token


def test_release_may_be_called_twice_and_frees_nobody_elses_lock(world: World) -> None:
    first, second, third = world.writer("first"), world.writer("second"), world.writer("third")
    old = take(first)
    world.runtime.advance(LEASE_S + 1)
    new = take(second, wait_s=2 * LEASE_S)
    first.release(old)
    first.release(old)
    with pytest.raises(LockTimeout):
        take(third)
    second.renew(new)
    second.release(new)
    second.release(new)
    take(third)


def test_a_released_lease_says_so_and_cannot_be_renewed(world: World) -> None:
    provider = world.writer("one")
    lease = take(provider)
    provider.release(lease)
    assert lease.lost is not None and lease.lost.reason == "released"
    with pytest.raises(LeaseLost):
        provider.renew(lease)
    assert provider.inspect().holder is None


def test_loss_is_an_event_told_once(world: World) -> None:
    holder = world.writer("holder")
    lease = take(holder)
    with renewing(holder, lease, world.runtime, 5.0, Events((world.seen.append,))):
        world.writer("operator").break_lock(lease.token, force=True)
        world.runtime.advance(20)
        assert lease.lost is not None and lease.lost.reason == "taken-over"
    assert world.kinds().count(EventKind.LEASE_LOST) == 1


def test_a_lock_that_was_given_back_in_time_tells_no_loss(world: World) -> None:
    holder = world.writer("holder")
    lease = take(holder)
    with renewing(holder, lease, world.runtime, 5.0, Events((world.seen.append,))):
        world.runtime.advance(60)
        holder.release(lease)
        world.runtime.advance(60)
    assert EventKind.LEASE_LOST not in world.kinds()


def test_inspect_shows_holder_and_token(world: World) -> None:
    provider = world.writer("one")
    assert world.writer("other").inspect().holder is None
    lease = take(provider)
    state = world.writer("other").inspect()
    assert state.holder is not None and state.holder.writer is not None and state.holder.writer.application == "one"
    assert state.token == state.holder.token == lease.token and state.holder.lease_s == LEASE_S
    provider.release(lease)
    assert world.writer("other").inspect().holder is None
    assert world.writer("other").inspect().token == lease.token


def test_breaking_needs_the_current_token_and_force_while_the_lease_runs(world: World) -> None:
    holder, operator = world.writer("holder"), world.writer("operator")
    lease = take(holder)
    with pytest.raises(LockError, match="token"):
        operator.break_lock(lease.token + 1, force=True)
    with pytest.raises(LockError, match="holder"):
        operator.break_lock(lease.token)
    holder.renew(lease)
    operator.break_lock(lease.token, force=True)
    with pytest.raises(LeaseLost):
        holder.renew(lease)
    after = take(world.writer("next"))
    assert after.token > lease.token
    with pytest.raises(LockError):
        operator.break_lock(lease.token, force=True)
    after.ensure_active()


def test_breaking_a_free_lock_does_nothing(world: World) -> None:
    provider = world.writer("one")
    world.writer("operator").break_lock(0)
    lease = take(provider)
    provider.release(lease)
    world.writer("operator").break_lock(lease.token)
    take(provider)


def test_closing_gives_the_lock_back_and_never_raises(world: World) -> None:
    provider = world.writer("one")
    lease = take(provider)
    provider.close()
    provider.close()
    assert lease.lost is not None
    take(world.writer("two"))


def test_the_probe_passes_where_the_service_is_right(world: World) -> None:
    world.writer("one").probe()


def test_identity_and_strength_are_plain_text_without_secrets(world: World) -> None:
    provider = world.writer("one")
    assert provider.identity.startswith(world.uri) and "@" not in provider.identity
    assert all(vars(provider.strength).values())


# --- the storage provider: what replies that get lost, wrong clocks and Java writers can do to it


def lose(storage: Storage, op: str, nth: int | None = 1, fault: Fault = Fault.LOST_REPLY) -> FaultyStorage:
    return FaultyStorage(storage, [Rule(op, ".hoodie/.locks/*", nth=nth, fault=fault)])


def prepared(world: World) -> World:
    """The lock file is there and free, as in every table but a new one."""
    provider = world.writer("earlier")
    provider.release(take(provider))
    return world


@pytest.mark.parametrize("make", [lambda world: world, prepared], ids=["new table", "used table"])
def test_a_grant_whose_reply_was_lost_is_adopted(storage_world: World, make: Callable[[World], World]) -> None:
    world = make(storage_world)
    provider = world.writer("one", lose(world.storage, "put_if_*"))
    lease = take(provider, wait_s=5.0)
    lease.ensure_active()
    assert lease.deadline_s <= world.runtime.monotonic_s() + LEASE_S
    with pytest.raises(LockTimeout):
        take(world.writer("two"))
    provider.renew(lease)
    provider.release(lease)
    take(world.writer("two"))


def test_an_adopted_grant_keeps_the_deadline_of_its_request(storage_world: World) -> None:
    world = prepared(storage_world)
    storage = FaultyStorage(
        world.storage,
        [
            Rule("put_if_match", ".hoodie/.locks/*", fault=Fault.LOST_REPLY),
            Rule("get", ".hoodie/.locks/*", nth=2, fault=None, meanwhile=lambda: world.runtime.advance(6)),
        ],
    )
    lease = take(world.writer("one", storage), wait_s=30.0)
    assert lease.remaining_s() < LEASE_S - 5.9


def test_a_grant_request_that_arrives_late_is_found_or_refused_but_never_doubled(storage_world: World) -> None:
    world = prepared(storage_world)
    storage = lose(world.storage, "put_if_match", fault=Fault.LATE)
    provider = world.writer("one", storage)
    lease = take(provider, wait_s=5.0)
    storage.deliver()
    provider.renew(lease)
    with pytest.raises(LockTimeout):
        take(world.writer("two"))
    provider.release(lease)
    assert take(world.writer("two")).token > lease.token


def test_giving_up_takes_back_a_grant_that_nobody_heard_of(storage_world: World) -> None:
    world = prepared(storage_world)
    rules = [Rule("put_if_match", ".hoodie/.locks/*", nth=1, fault=Fault.LOST_REPLY)]
    provider = world.writer("one", FaultyStorage(world.storage, rules))
    with pytest.raises(ProviderUnavailable):
        take(provider, wait_s=0.0)
    take(world.writer("two"))


def test_a_renewal_whose_reply_was_lost_does_not_lose_the_lock(storage_world: World) -> None:
    world = prepared(storage_world)
    provider = world.writer("one", lose(world.storage, "put_if_match", nth=2))
    lease = take(provider)
    with renewing(provider, lease, world.runtime, 5.0):
        world.runtime.advance(40)
        lease.ensure_active()
    provider.release(lease)
    take(world.writer("two"))


def test_a_release_right_after_a_renewal_whose_reply_was_lost_frees_the_lock(storage_world: World) -> None:
    world = prepared(storage_world)
    provider = world.writer("one", lose(world.storage, "put_if_match", nth=2))
    lease = take(provider)
    with pytest.raises(StorageUnavailable):
        provider.renew(lease)
    provider.release(lease)
    take(world.writer("two"))


def test_an_expired_or_released_lease_sends_no_request_for_renewal_or_a_second_release(storage_world: World) -> None:
    world = prepared(storage_world)
    counting = CountingStorage(world.storage)
    provider = world.writer("one", counting)
    lease = take(provider)
    world.runtime.advance(LEASE_S)
    counting.reset()
    with pytest.raises(LeaseLost):
        provider.renew(lease)
    assert counting.total == 0
    provider.release(lease)
    counting.reset()
    provider.release(lease)
    assert counting.total == 0


def test_a_release_whose_reply_was_lost_frees_the_lock_and_raises_nothing(storage_world: World) -> None:
    world = prepared(storage_world)
    provider = world.writer("one", lose(world.storage, "put_if_match", nth=2))
    provider.release(take(provider))
    take(world.writer("two"))


def test_a_release_that_cannot_be_sent_is_told_and_raises_nothing(storage_world: World) -> None:
    world = prepared(storage_world)
    storage = FaultyStorage(world.storage)
    provider = world.writer("one", storage)
    lease = take(provider)
    storage.plan = [Rule(nth=None)]
    provider.release(lease)
    assert world.kinds() == [EventKind.ALERT]
    storage.plan = ()
    take(world.writer("two"), wait_s=2 * LEASE_S)


def test_storage_that_does_not_answer_is_lost_at_the_deadline_and_called_unreachable(storage_world: World) -> None:
    world = prepared(storage_world)
    storage = FaultyStorage(world.storage)
    provider = world.writer("one", storage)
    lease = take(provider)
    storage.plan = [Rule(nth=None)]
    with renewing(provider, lease, world.runtime, 5.0, Events((world.seen.append,))):
        world.runtime.advance(LEASE_S - 0.1)
        assert lease.lost is None
        world.runtime.advance(5)
        assert lease.lost is not None and lease.lost.reason == "unreachable"
    assert world.kinds().count(EventKind.LEASE_LOST) == 1
    with pytest.raises(ProviderUnavailable):
        take(world.writer("two", storage), wait_s=1.0)


def test_taking_and_giving_back_costs_two_requests_alone_and_three_in_turns(storage_world: World) -> None:
    world = prepared(storage_world)
    counting = CountingStorage(world.storage)
    provider, other = world.writer("one", counting), world.writer("two")

    def cost() -> int:
        counting.reset()
        provider.release(take(provider))
        return counting.total

    assert [cost() for _ in range(4)] == [3, 2, 2, 2]
    costs = []
    for _ in range(3):
        other.release(take(other))
        costs.append(cost())
    assert costs == [4, 3, 3], "the version of one's own release is tried first until that fails"
    assert [cost() for _ in range(3)] == [3, 2, 2]


@pytest.mark.parametrize("skew_s", [3600, -3600])
def test_a_wrong_clock_neither_robs_a_live_holder_nor_waits_longer_for_a_dead_one(storage_world: World, skew_s: int) -> None:
    world = storage_world
    wrong = ManualRuntime(seed=9)
    wrong.skew_ms = skew_s * 1000
    holder = world.writer("holder", runtime=wrong)
    lease = take(holder)
    rival = world.writer("rival")
    beat = world.runtime.every(5.0, lambda: (wrong.advance(5.0), holder.renew(lease)), name="beat")  # type: ignore[arg-type, return-value]
    with pytest.raises(LockTimeout):
        take(rival, wait_s=4 * LEASE_S)
    beat.stop()
    before_s = world.runtime.monotonic_s()
    take(rival, wait_s=4 * LEASE_S)
    assert world.runtime.monotonic_s() - before_s <= LEASE_S + 2


def test_a_holder_that_died_long_ago_is_replaced_after_a_third_of_its_lease() -> None:
    runtime = ManualRuntime()
    world = World("storage:", MemoryStorage(runtime.now_ms), runtime)
    take(world.writer("dead"))
    runtime.advance(600)
    before_s = runtime.monotonic_s()
    take(world.writer("next"), wait_s=LEASE_S)
    assert runtime.monotonic_s() - before_s < LEASE_S / 3 + 2


def test_a_storage_clock_that_jumps_ahead_does_not_rob_a_holder_that_renews() -> None:
    runtime = ManualRuntime()
    jump_ms = [0]
    world = World("storage:", MemoryStorage(lambda: runtime.now_ms() + jump_ms[0]), runtime)
    holder = world.writer("holder")
    lease = take(holder)
    jump_ms[0] = 3_600_000
    with renewing(holder, lease, runtime, 5.0), pytest.raises(LockTimeout):
        take(world.writer("rival"), wait_s=3 * LEASE_S)
    lease.ensure_active()


def java(storage: Storage, now_ms: int, *, expired: bool, validity_s: int = 300) -> None:
    """What Java Hudi writes: three fields, in this order."""
    body = b'{"expired":%s,"validUntil":%d,"owner":"8e3b11c1-6740-47b8-87fe-14ef3b1015be"}' % (
        b"true" if expired else b"false",
        now_ms + validity_s * 1000,
    )
    storage.put(".hoodie/.locks/table_lock.json", body)


def test_java_finds_its_three_fields_first_and_the_file_is_never_deleted(storage_world: World) -> None:
    provider = storage_world.writer("one")
    lease = take(provider)
    held = storage_world.storage.get(".hoodie/.locks/table_lock.json")
    assert held is not None and held.data.startswith(b'{"expired":false,"validUntil":17')
    assert b',"owner":"%s"' % lease.grant.encode() in held.data
    provider.release(lease)
    free = storage_world.storage.get(".hoodie/.locks/table_lock.json")
    assert free is not None and free.data == held.data.replace(b'"expired":false', b'"expired":true')


def test_tokens_grow_across_java_writers_that_drop_them(storage_world: World) -> None:
    world, tokens = storage_world, []
    for _ in range(3):
        provider = world.writer("one")
        for _ in range(2):
            lease = take(provider)
            tokens.append(lease.token)
            provider.release(lease)
        java(world.storage, world.runtime.now_ms(), expired=True)
    assert tokens == sorted(set(tokens)) and len(tokens) == 6


def test_a_java_holder_is_waited_for_until_its_validity_is_over() -> None:
    runtime = ManualRuntime()
    world = World("storage:", MemoryStorage(runtime.now_ms), runtime)
    java(world.storage, runtime.now_ms(), expired=False, validity_s=60)
    provider = world.writer("one")
    with pytest.raises(LockTimeout, match="8e3b11c1"):
        take(provider, wait_s=59)
    take(provider, wait_s=5)


def test_an_unreadable_lock_file_is_never_taken_for_free_and_can_be_broken_by_force(storage_world: World) -> None:
    world = storage_world
    first = world.writer("earlier")
    token = take(first).token
    for junk in (
        b"",
        b"{}",
        b"not json",
        b'{"expired":1,"validUntil":2,"owner":"x"}',
        b"[1]",
        b'{"expired":true,"validUntil":1}',
    ):
        world.storage.put(".hoodie/.locks/table_lock.json", junk)
        with pytest.raises(Exception, match="locks break"):
            take(world.writer("one"), wait_s=1.0)
        with pytest.raises(Exception, match="locks break"):
            world.writer("one").break_lock(0)
    world.writer("operator").break_lock(0, force=True)
    assert take(world.writer("two")).token > token


def test_the_memory_lock_refuses_tables_that_other_machines_can_write() -> None:
    class Remote(MemoryStorage):
        @property
        def uri(self) -> str:
            return "s3://bucket/table"

    with pytest.raises(SettingsError, match="no other machine"):
        World("memory:", Remote()).writer("one")


@pytest.mark.parametrize(
    ("uri", "meant"), [("storge:", "storage"), ("memroy", "memory"), ("zookeper://h1:2181/x", "available")]
)
def test_an_unknown_provider_is_refused_with_what_was_meant(uri: str, meant: str) -> None:
    with pytest.raises(SettingsError) as refused:
        World(uri, MemoryStorage()).writer("one")
    assert meant in refused.value.hint
