"""Data locks in the lock table of a Hive metastore: one call for a request, however many partitions it names.

The metastore keeps the queue, in order of arrival, and drops silent requests. The holder is read from the queue, so a
grant takes two calls: one to queue up, one to see who came before. A waiter looks, which costs the metastore one query,
and sends a sign of life when one is due.

The metastore numbers the requests in the order in which they appear (one row of its database guards the numbers), so a
request with a lower number than mine that I do not see yet will never appear. Who holds follows from that: every request
with no lower number in its way. It has to be worked out here, because the rule of Hive 2.3 has a hole: a shared lock
overtakes an exclusive one that waits, and the exclusive one is then granted as well, at the same time. The commit lock
needs none of this: every request for it is exclusive.

In Hive a lock on a table overlaps all its partitions, which Hive's older model, ours, does not want. Therefore all data
locks of a table are partitions of one name that no table has, that of the table itself too. Two names overlap only if
they are for the same resource. The names are lower-case and of few characters: a metastore may build SQL from them,
compare them without regard to case, or rewrite them as `key=value`. A request for few locks can be read one by one in
Hive's SHOW LOCKS; many share rows, for speed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby

from lakelock.data_locks.base import DataLease, DataLock, LockedData, LockRequest, Mode, PollingDataLocks, Resource, Waiting
from lakelock.errors import LockError
from lakelock.providers.base import Lease, Opening
from lakelock.providers.hive_metastore.client import ACQUIRED, EXCLUSIVE, SHARED_READ, LockRow, Part
from lakelock.providers.hive_metastore.requests import (
    LONGEST_NAME,
    OWN_DATABASE,
    Agent,
    LockCalls,
    NoSuchLock,
    Place,
    Request,
    holder_of,
    is_of,
    watch_s,
)

LONGEST_ROW = 700
"""Characters of a row; the column has 767."""

FEW = 8
"""Up to this many locks have a row each."""

_PREFIX = "path="
_CUT = "~~"
"""Stands before the hash of a name that is too long; `~` is followed by a hexadecimal digit anywhere else."""

_DIGEST = 32
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_.-")
_ESCAPED = re.compile(r"\+([a-z])|\$|~([0-9a-f]{2})")
_HALF = re.compile(r"(\+|~[0-9a-f]?)$")


def data_place(place: Place) -> Place:
    """Where the data locks go with the commit lock at `place`: apart from all locks of Java Hudi and of Hive."""
    return Place(place.addresses, OWN_DATABASE, _bounded("data" + _joined((place.database, place.table)), LONGEST_NAME))


def name_of(resource: Resource) -> str:
    """`month=1/day=Mon` as `@month$1@day$+mon`; a name that is too long ends with its hash."""
    return _bounded(_joined(resource.parts) or "@", LONGEST_ROW - len(_PREFIX))


def resource_of(name: str) -> Resource:
    """The resource of this name, as much as is left of a name that was cut; any other text unchanged."""
    whole, _, digest = name.partition(_CUT)
    if digest:
        whole = _HALF.sub("", whole) + "..." + digest
    return Resource(tuple(_decoded(part) for part in whole.removeprefix("@").split("@")) if whole != "@" else ())


def parts_of(request: LockRequest) -> list[Part]:
    """The rows of a request."""
    few = len(request.locks) <= FEW
    rows: list[Part] = []
    for mode, kind in ((Mode.SHARED, SHARED_READ), (Mode.EXCLUSIVE, EXCLUSIVE)):
        names = [name_of(lock.resource) for lock in request.locks if lock.mode is mode]
        rows += ((kind, _PREFIX + ",".join(row)) for row in ([[name] for name in names] if few else _packed(names)))
    return rows


def names_in(partition: str) -> list[str]:
    """The names of the resources in a row."""
    return partition.removeprefix(_PREFIX).split(",")


def _packed(names: Sequence[str]) -> Iterator[list[str]]:
    row: list[str] = []
    for name in names:
        if row and len(_PREFIX) + sum(map(len, row)) + len(row) + len(name) > LONGEST_ROW:
            yield row
            row = []
        row.append(name)
    if row:
        yield row


def _joined(parts: Sequence[str]) -> str:
    return "".join(f"@{_encoded(part)}" for part in parts)


def _bounded(name: str, longest: int) -> str:
    if len(name) <= longest:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST]
    return name[: longest - len(_CUT) - _DIGEST] + _CUT + digest


def _encoded(part: str) -> str:
    return "".join(_letter(byte) for byte in part.encode("utf-8", "surrogatepass"))


def _letter(byte: int) -> str:
    character = chr(byte)
    if byte in _PLAIN:
        return character
    if character == "=":
        return "$"
    return f"+{character.lower()}" if "A" <= character <= "Z" else f"~{byte:02x}"


def _decoded(text: str) -> str:
    def byte(found: re.Match[str]) -> str:
        upper, code = found.groups()
        return upper.upper() if upper else chr(int(code, 16)) if code else "="

    # Plain letters are single bytes too, so the whole text goes through the bytes that it stands for.
    return _ESCAPED.sub(byte, text).encode("latin-1", "replace").decode("utf-8", "replace")


@dataclass(frozen=True)
class Queued:
    """One request: its number and its rows."""

    lock_id: int
    rows: tuple[LockRow, ...]

    @property
    def first(self) -> LockRow:
        """The row with the facts that all rows share: user, host, agent, heartbeat."""
        return self.rows[0]

    @property
    def acquired(self) -> bool:
        """Whether the metastore granted it; that alone does not make it held."""
        return all(row.state == ACQUIRED for row in self.rows)

    @cached_property
    def modes(self) -> Mapping[str, Mode]:
        """The names that it locks."""
        return {
            name: Mode.SHARED if row.kind == SHARED_READ else Mode.EXCLUSIVE
            for row in self.rows
            for name in names_in(row.partition or "")
        }

    @cached_property
    def about(self) -> str:
        agent = Agent.of(self.first.agent)
        return agent.about if agent else ""

    def request(self) -> LockRequest:
        locks = sorted(DataLock(resource_of(name), mode) for name, mode in self.modes.items())
        return LockRequest(tuple(locks), self.about)


@dataclass(frozen=True)
class Queue:
    """All requests for one table, in order of arrival."""

    requests: tuple[Queued, ...] = ()

    @classmethod
    def of(cls, rows: Sequence[LockRow]) -> Queue:
        """From the rows of the metastore, which are in order of their numbers."""
        return cls(tuple(Queued(lock_id, tuple(group)) for lock_id, group in groupby(rows, key=lambda row: row.lock_id)))

    def find(self, lock_id: int | None) -> Queued | None:
        return next((each for each in self.requests if each.lock_id == lock_id), None)

    def blockers(self, lock_id: int, modes: Mapping[str, Mode]) -> tuple[Queued, ...]:
        """The requests that keep the one with this number from being granted: every earlier request in its way."""
        return tuple(each for each in self.requests if each.lock_id < lock_id and _collide(each.modes, modes))

    def shown(self) -> tuple[LockedData, ...]:
        """Everybody, as an operator sees them."""
        return tuple(shown(each, self.blockers(each.lock_id, each.modes)) for each in self.requests)


def modes_of(request: LockRequest) -> Mapping[str, Mode]:
    """The names that a request locks."""
    return {name_of(lock.resource): lock.mode for lock in request.locks}


def shown(queued: Queued, blockers: Sequence[Queued]) -> LockedData:
    """One request, as an operator sees it. Times are by the clock of the metastore's database."""
    holder, held = holder_of(queued.first), queued.acquired and not blockers
    return LockedData(
        token=queued.lock_id,
        owner=holder.owner,
        request=queued.request(),
        held=held,
        writer=holder.writer,
        lease_s=holder.lease_s,
        acquired_ms=(queued.first.acquired_ms or None) if held else None,
        renewed_ms=holder.renewed_ms,
        blocked_by=tuple(blocker.lock_id for blocker in blockers),
    )


