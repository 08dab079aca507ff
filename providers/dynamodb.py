"""The lock as one item of a DynamoDB table, as the awslabs lock client writes it: Java Hudi's writers are excluded.

Taking the lock and giving it back costs one request each. A free lock is an item marked as released, so one conditional
update takes it and increments the token in the same step, without reading first.

The token has to survive Java, which drops foreign attributes when it takes the lock and deletes the item when it releases.
So tokens come from blocks, as in `lakelock.providers.base`: a counter in an item of its own holds the end of the latest
block, and the lock item carries the token of the latest grant and the end of its block. Where these are missing or used up,
the lock is taken first, *then* the counter is moved on by an atomic addition, and then the token is written into the lock
item. In this order only a holder of the lock takes a block, so it lies above the block of every earlier grant. (A block
reserved before would not: an absent item looks the same before and after others have held the lock, and Java has deleted it.)
"""

from __future__ import annotations

from contextlib import suppress
from math import inf
from urllib.parse import quote

from lakelock.errors import LockError, ProviderUnavailable
from lakelock.providers.base import BLOCK, Holder, Lease, LockState, Opening, Strength
from lakelock.providers.dynamodb_table import (
    Attributes,
    ConditionFailed,
    DynamodbOptions,
    DynamodbTable,
    LockItem,
    Sighting,
    place_of,
    watch_s,
    writer_text,
)
from lakelock.providers.polling import Attempt, PollingProvider
from lakelock.texts import command

STRENGTH = Strength(
    exclusion="linearizable conditional writes; a lease: a holder that pauses for longer is replaced, and finds out",
    token="a counter in the lock item, reserved in blocks in an item of its own; grows across release, crash and Java writers",
    crash_release="after one lease from when the next writer first looked, so a `lock.wait_s` of less never gets past it",
    failover="DynamoDB replicates within a region; the copies of a global table in other regions are no lock",
    clock_assumption="equal rates (within 1 %); no clock is compared with another machine's",
    fairness="in order of arrival within a process; jittered polling between processes, Java's waiters poll once a second",
    cost="2 requests for acquire and release of a free lock, also where writers take turns",
)

_FREE = "#ir = :ir AND #tk < #tl"
_SEEN = "#rvn = :seen"
_ABSENT = "attribute_not_exists(#key)"
_OWN = "#on = :on AND attribute_not_exists(#ir)"
_RELEASED = {"S": "1"}

_SENDS = 3
_SHORTEST_RETRY_S = 0.05
_AFTER_S = 0.001


