"""The lock in Redis or Valkey: a key with a TTL, a queue for the waiters, and scripts that change both as one step.

Taking the lock and giving it back is one request each. A writer that finds it held queues up, and pub/sub wakes it when it is
its turn.
"""

from __future__ import annotations

import json

from lakelock.errors import ProviderRefused
from lakelock.identity import WriterIdentity
from lakelock.parsing import JsonObject
from lakelock.providers.base import NO_ANSWER, NO_SERVICE, Holder, Lease, LockState, Opening, Strength, for_up_to, past_ms
from lakelock.providers.polling import Attempt, PollingProvider
from lakelock.providers.redis.client import BREAK, EXTEND, GIVE_BACK, LEAVE, LOOK, TAKE, Keys, RedisClient, Subscription
from lakelock.providers.redis.servers import RedisAddress, RedisOptions

STRENGTH = Strength(
    exclusion="a lease on one server (SET NX PX, owner-checked): a holder that pauses for longer is replaced, and finds out",
    token="a counter next to the lock, never below the server's clock in ms nor a token that the writer saw: grows across "
    "release, crash and lost data; across failover only while the servers' clocks agree",
    crash_release="after at most one lease",
    failover="replication is asynchronous: a replica that takes over without the latest grant lets two hold the lock until the "
    "older lease ends; lock.options.wait_replicas makes that rarer, not impossible",
    clock_assumption="equal rates; Redis ends leases by its wall clock, so a jump of that clock ends them early or late",
    fairness="in order of arrival: a queue in Redis whose first is woken; a waiter that does not answer within 0.5 s loses its "
    "place",
    cost="1 request each for acquire and release, 1 to 3 more for a waiter",
)

_LOOK_AGAIN_S = 2.0