def _collide(one: Mapping[str, Mode], other: Mapping[str, Mode]) -> bool:
    few, many = sorted((one, other), key=len)
    return any(name in many and Mode.EXCLUSIVE in (mode, many[name]) for name, mode in few.items())


_LEAST_S = 1.0
"""Minimum time for a call: even a writer that does not wait at all tries once."""


@dataclass
class _Waiting(Waiting):
    """`heard_s`: when the latest call that the metastore took for a sign of life was about to be sent."""

    agent: Agent
    modes: Mapping[str, Mode]
    place: Request
    heard_s: float = 0.0
    queue: Queue = field(default_factory=Queue)
    blockers: tuple[Queued, ...] = ()


class MetastoreDataLocks(PollingDataLocks[_Waiting]):
    """The data locks of one table in a metastore, in a database and under a name that need not exist."""

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        self._opening = opening
        self._place = data_place(Place.of(opening.uri, opening.settings.hive_metastore.uris, self.table))
        self._calls = LockCalls(opening, self._place, self._warn)
        self._call_s = self._calls.call_s

    def watch_s(self, lease_s: float) -> float:
        return watch_s(lease_s)

    @property
    def identity(self) -> str:
        return self._place.identity

    def inspect(self) -> tuple[LockedData, ...]:
        return self._look_around(self._call_s).shown()

    def break_all(self) -> None:
        for queued in self._look_around(self._call_s).requests:
            self._calls.unlock(queued.lock_id, self._call_s)

    def _break(self, token: int, *, force: bool) -> None:
        queued = self._look_around(self._call_s).find(token)
        if queued is None:
            return
        if not force:
            self._watch_until_over(queued)
        self._calls.unlock(token, self._call_s)

    def _begin(self, request: LockRequest, grant: str, until_s: float) -> _Waiting:
        agent = Agent.by(self.writer, grant, self._settings.lease_s, request.about)
        return _Waiting(request, grant, until_s, agent, modes_of(request), Request(grant))

    def _look(self, waiting: _Waiting) -> DataLease | None:
        within_s = self._left_s(waiting)
        self._calls.ensure_lease_fits(self._settings, within_s)
        try:
            granted = self._show_life(waiting, within_s)
            lock_id = self._place_of(waiting, within_s)
            if lock_id is None or waiting.blockers:
                return None
            if not granted and not self._check(waiting, lock_id, within_s):
                return None
        except NoSuchLock:
            waiting.place.start_again()
            return None
        lease = self._lease(waiting, lock_id, waiting.heard_s)
        if lease.lost is not None:  # an answer that took longer than a lease
            self._calls.unlock(lock_id, within_s)
            waiting.place.start_again()
            return None
        return lease

    def _show_life(self, waiting: _Waiting, within_s: float) -> bool:
        """Queue up if I am not queued, and renew my place when due. True if the metastore granted the request just now."""
        place = waiting.place
        if place.is_lost:
            place.find(self._calls, within_s)
            waiting.heard_s = float("-inf")
        if place.lock_id is not None:
            due = self.runtime.monotonic_s() - waiting.heard_s >= self._settings.renew_s
            return due and self._check(waiting, place.lock_id, within_s)
        began_s = self.runtime.monotonic_s()
        answer = place.enter(self._calls, self.writer, waiting.agent, within_s, parts_of(waiting.request))
        waiting.heard_s = began_s
        return answer.state == ACQUIRED

    def _check(self, waiting: _Waiting, lock_id: int, within_s: float) -> bool:
        began_s = self.runtime.monotonic_s()
        state = self._calls.check(lock_id, within_s).state
        waiting.heard_s = began_s
        return state == ACQUIRED

    def _place_of(self, waiting: _Waiting, within_s: float) -> int | None:
        """See who is before me, and remove the dead and a second request of my own; my number while I am queued."""
        waiting.queue = queue = self._look_around(within_s)
        mine = queue.find(waiting.place.lock_id)
        if mine is None:
            if waiting.place.lock_id is not None:
                self._calls.unlock(waiting.place.lock_id, within_s)
            waiting.place.start_again()
            return None
        twins = [each for each in queue.requests if each is not mine and is_of(each.first, waiting.grant)]
        blockers = [each for each in queue.blockers(mine.lock_id, waiting.modes) if each not in twins]
        watched = [each.first for each in (*blockers, mine)]
        dead = {row.lock_id for row in waiting.place.watch.dead(watched, mine.lock_id, self.runtime.monotonic_s())}
        for lock_id in dead | {twin.lock_id for twin in twins}:
            self._calls.unlock(lock_id, within_s)
            waiting.looks = 0
        waiting.blockers = tuple(each for each in blockers if each.lock_id not in dead)
        return mine.lock_id

    def _look_around(self, within_s: float) -> Queue:
        return Queue.of(self._calls.rows(within_s))

    def _blockers(self, waiting: _Waiting) -> tuple[LockedData, ...]:
        return tuple(shown(each, waiting.queue.blockers(each.lock_id, each.modes)) for each in waiting.blockers)

    def abandon(self, waiting: _Waiting) -> None:
        within_s = min(self._left_s(waiting), max(_LEAST_S, self._call_s))
        waiting.place.leave(self._calls, lambda: within_s)

    def take_back(self, waiting: _Waiting) -> None:
        calls = LockCalls(self._opening, self._place, self._warn)  # with a connection of its own: nobody waits for this one
        try:
            calls.remove(waiting.grant, _LEAST_S)
        finally:
            calls.close()

    def _extend(self, lease: Lease) -> str:
        began_s = self.runtime.monotonic_s()
        try:
            self._calls.heartbeat(lease.token, lease.remaining_s())
        except NoSuchLock:
            return "it expired in the metastore, or an operator broke it"
        lease.extend(began_s)
        return ""

    def _disconnect(self) -> None:
        self._calls.close()

    def _left_s(self, waiting: _Waiting) -> float:
        return max(_LEAST_S, waiting.until_s - self.runtime.monotonic_s())

    def _watch_until_over(self, queued: Queued) -> None:
        """Return once the request has shown no sign of life for its whole lease, or has gone."""
        holder = shown(queued, ())
        if holder.lease_s is None:
            raise LockError(
                f"the data locks with token {queued.lock_id} were not taken by lakelock but by {holder.owner}",
                hint="the metastore drops them when their holder is gone; to break them anyway, use force",
                token=queued.lock_id,
            )

        def heartbeat_ms() -> int | None:
            now = self._look_around(self._call_s).find(queued.lock_id)
            return None if now is None else now.first.heartbeat_ms

        self._outwait(queued.lock_id, holder.writer, holder.lease_s, queued.first.heartbeat_ms, heartbeat_ms)