class DynamodbLockProvider(PollingProvider):
    """The table lock in DynamoDB: `dynamodb://TABLE/PARTITION-KEY`, where Java has the same table and partition key."""

    strength = STRENGTH

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        name, self._key = place_of(opening.uri, opening.storage)
        self._table = DynamodbTable(name, DynamodbOptions.of(opening.settings.lock_options), opening.runtime)
        self._watched: Sighting | None = None

    def watch_s(self, lease_s: float) -> float:
        return watch_s(lease_s)

    @property
    def identity(self) -> str:
        return f"dynamodb://{self._table.name}/{quote(self._key)}?{self._table.place}"

    def attempt(self, attempt: Attempt) -> Lease | Holder | None:
        found: LockItem | None = None
        if not (attempt.pauses or attempt.doubt):
            result = self._claim(attempt, _FREE, {":ir": _RELEASED})
            if isinstance(result, Lease):
                return result
            found = result
        found = found or self._look(self.within_s(attempt))
        if found is None:
            return self._take_unnumbered(attempt, _ABSENT, {})
        if found.owner == self._owner(attempt) and not found.released:
            return self._adopt(attempt, found)
        if not (found.released or self._is_dead(found)):
            return found.holder
        seen: Attributes = {":seen": {"S": found.version}}
        if not found.numbered:
            return self._take_unnumbered(attempt, _SEEN, seen)
        result = self._claim(attempt, f"{_SEEN} AND #tk < #tl", seen)
        return result.holder if isinstance(result, LockItem) else result

    def extend(self, lease: Lease) -> None:
        for remaining in reversed(range(_SENDS)):
            lease.ensure_active()
            began_s = self.runtime.monotonic_s()
            values = {":on": {"S": lease.grant}, ":rvn": {"S": self.runtime.uuid()}, ":ld": self._duration()}
            try:
                # Owner names are unique per grant, so an earlier renewal whose reply was lost does not stand in the way.
                self._table.update(self._key, "SET #ld = :ld, #rvn = :rvn", values, _OWN)
                lease.extend(began_s)
                break
            except ConditionFailed:
                raise self.taken_over(lease, "went to another writer") from None
            except ProviderUnavailable:
                pause_s = self._retry_pause_s()
                if not remaining or lease.remaining_s() <= pause_s:
                    raise
                self.runtime.sleep(pause_s)

    def give_back(self, lease: Lease) -> None:
        for remaining in reversed(range(_SENDS)):
            try:
                self._mark_released(lease.grant)
                break
            except ProviderUnavailable:
                # A lease that is over keeps other writers out for no longer than a holder that died does.
                if not remaining or lease.lost is not None:
                    raise
                self.runtime.sleep(self._retry_pause_s())

    def pause(self, attempt: Attempt, at_most_s: float) -> None:
        """As in other providers, but the pause ends when the lease of a silent holder is over."""
        if self._watched is not None:
            left_s = self._watched.over_at_s - self.runtime.monotonic_s()
            at_most_s = min(at_most_s, left_s + _AFTER_S) if left_s > 0 else at_most_s
        super().pause(attempt, at_most_s)

    def abandon(self, attempt: Attempt) -> None:
        if attempt.doubt:
            self._mark_released(self._owner(attempt), self.within_s(attempt))

    def disconnect(self) -> None:
        self._table.close()

    def inspect(self) -> LockState:
        found = self._look()
        if found is None:
            return LockState(None, 0)
        return LockState(None if found.released else found.holder, found.token)

    def break_lock(self, token: int, *, force: bool = False) -> None:
        found = self._held_with(token)
        if found is not None and not force:
            found = self._outwaited(token, found)
        if found is None:
            return
        values: dict[str, dict[str, str]] = {":on": {"S": found.owner}, ":ir": _RELEASED}
        seen = {} if force else {":seen": {"S": found.version}}
        try:
            # With force even from a holder that has renewed since we looked, but never from a later grant.
            self._table.update(self._key, "SET #ir = :ir", {**values, **seen}, f"{_OWN} AND {_SEEN}" if seen else _OWN)
        except ConditionFailed:
            raise LockError(
                f"the lock of {self.table} was renewed or changed hands just now; nothing was broken",
                hint=f"look again with `{command('locks', 'ls', self.table)}`",
            ) from None

    def _held_with(self, token: int) -> LockItem | None:
        """The lock that is held with this token; None if it is free, `LockError` if another grant has followed."""
        found = self._look()
        if found is None:
            return None
        self.ensure_latest(token, found.token)
        return None if found.released else found

    def _outwaited(self, token: int, found: LockItem) -> LockItem | None:
        """The item once its holder has shown no sign of life for its whole lease, None once it is free.

        An item does not say how old it is, so only watching tells. `LockError` as soon as the holder renews.
        """
        version = found.version
        while not self._is_dead(found):
            assert self._watched is not None
            left_s = self._watched.over_at_s - self.runtime.monotonic_s()
            self.runtime.sleep(min(left_s + _AFTER_S, self._settings.renew_s, found.lease_s / 10))
            now = self._held_with(token)
            if now is None:
                return None
            if now.version != version:
                raise self.still_held(now.holder, "which renewed its lease just now")
            found = now
        return found

    def probe(self) -> None:
        self._table.check()
        self._table.get(self._key)
        self._table.update(self._counter, "ADD #tk :n", {":n": {"N": "0"}})
        try:
            self._table.update(self._counter, "ADD #tk :n", {":n": {"N": "0"}}, _ABSENT)
        except ConditionFailed:
            return
        raise LockError(
            f"the service at {self._table.place} ignores the conditions of writes, so it cannot hold a lock",
            hint="use AWS DynamoDB or an emulator that honours ConditionExpression",
        )

    @property
    def _counter(self) -> str:
        return f"{self._key}#lakelock-token"

    def _owner(self, attempt: Attempt) -> str:
        """The owner name: like that of the Java client, host and a UUID; here the UUID names the grant."""
        return f"{self.writer.host}-{attempt.grant}"

    def _duration(self) -> dict[str, str]:
        return {"S": str(round(self._settings.lease_s * 1000))}

    def _start_afresh(self) -> None:
        super()._start_afresh()
        self._about_me = ""

    def _look(self, within_s: float = inf) -> LockItem | None:
        item = self._table.get(self._key, within_s)
        return None if item is None else LockItem.parse(item)

    def _is_dead(self, found: LockItem) -> bool:
        now_s = self.runtime.monotonic_s()
        self._watched = Sighting.of(found, now_s, self._watched)
        return now_s >= self._watched.over_at_s

    def _claim(self, attempt: Attempt, when: str, values: Attributes) -> Lease | LockItem | None:
        """Take an item that has a token left, if `when` holds; else the item that stood in the way, if the service shows it."""
        version, grant = self._grant(attempt)
        expression = "SET #on = :on, #ld = :ld, #rvn = :rvn, #w = :w, #si = :si REMOVE #ir ADD #tk :one"
        try:
            new = self._table.update(
                self._key, expression, {**grant, **values, ":one": {"N": "1"}}, when, self.within_s(attempt)
            )
        except ConditionFailed as failed:
            return LockItem.parse(failed.item) if failed.item else None
        return self._lease(attempt, version, self._token(new))

    def _take_unnumbered(self, attempt: Attempt, when: str, values: Attributes) -> Lease | None:
        """Take the lock if `when` holds, and only then a token from a new block; None if another writer was faster."""
        version, grant = self._grant(attempt)
        expression = "SET #on = :on, #ld = :ld, #rvn = :rvn, #w = :w, #si = :si REMOVE #ir, #tk, #tl"
        try:
            self._table.update(self._key, expression, {**grant, **values}, when, self.within_s(attempt))
        except ConditionFailed:
            return None
        return self._number(attempt, version)

    def _number(self, attempt: Attempt, version: str) -> Lease | None:
        """The lease, with a token, on the lock that `version` already made ours; None if it is over by then."""
        moved = self._table.update(self._counter, "ADD #tk :n", {":n": {"N": str(BLOCK)}}, within_s=self.within_s(attempt))
        end = self._token(moved)
        if self._lease(attempt, version, 0).lost is not None:
            self._mark_released(self._owner(attempt), self.within_s(attempt))
            return None
        token = end - BLOCK + 1
        version, grant = self._grant(attempt)
        values = {":on": grant[":on"], ":rvn": grant[":rvn"], ":tk": {"N": str(token)}, ":tl": {"N": str(end)}}
        try:
            self._table.update(self._key, "SET #rvn = :rvn, #tk = :tk, #tl = :tl", values, _OWN, self.within_s(attempt))
        except ConditionFailed:
            return None
        return self._lease(attempt, version, token)

    def _token(self, changed: Attributes) -> int:
        """The token in the answer to a request that changed it."""
        try:
            return int(changed["token"]["N"])
        except (KeyError, ValueError):
            raise self._table.not_dynamodb() from None

    def _grant(self, attempt: Attempt) -> tuple[str, dict[str, dict[str, str]]]:
        """A new version number for a request that is about to be sent, and the values of a grant with it."""
        version = self.runtime.uuid()
        attempt.sent[version] = self.runtime.monotonic_s()
        values = {":on": {"S": self._owner(attempt)}, ":ld": self._duration(), ":rvn": {"S": version}}
        self._about_me = self._about_me or writer_text(self.writer)
        return version, {**values, ":w": {"S": self._about_me}, ":si": {"N": str(self.runtime.now_ms())}}

    def _lease(self, attempt: Attempt, version: str, token: int) -> Lease:
        return Lease(
            self.runtime,
            self.writer,
            grant=self._owner(attempt),
            token=token,
            lease_s=self._settings.lease_s,
            began_s=attempt.sent.get(version, float("-inf")),
        )

    def _adopt(self, attempt: Attempt, found: LockItem) -> Lease | None:
        """The lease that a request of ours got although its reply was lost; None (and given back) if it is over already."""
        lease = self._lease(attempt, found.version, found.token)
        if lease.lost is not None:
            self._mark_released(lease.grant, self.within_s(attempt))
            return None
        return lease if found.token else self._number(attempt, found.version)

    def _mark_released(self, owner: str, within_s: float = inf) -> None:
        """Free the lock if it is `owner`'s. The item stays, with its token; Java takes one that is marked so at once."""
        with suppress(ConditionFailed):
            self._table.update(self._key, "SET #ir = :ir", {":ir": _RELEASED, ":on": {"S": owner}}, _OWN, within_s)

    def _retry_pause_s(self) -> float:
        return _SHORTEST_RETRY_S * (1 + self.runtime.random())
