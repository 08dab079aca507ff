"""Storage that counts its requests, and storage that fails exactly where a plan says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase
from typing import IO, TypeVar

from lakelock.errors import StorageError, StorageUnavailable
from lakelock.storage import Listed, Stored
from tests.api import Storage

T = TypeVar("T")

BATCH = 1000
"""Keys that one delete request of an object store can carry; a longer delete counts as several requests."""

DATA_OPERATIONS = ("open_input", "open_output")


@dataclass(frozen=True)
class Call:
    """One request: `number` counts from 1 over all requests, `nth` from 1 over those of the same operation."""

    op: str
    key: str
    number: int
    nth: int


class Wrapped:
    """A storage in front of another that is told of every request before it goes through."""

    def __init__(self, inner: Storage) -> None:
        self.inner = inner

    def carry(self, op: str, key: str, request: Callable[[], T], *, weight: int = 1) -> T:
        """Send `request`. Subclasses look, fail or delay here."""
        return request()

    @property
    def uri(self) -> str:
        return self.inner.uri

    @property
    def listing_seeks(self) -> bool:
        return self.inner.listing_seeks

    def get(self, key: str) -> Stored | None:
        return self.carry("get", key, lambda: self.inner.get(key))

    def put_if_absent(self, key: str, data: bytes, *, durable: bool = True) -> str | None:
        return self.carry("put_if_absent", key, lambda: self.inner.put_if_absent(key, data, durable=durable))

    def put_if_match(self, key: str, data: bytes, etag: str) -> str | None:
        return self.carry("put_if_match", key, lambda: self.inner.put_if_match(key, data, etag))

    def put(self, key: str, data: bytes) -> None:
        return self.carry("put", key, lambda: self.inner.put(key, data))

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[Listed]:
        return self.carry("list", prefix, lambda: iter(tuple(self.inner.list(prefix, start_after=start_after))))

    def delete(self, keys: Iterable[str]) -> None:
        gone = list(keys)
        if gone:
            self.carry("delete", gone[0], lambda: self.inner.delete(gone), weight=-(-len(gone) // BATCH))

    def delete_folder(self, folder: str) -> None:
        self.carry("delete_folder", folder, lambda: self.inner.delete_folder(folder))

    def open_input(self, key: str, *, size_bytes: int = 0) -> IO[bytes]:
        return self.carry("open_input", key, lambda: self.inner.open_input(key, size_bytes=size_bytes))

    def open_output(self, key: str) -> IO[bytes]:
        return self.carry("open_output", key, lambda: self.inner.open_output(key))


class RepeatingStorage(Wrapped):
    """Sends each conditional request twice, as a client does that got no answer to the first, and returns the second answer."""

    def carry(self, op: str, key: str, request: Callable[[], T], *, weight: int = 1) -> T:
        if op in ("put_if_absent", "put_if_match"):
            request()
        return request()


class CountingStorage(Wrapped):
    """Counts requests by operation; `total` leaves out the opening of data files, `calls` is what was asked, in order."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.requests: Counter[str] = Counter()
        self.calls: list[tuple[str, str]] = []

    @property
    def total(self) -> int:
        return sum(count for op, count in self.requests.items() if op not in DATA_OPERATIONS)

    def reset(self) -> None:
        """Begin to count anew."""
        self.requests.clear()
        self.calls.clear()

    def carry(self, op: str, key: str, request: Callable[[], T], *, weight: int = 1) -> T:
        self.requests[op] += weight
        self.calls.append((op, key))
        return request()


class PagedStorage(CountingStorage):
    """Counts a listing by the pages of an object store that its reader asked for."""

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[Listed]:
        for number, item in enumerate(super().list(prefix, start_after=start_after)):
            self.requests["list"] += bool(number) and number % BATCH == 0
            yield item


class Fault(Enum):
    """What goes wrong with a request."""

    FAIL = "not sent; the caller is told that there was no reply"
    LOST_REPLY = "done; the caller is told that there was no reply"
    LATE = "the caller is told that there was no reply, and the request arrives later"


@dataclass(frozen=True)
class Rule:
    """Which requests fail, and how.

    `op` and `key` are shell patterns; `nth` picks one of the matching requests, counted from 1 (None: each of them).
    `error` is raised instead of `StorageUnavailable`; `late_by`: a LATE request arrives before the request that many
    later. `meanwhile` runs before anything else, which is how a test lets another writer act exactly here.
    """

    op: str = "*"
    key: str = "*"
    nth: int | None = 1
    fault: Fault | None = Fault.FAIL
    error: StorageError | None = None
    late_by: int = 1
    meanwhile: Callable[[], object] | None = None


Plan = Callable[[Call], Rule | None]


@dataclass
class _Late:
    due: int
    request: Callable[[], object]


@dataclass
class _Counts:
    all: int = 0
    by_op: Counter[str] = field(default_factory=Counter)
    by_rule: Counter[int] = field(default_factory=Counter)


class FaultyStorage(Wrapped):
    """Fails where `plan` says: rules, of which the first that applies wins, or a function from a call to its rule."""

    def __init__(self, inner: Storage, plan: Plan | Sequence[Rule] = ()) -> None:
        super().__init__(inner)
        self._plan = plan
        self._counts = _Counts()
        self._late: list[_Late] = []

    @property
    def plan(self) -> Plan | Sequence[Rule]:
        """What fails. A new plan counts its matching requests anew."""
        return self._plan

    @plan.setter
    def plan(self, plan: Plan | Sequence[Rule]) -> None:
        self._plan = plan
        self._counts.by_rule.clear()

    def deliver(self) -> int:
        """Let every late request arrive now; how many there were."""
        late, self._late = self._late, []
        for waiting in late:
            waiting.request()
        return len(late)

    def carry(self, op: str, key: str, request: Callable[[], T], *, weight: int = 1) -> T:
        self._counts.all += 1
        self._counts.by_op[op] += 1
        self._deliver_due()
        rule = self._rule_for(Call(op, key, self._counts.all, self._counts.by_op[op]))
        if rule is None:
            return request()
        if rule.meanwhile is not None:
            rule.meanwhile()
        if rule.fault is None:
            return request()
        if rule.fault is Fault.LOST_REPLY:
            request()
        elif rule.fault is Fault.LATE:
            self._late.append(_Late(self._counts.all + rule.late_by, request))
        raise rule.error or StorageUnavailable(f"{self.uri}/{key}: no reply to {op} (injected)", hint="none: this is a test")

    def _deliver_due(self) -> None:
        due = [waiting for waiting in self._late if waiting.due <= self._counts.all]
        self._late = [waiting for waiting in self._late if waiting.due > self._counts.all]
        for waiting in due:
            waiting.request()

    def _rule_for(self, call: Call) -> Rule | None:
        if callable(self._plan):
            return self._plan(call)
        for number, rule in enumerate(self._plan):
            if fnmatchcase(call.op, rule.op) and fnmatchcase(call.key, rule.key):
                self._counts.by_rule[number] += 1
                if rule.nth is None or rule.nth == self._counts.by_rule[number]:
                    return rule
        return None
