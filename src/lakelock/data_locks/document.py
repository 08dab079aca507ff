"""Data locks as one document changed by compare-and-swap, for services that have no shared locks of their own.

Each request is one write, however many partitions it names, and each grant happens in the write that made it possible.
The document is in a register: an object next to the table, memory, Redis or Valkey (one hash, changed by a script that
compares and swaps as one step), or DynamoDB (an item of its own in the lock table, replaced under a condition, and kept
compressed: a request for a thousand partitions is then a few KB, and DynamoDB charges each KB that is written).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote

from lakelock.clock import ForkSafeMutex
from lakelock.data_locks.base import DataLease, LockedData, LockRequest, PollingDataLocks, Waiting
from lakelock.data_locks.lock_table import Entry, LockTable, Watch, watch_s
from lakelock.errors import CorruptTableError, LockError, StorageUnavailable
from lakelock.providers.base import NO_ANSWER, Lease, Opening
from lakelock.providers.dynamodb_table import ConditionFailed, DynamodbOptions, DynamodbTable, place_of
from lakelock.providers.redis.client import RedisClient, Script, Subscription
from lakelock.providers.redis.lock import key_of
from lakelock.providers.redis.servers import RedisAddress, RedisOptions
from lakelock.storage import Storage
from lakelock.table import layout
from lakelock.texts import command


@dataclass(frozen=True)
class Version:
    """The document as read; `tag` changes with every write."""

    data: bytes
    tag: str


class ChangeSubscription(Protocol):
    """Is notified when one request is granted. Raises as registers do."""

    def wait(self, at_most_s: float) -> object:
        """Return on notification, or when the time is over."""
        ...

    def close(self) -> None:
        """Never raises."""
        ...


class Register(Protocol):
    """Raises `StorageUnavailable` or `ProviderUnavailable` when a request got no definite answer."""

    lies_in_table: bool = False
    """Whether each table has a document of its own, whatever its `identity`."""

    @property
    def identity(self) -> str:
        """Where the document is; holds no secret."""
        ...

    def read(self) -> Version | None:
        """The document, None before its first write."""
        ...

    def swap(self, data: bytes, before: Version | None) -> Version | None:
        """Replace the version `before` (None: create); the new version, or None if `before` was no longer current."""
        ...

    def listen(self, grant: str) -> ChangeSubscription | None:
        """A subscription that receives every later notification to `grant`; None where the service cannot notify."""
        return None

    def wake(self, grants: Collection[str]) -> None:
        """Notify these requests that they were granted, where the service can. A notification may get lost."""
        return

    def close(self) -> None:
        """Close the connections. Never raises."""
        ...


class StorageRegister(Register):
    """An object next to the table."""

    lies_in_table = True

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    @property
    def identity(self) -> str:
        return f"storage:{layout.DATA_LOCKS}"

    def read(self) -> Version | None:
        found = self._storage.get(layout.DATA_LOCKS)
        return None if found is None else Version(found.data, found.etag)

    def swap(self, data: bytes, before: Version | None) -> Version | None:
        storage = self._storage
        etag = (
            storage.put_if_absent(layout.DATA_LOCKS, data)
            if before is None
            else storage.put_if_match(layout.DATA_LOCKS, data, before.tag)
        )
        return None if etag is None else Version(data, etag)

    def close(self) -> None:
        """Storage has no connection to close."""


_documents: dict[str, Version] = {}
_documents_mutex = ForkSafeMutex()


class MemoryRegister(Register):
    """A variable that all writers of one table in this process share."""

    lies_in_table = True

    def __init__(self, table: str) -> None:
        self._table = table

    @property
    def identity(self) -> str:
        return "memory:"

    def read(self) -> Version | None:
        with _documents_mutex:
            return _documents.get(self._table)

    def swap(self, data: bytes, before: Version | None) -> Version | None:
        with _documents_mutex:
            if _documents.get(self._table) != before:
                return None
            new = Version(data, str(int(before.tag) + 1 if before else 1))
            _documents[self._table] = new
            return new

    def close(self) -> None:
        """There is nothing to close."""


_LONGEST_SWAP_PAUSE_S = 0.05
_SWAPS = 200
_RELEASE_ATTEMPTS = 3


@dataclass
class _Waiting(Waiting):
    """One `acquire`. `sent`: when the write that made a version of my entry was about to be sent."""

    entry: Entry
    sent: dict[tuple[int, int], float] = field(default_factory=dict)
    blockers: tuple[LockedData, ...] = ()
    subscription: ChangeSubscription | None = None

    def unsubscribe(self) -> None:
        subscription, self.subscription = self.subscription, None
        if subscription is not None:
            subscription.close()


class DocumentDataLocks(PollingDataLocks[_Waiting]):
    """The lock table of one table in a register."""

    def __init__(self, opening: Opening, register: Register) -> None:
        super().__init__(opening)
        self._register, self.lies_in_table = register, register.lies_in_table
        # Kept across requests: a writer that only asks now and then, without waiting, must get past the dead, too.
        self._watch = Watch(opening.runtime)

    def watch_s(self, lease_s: float) -> float:
        return watch_s(lease_s)

    @property
    def identity(self) -> str:
        return self._register.identity

    def inspect(self) -> tuple[LockedData, ...]:
        _, table = self._read()
        return tuple(_shown(table, entry) for entry in table.entries)

    def break_all(self) -> None:
        self._clear()

    def _break(self, token: int, *, force: bool) -> None:
        entry = self._by_token(token)
        if entry is None:
            return
        if not force:

            def version() -> tuple[int, int] | None:
                now = self._by_token(token)
                return None if now is None else now.version

            self._outwait(token, entry.writer, entry.lease_s, entry.version, version)
        self._remove(entry.grant)

    def _begin(self, request: LockRequest, grant: str, until_s: float) -> _Waiting:
        entry = Entry(grant, request, self.writer, self._settings.lease_s, self.runtime.now_ms())
        return _Waiting(request, grant, until_s, entry)

    def _wait(self, waiting: _Waiting, began_s: float, wait_s: float) -> DataLease:
        try:
            return super()._wait(waiting, began_s, wait_s)
        finally:
            waiting.unsubscribe()

    def _pause(self, waiting: _Waiting, at_most_s: float) -> None:
        """Wait to be notified where the service can notify, otherwise for a growing pause."""
        if waiting.blockers:
            try:
                if waiting.subscription is not None:
                    waiting.subscription.wait(min(self._pause_s(), at_most_s))
                    return
                waiting.subscription = self._register.listen(waiting.grant)
                if waiting.subscription is not None:  # my turn may have come before I was subscribed: look once more
                    return
            except NO_ANSWER:
                waiting.unsubscribe()
        super()._pause(waiting, at_most_s)

    def _look(self, waiting: _Waiting) -> DataLease | None:
        mine = self._my_entry(waiting)
        return self._lease(waiting, mine.number, waiting.sent[mine.version]) if mine.held else None

    def _my_entry(self, waiting: _Waiting) -> Entry:
        """My entry as it is now: queued if it was not, renewed when due, with dead entries before it removed."""

        renew_s = self._settings.renew_s

        def next_table(table: LockTable) -> LockTable:
            grant, now_ms = waiting.entry.grant, self.runtime.now_ms()
            mine = table.find(grant)
            if mine is not None and self.runtime.monotonic_s() - waiting.sent.get(mine.version, float("-inf")) >= renew_s:
                table = table.renewed(grant)
            table = table.enqueued(waiting.entry, now_ms)
            mine = table.find(grant)
            assert mine is not None
            if dead := self._watch.over(table.blockers(mine)):
                table = table.without(dead, now_ms)
                mine = table.find(grant)
                assert mine is not None
            # The earliest request that may have made this version counts: its reply may have been lost.
            waiting.sent.setdefault(mine.version, self.runtime.monotonic_s())
            return table

        table = self._update(next_table)
        mine = table.find(waiting.entry.grant)
        assert mine is not None
        blockers = table.blockers(mine)
        self._watch.see(table.entries)
        waiting.blockers = tuple(_shown(table, blocker) for blocker in blockers)
        return mine

    def _blockers(self, waiting: _Waiting) -> tuple[LockedData, ...]:
        return waiting.blockers

    def _read(self) -> tuple[Version | None, LockTable]:
        """The document as it is now, and the table in it: an empty one before its first write."""
        version = self._register.read()
        return version, LockTable.from_bytes(version.data) if version else LockTable()

    def _update(self, change: Callable[[LockTable], LockTable]) -> LockTable:
        """Apply a change that does no harm when applied twice, and return the table with it."""
        for _ in range(_SWAPS):
            version, table = self._read()
            changed = change(table)
            if changed is table or self._register.swap(changed.to_bytes(), version) is not None:
                self._wake(table, changed)
                return changed
            self.runtime.sleep(_LONGEST_SWAP_PAUSE_S * self.runtime.random())
        raise StorageUnavailable(
            f"the data locks of {self.table} changed at each of {_SWAPS} attempts to write them", hint="run the operation again"
        )

    def _wake(self, before: LockTable, after: LockTable) -> None:
        """Notify those whose turn has come; a waiter that misses it finds out by looking."""
        waited = {entry.grant for entry in before.entries if not entry.held}
        granted = [entry.grant for entry in after.entries if entry.held and entry.grant in waited]
        if granted:
            with suppress(*NO_ANSWER):
                self._register.wake(granted)

    def abandon(self, waiting: _Waiting) -> None:
        self._remove(waiting.grant)

    def _extend(self, lease: Lease) -> str:
        began_s = self.runtime.monotonic_s()
        if self._update(lambda table: table.renewed(lease.grant)).find(lease.grant) is None:
            return "another writer took it for dead, or an operator broke it"
        lease.extend(began_s)
        return ""

    def _disconnect(self) -> None:
        self._register.close()

    def _remove(self, grant: str) -> None:
        for remaining in reversed(range(_RELEASE_ATTEMPTS)):
            try:
                self._update(lambda table: table.without([grant], self.runtime.now_ms()))
                return
            except NO_ANSWER:
                if not remaining:
                    raise

    def _by_token(self, token: int) -> Entry | None:
        _, table = self._read()
        return next((entry for entry in table.entries if entry.number == token), None)

    def _clear(self) -> None:
        """Start over, with tokens above all earlier ones."""
        version = self._register.read()
        if version is None:
            return
        try:
            latest = LockTable.from_bytes(version.data).latest
        except CorruptTableError:
            latest = self.runtime.now_ms()
        if self._register.swap(LockTable(latest).to_bytes(), version) is None:
            raise LockError(
                "the data locks changed just now; nothing was broken",
                hint=f"look again with `{command('locks', 'ls', self.table)}`",
            )


def _shown(table: LockTable, entry: Entry) -> LockedData:
    return LockedData(
        token=entry.number,
        owner=entry.grant,
        request=entry.request,
        held=entry.held,
        writer=entry.writer,
        lease_s=entry.lease_s,
        since_ms=entry.since_ms,
        acquired_ms=entry.acquired_ms,
        blocked_by=() if entry.held else tuple(blocker.number for blocker in table.blockers(entry)),
    )


READ = Script(
    """