class RedisLockProvider(PollingProvider):
    """The table lock as a key in Redis."""

    strength = STRENGTH
    _client: RedisClient
    _subscription: Subscription | None

    def __init__(self, opening: Opening) -> None:
        self._address = RedisAddress.parse(opening.uri)
        self._key = self._address.key or key_of(opening.storage.uri)
        self._keys = Keys(self._key)
        self._options = RedisOptions.of(opening.settings.lock_options, self._address)
        self._held_for_s: float | None = None
        self._latest = 0
        super().__init__(opening)

    @property
    def identity(self) -> str:
        return self._address.identity(self._key)

    def attempt(self, attempt: Attempt) -> Lease | Holder | None:
        self._held_for_s = None
        began_s = self.runtime.monotonic_s()
        join = int(self._subscription is not None)
        if join:
            attempt.sent["queue"] = began_s
        arguments = (self._value(attempt.grant), self._lease_ms, self._latest + 1, join)
        answer, replicas = self._client.run_as_asked(TAKE, *arguments, within_s=self.within_s(attempt))
        if not isinstance(answer, int):
            token, holder, left_ms = answer
            self._latest = max(self._latest, token)
            self._held_for_s = left_ms / 1000 if left_ms > 0 else _LOOK_AGAIN_S
            return holder_of(holder, token)
        self._client.ensure_replicated(replicas, f"the lock of {self.table}")
        self._latest = answer
        return self.new_lease(attempt, answer, began_s)

    def pause(self, attempt: Attempt, at_most_s: float) -> None:
        """Wait for our turn; a lost message costs at most what is left of the lease, and at most 2 s."""
        try:
            if self._held_for_s is not None and self._subscription is None:
                # Subscribe first and queue up with the next attempt: an unsubscribed waiter would be skipped.
                self._subscription = self._client.listen(self._keys.channel(self._channel_id), self.within_s(attempt))
                return
            if self._held_for_s is not None and self._subscription is not None:
                self._subscription.wait(min(at_most_s, self._held_for_s + 0.001, _LOOK_AGAIN_S))
                return
        except NO_SERVICE:  # a user that may not use channels polls
            pass
        # The server may have moved, and nothing is published on the old one any longer.
        self._unsubscribe()
        super().pause(attempt, at_most_s)

    def abandon(self, attempt: Attempt) -> None:
        if attempt.doubt or "queue" in attempt.sent:
            self._client.run(LEAVE, self._value(attempt.grant), within_s=self.within_s(attempt))

    def extend(self, lease: Lease) -> None:
        began_s = self.runtime.monotonic_s()
        arguments = (self._value(lease.grant), self._lease_ms)
        mine, replicas = self._client.run_as_asked(EXTEND, *arguments)
        if not mine:
            hint = "run the operation again; if it happens often, raise lock.lease_s, or check how Redis persists its data"
            raise self.taken_over(lease, "is no longer this writer's: it ran out, was broken, or Redis lost it", hint)
        self._client.ensure_replicated(replicas, f"the lock of {self.table}")
        lease.extend(began_s)

    def give_back(self, lease: Lease) -> None:
        try:
            self._client.run(GIVE_BACK, self._value(lease.grant))
        except NO_ANSWER:
            # It may or may not have run, and running it twice is harmless.
            self._client.run(GIVE_BACK, self._value(lease.grant))

    def inspect(self) -> LockState:
        held, left_ms, token, now_ms, waiting = self._client.run(LOOK)
        queue = tuple(holder_of(each, 0) for each in waiting)
        if not held:
            return LockState(None, int(token), queue)
        return LockState(holder_of(held, int(token), left_ms, now_ms), int(token), queue)

    def break_lock(self, token: int, *, force: bool = False) -> None:
        found, detail, left_ms = self._client.run(BREAK, str(token), int(force))
        if found == b"token":
            self.ensure_latest(token, int(detail))
        if found == b"held":
            holder = holder_of(detail, token)
            left = for_up_to(left_ms / 1000) if left_ms >= 0 else "for ever"
            raise self.still_held(holder, f"whose lease runs {left}")

    def probe(self) -> None:
        """Scripts, keys and channels are allowed, there are enough replicas, and a full server does not drop locks."""
        probing = self._new_client(Keys(f"{self._key}:probe"))
        channel_id, value = self.runtime.uuid(), self._value(self.runtime.uuid())
        try:
            probing.listen(Keys(f"{self._key}:probe").channel(channel_id)).close()
            _, replicas = probing.run_replicated(TAKE, value, 1000, 1, 0)
            probing.run(LEAVE, value)
            probing.ensure_replicated(replicas, f"the lock of {self.table}")
            policy = probing.eviction_policy()
        finally:
            probing.close()
        if policy not in ("", "noeviction"):
            raise ProviderRefused(
                f"Redis at {self._address.place} drops keys, even held locks, when its memory is full ({policy})",
                hint="use a Redis with maxmemory-policy noeviction for locks",
            )

    def disconnect(self) -> None:
        self._unsubscribe()
        self._client.close()

    def _rest(self, wait_s: float) -> None:
        """No need to stay away: Redis keeps the order."""

    def _start_afresh(self) -> None:
        super()._start_afresh()
        # A forked process must not use the connections of its parent, nor wait for threads that it does not have.
        self._subscription, self._client = None, self._new_client(self._keys)
        self._channel_id, self._about_me = self.runtime.uuid(), ""

    def _new_client(self, keys: Keys) -> RedisClient:
        return RedisClient(self._address, self._options, keys, self.runtime, longest_s=self._settings.lease_s / 3)

    def _unsubscribe(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.close()

    @property
    def _lease_ms(self) -> int:
        return round(self._settings.lease_s * 1000)

    def _value(self, grant: str) -> str:
        """One grant, as Redis keeps it; it also proves that the lock is ours."""
        if not self._about_me:
            facts = {"ear": self._channel_id, "lease_ms": self._lease_ms, "writer": self.writer.as_dict()}
            self._about_me = json.dumps(facts, separators=(",", ":"))[1:]
        return f'{{"grant":"{grant}",{self._about_me}'


def key_of(table: str) -> str:
    """The key that guards a table where the URI names none: the same for all writers of it."""
    return "lakelock:" + table.replace("%", "%25").replace("{", "%7B").replace("}", "%7D")


def holder_of(value: bytes, token: int, left_ms: int = -1, now_ms: int = 0) -> Holder:
    """Who a grant belongs to, from the value of the key; one that is not ours is shown as it is."""
    text = value.decode(errors="replace")
    left_s = left_ms / 1000 if left_ms >= 0 else None
    try:
        facts = JsonObject.parse(text)
        lease_ms, writer = facts.integer("lease_ms"), WriterIdentity.from_dict(facts.child("writer").fields)
        renewed_ms = now_ms - (lease_ms - left_ms) if left_ms >= 0 else None
        # A token is the server's clock at the grant, or above it where that clock was set back: then it may lie in the future.
        since_ms = past_ms(token) if token <= now_ms else None
        return Holder(facts.text("grant"), writer, token, lease_ms / 1000, renewed_ms, since_ms, left_s)
    except ValueError:
        return Holder(text[:100], None, token, left_s=left_s)