local now = redis.call('time')
return {redis.call('hget', KEYS[1], 'tag') or '', redis.call('hget', KEYS[1], 'data') or '',
        now[1] * 1000 + math.floor(now[2] / 1000)}
"""
)
""" -> tag and document, both empty where there is none, and the server's clock in ms."""

SWAP = Script(
    """
if (redis.call('hget', KEYS[1], 'tag') or '') ~= ARGV[1] then return 0 end
redis.call('hset', KEYS[1], 'tag', ARGV[2], 'data', ARGV[3])
return 1
"""
)
"""tag before ('' for none), new tag, new document -> 1, or 0 when the tag is another one."""

WAKE = Script("for _, grant in ipairs(ARGV) do redis.call('publish', KEYS[1] .. ':granted:' .. grant, 'granted') end")
"""grants -> nothing; each listens to a channel of its own."""


@dataclass(frozen=True)
class DocumentKey:
    """The one key of the document, with the hash tag of the commit lock, so that a cluster keeps both on one server."""

    key: str

    @property
    def names(self) -> tuple[str, ...]:
        return (f"{{{self.key}}}:data-locks",)

    def channel(self, grant: str) -> str:
        return f"{self.names[0]}:granted:{grant}"


class RedisRegister(Register):
    """One hash. Its tag is random, so that a document that came back after a failover is never taken for another one."""

    def __init__(self, opening: Opening) -> None:
        self._address = RedisAddress.parse(opening.uri)
        self._key = DocumentKey(self._address.key or key_of(opening.storage.uri))
        self._runtime, longest_s = opening.runtime, opening.settings.data_locks.lease_s / 3
        options = RedisOptions.of(opening.settings.lock_options, self._address)
        self._client = RedisClient(self._address, options, self._key, opening.runtime, longest_s=longest_s)

    @property
    def identity(self) -> str:
        return self._address.identity(self._key.names[0])

    def read(self) -> Version:
        """The document. One that is not there, or was lost, begins above all tokens that this server can have given."""
        tag, data, now_ms = self._run(READ)
        return Version(data if tag else LockTable(latest=now_ms).to_bytes(), tag.decode())

    def swap(self, data: bytes, before: Version | None) -> Version | None:
        new = Version(data, self._runtime.uuid())
        return new if self._run(SWAP, before.tag if before else "", new.tag, data.decode()) else None

    def listen(self, grant: str) -> Subscription:
        return self._client.listen(self._key.channel(grant))

    def wake(self, grants: Collection[str]) -> None:
        self._client.run(WAKE, *grants)

    def close(self) -> None:
        self._client.close()

    def _run(self, script: Script, *arguments: str) -> Any:
        """The answer. Where replicas are asked for, only what they have counts, even for reads."""
        answer, replicas = self._client.run_as_asked(script, *arguments)
        self._client.ensure_replicated(replicas, f"the data locks at {self._address.place}")
        return answer


_MOST_BYTES = 390_000
"""DynamoDB takes items of 400 KB. The rest is kept for requests that are already in the table: their renewals must not fail."""
_RENEWAL_BYTES = 200
"""By how much a document may grow without a new request in it."""
_LONGEST = 1 << 26


class DynamodbRegister(Register):
    """One item; its version is a new UUID with every write."""

    def __init__(self, opening: Opening) -> None:
        name, key = place_of(opening.uri, opening.storage)
        self._key = f"{key}#lakelock-data"
        options, self._runtime = DynamodbOptions.of(opening.settings.lock_options), opening.runtime
        self._table = DynamodbTable(name, options, opening.runtime)

    @property
    def identity(self) -> str:
        return f"dynamodb://{self._table.name}/{quote(self._key)}?{self._table.place}"

    def read(self) -> Version | None:
        item = self._table.get(self._key)
        if item is None or "documentVersion" not in item:
            return None
        return Version(_unpacked(bytes(item.get("document", {}).get("B", b""))), str(item["documentVersion"].get("S")))

    def swap(self, data: bytes, before: Version | None) -> Version | None:
        new, packed = Version(data, self._runtime.uuid()), zlib.compress(data)
        if len(packed) > _MOST_BYTES and len(data) > len(before.data if before else b"") + _RENEWAL_BYTES:
            raise LockError(
                f"the data locks of this table would take {len(packed)} bytes, and a DynamoDB item takes 400 KB",
                hint="lower data_locks.escalate_above, so that a request for many partitions becomes one lock on their parent",
            )
        values: dict[str, dict[str, str | bytes]] = {":new": {"S": new.tag}, ":data": {"B": packed}}
        when = "attribute_not_exists(#dv)"
        if before is not None:
            when, values[":seen"] = "#dv = :seen", {"S": before.tag}
        try:
            self._table.update(self._key, "SET #dv = :new, #dd = :data", values, when, returning=False)
        except ConditionFailed:
            return None
        return new

    def close(self) -> None:
        self._table.close()


def _unpacked(data: bytes) -> bytes:
    """The document; bytes that are not one are returned unchanged, and the reader then finds them broken."""
    try:
        return zlib.decompressobj().decompress(data, _LONGEST)
    except zlib.error:
        return data
