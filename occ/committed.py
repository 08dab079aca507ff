"""What a committed transaction did, for people and programs, and what it cost: its time in parts, its use of the commit lock.

`LockUse` is how long a commit held the lock, and how many requests it sent to storage meanwhile. The calls inside a block of
`counting` count, including those that `Runtime.gather` runs for them in other threads. Requests that other threads of the
process send meanwhile, such as heartbeats, do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from typing import IO, Any, Generic, TypeVar

from lakelock.clock import Runtime
from lakelock.conflict import Conflict
from lakelock.occ.log import Decision
from lakelock.occ.open_table import HeldLock, OpenTable
from lakelock.storage.base import Changes, Listed, Storage, Stored, changed
from lakelock.table.commit_metadata import WriteStat
from lakelock.texts import StrEnum, counted, size_text

PAGE_KEYS = 1000
"""How many keys one answer of an object store lists, and one request deletes."""


class Tally:
    """How many requests were sent. A listing or a deletion of many keys counts as one for each thousand."""

    def __init__(self) -> None:
        self._sent: list[int] = []

    def add(self, requests: int = 1) -> None:
        self._sent.append(requests)  # in one step, whatever the thread

    @property
    def requests(self) -> int:
        return sum(self._sent)

    def pages(self, listed: Iterator[Listed]) -> Iterator[Listed]:
        """The same objects; each page that is begun is counted."""
        for number, item in enumerate(listed):
            if number and number % PAGE_KEYS == 0:
                self.add()
            yield item


_tally: ContextVar[Tally | None] = ContextVar("lakelock_requests", default=None)


@contextmanager
def counting(tally: Tally) -> Iterator[None]:
    """Count the requests to any `CountedStorage` inside the block in `tally`."""
    token = _tally.set(tally)
    try:
        yield
    finally:
        _tally.reset(token)


class CountedStorage:
    """A storage whose requests `counting` counts; outside such a block it costs one look-up for each request."""

    def __init__(self, inner: Storage) -> None:
        self._inner = inner

    @property
    def uri(self) -> str:
        return self._inner.uri

    @property
    def listing_seeks(self) -> bool:
        return self._inner.listing_seeks

    def get(self, key: str) -> Stored | None:
        _count()
        return self._inner.get(key)

    def put_if_absent(self, key: str, data: bytes, *, durable: bool = True) -> str | None:
        _count()
        return self._inner.put_if_absent(key, data, durable=durable)

    def put_if_match(self, key: str, data: bytes, etag: str) -> str | None:
        _count()
        return self._inner.put_if_match(key, data, etag)

    def put(self, key: str, data: bytes) -> None:
        _count()
        self._inner.put(key, data)

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[Listed]:
        _count()
        listed, tally = self._inner.list(prefix, start_after=start_after), _tally.get()
        return listed if tally is None else tally.pages(listed)

    def changed(self, prefix: str, since: int) -> tuple[int, Changes | None]:
        mark, found = changed(self._inner, prefix, since)
        if mark:
            _count()
        return mark, found

    def delete(self, keys: Iterable[str]) -> None:
        gone = [*keys]
        _count(-(-len(gone) // PAGE_KEYS))
        self._inner.delete(gone)

    def delete_folder(self, folder: str) -> None:
        _count()
        self._inner.delete_folder(folder)

    def open_input(self, key: str, *, size_bytes: int = 0) -> IO[bytes]:
        _count()
        return self._inner.open_input(key, size_bytes=size_bytes)

    def open_output(self, key: str) -> IO[bytes]:
        _count()
        return self._inner.open_output(key)


def _count(requests: int = 1) -> None:
    tally = _tally.get()
    if tally is not None:
        tally.add(requests)


class Phase(StrEnum):
    """LOOK_UP finds which files hold the rows, SHUFFLE computes the rows of the call and brings them together, WRITE merges
    and encodes files: Spark does the last two in one stage, so they are one phase. VALIDATE is the commit up to its decision
    without the wait for the lock, PUBLISH makes the decision visible.
    """

    LOOK_UP = "look-up"
    SHUFFLE = "shuffle"
    WRITE = "write"
    LOCK_WAIT = "lock-wait"
    VALIDATE = "validate"
    PUBLISH = "publish"


class Phases:
    """Adds up seconds by phase. The time of a phase inside another one counts for the inner one only."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._seconds: dict[Phase, float] = dict.fromkeys(Phase, 0.0)
        self._running: list[Phase] = []
        self._since_s = 0.0

    @contextmanager
    def during(self, phase: Phase) -> Iterator[None]:
        """The time of the block is this phase's."""
        self._settle()
        self._running.append(phase)
        try:
            yield
        finally:
            self._settle()
            self._running.pop()

    def seconds(self) -> Mapping[str, float]:
        """Seconds so far by the name of the phase, in the order of the work; phases that took no time are left out."""
        self._settle()
        return {phase.value: round(took_s, 3) for phase, took_s in self._seconds.items() if took_s > 0}

    def _settle(self) -> None:
        """Count the time since the last change for the innermost phase."""
        now_s = self._runtime.monotonic_s()
        if self._running:
            self._seconds[self._running[-1]] += now_s - self._since_s
        self._since_s = now_s


@dataclass
class LockUse:
    """Seconds and requests of one commit, over all times that it took the lock. The lock service's own are not counted."""

    table: OpenTable
    phases: Phases
    wait_s: float = 0.0
    tally: Tally = field(default_factory=Tally)
    _held_s: float = 0.0
    _since_s: float | None = None

    @contextmanager
    def holding(
        self, instant: str, operation: str, meanwhile: Sequence[Callable[[], Any]] = (), wait_s: float | None = None
    ) -> Iterator[HeldLock]:  # fmt: skip
        """Hold the table's commit lock, and count; see `OpenTable.holding`."""
        try:
            with ExitStack() as stack:
                with self.phases.during(Phase.LOCK_WAIT):
                    lock = stack.enter_context(self.table.holding(instant, operation, meanwhile, wait_s))
                self._since_s = lock.since_s
                self.wait_s += lock.waited_s
                with counting(self.tally):
                    yield lock
        finally:
            self._held_s, self._since_s = self.held_s, None

    @property
    def held_s(self) -> float:
        """For how long the lock has been held so far, to the end of its release."""
        return self._held_s + (0.0 if self._since_s is None else self.table.runtime.monotonic_s() - self._since_s)

    @property
    def requests(self) -> int:
        """How many requests were made of the table's storage under the lock so far."""
        return self.tally.requests


RESTORE = "RESTORE"
"""The name for people; Hudi has no such commit operation, so the commit carries another name."""
Returned = TypeVar("Returned")


@dataclass(frozen=True, repr=False)
class WriteResult:
    """A committed write. `instant` names it in `table.read(as_of=...)` and `table.changes(since=...)`.

    Counts are rows. `rows_inserted` are new rows, `rows_updated` replaced ones; rows that were merely copied into a new
    file are not counted. `redone` counts the attempts lost to conflicts, `conflicts` says with whom. `files_kept` of the files
    were taken over from such an attempt. `phases` are the seconds of the last attempt by phase, as far as
    they can be distinguished: `look-up`, `shuffle`, `write` (merge and encode), `lock-wait`, `validate`, `publish`.
    """

    operation: str
    instant: str
    completion: str
    rows_inserted: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0
    files: int = 0
    size_bytes: int = 0
    files_kept: int = 0
    lock_wait_s: float = 0.0
    lock_held_s: float = 0.0
    lock_requests: int = 0
    """What was asked of the table's storage under the lock. A listing counts as one request for each 1,000 keys."""
    took_s: float = 0.0
    attempts: int = 1
    conflicts: tuple[Conflict, ...] = ()
    phases: Mapping[str, float] = field(default_factory=dict)
    already_applied: bool = False

    @property
    def redone(self) -> int:
        """The attempts that were lost to conflicts."""
        return self.attempts - 1

    def as_dict(self) -> dict[str, object]:
        """Plain values, for logs and JSON."""
        values: dict[str, object] = {each.name: getattr(self, each.name) for each in fields(WriteResult)}
        return {**values, "conflicts": [conflict.as_dict() for conflict in self.conflicts], "phases": {**self.phases}}

    def __repr__(self) -> str:
        if self.already_applied:
            return f"{self.operation} {self.instant}: applied before, nothing changed"
        changes = [
            f"{count:,} {what}"
            for count, what in (
                (self.rows_inserted, "inserted"),
                (self.rows_updated, "updated"),
                (self.rows_deleted, "deleted"),
            )
            if count
        ]
        rows = ", ".join(changes) or ("restored" if self.operation == RESTORE else "no rows changed")
        waited = f", waited {self.lock_wait_s:.1f} s for the lock" if self.lock_wait_s >= 0.05 else ""
        again = f", attempt {self.attempts}" if self.attempts > 1 else ""
        if self.files_kept:
            again += f", which redid {self.files - self.files_kept} of {counted(self.files, 'file')}"
        files = f"{counted(self.files, 'file')}, {size_text(self.size_bytes)}"
        return f"{self.operation} {self.instant}: {rows} ({files}) in {self.took_s:.1f} s{waited}{again}"


@dataclass(frozen=True, repr=False)
class Committed(WriteResult):
    """A write's result with fields for internal use."""

    decision: int = 0
    rows_written: int = 0

    @classmethod
    def of(
        cls,
        decision: Decision,
        stats: Sequence[WriteStat],
        *,
        kept: int,
        lock: LockUse,
        took_s: float,
        phases: Mapping[str, float],
    ) -> Committed:
        """The result of a published decision and the files that it made visible."""
        return cls(
            instant=decision.instant,
            completion=decision.completion,
            decision=decision.number,
            operation=decision.operation,
            rows_written=sum((s.num_inserts or 0) + (s.num_update_writes or 0) for s in stats),
            rows_inserted=sum(s.num_inserts or 0 for s in stats),
            rows_updated=sum(s.num_update_writes or 0 for s in stats),
            rows_deleted=sum(s.num_deletes or 0 for s in stats),
            files=len(stats),
            files_kept=kept,
            size_bytes=sum(s.file_size_bytes or 0 for s in stats),
            lock_wait_s=round(lock.wait_s, 3),
            lock_held_s=round(lock.held_s, 3),
            lock_requests=lock.requests,
            took_s=round(took_s, 3),
            phases=phases,
        )

    @property
    def facts(self) -> dict[str, object]:
        """What the event of the commit tells."""
        return {"decision": self.decision, "rows": self.rows_written, **{name: getattr(self, name) for name in _IN_EVENT}}


_IN_EVENT = (
    "files", "rows_inserted", "rows_updated", "rows_deleted", "size_bytes", "took_s", "lock_wait_s", "lock_held_s",
    "lock_requests", "phases",
)  # fmt: skip


@dataclass(frozen=True, repr=False)
class RunResult(WriteResult, Generic[Returned]):
    """What `LakeTable.run` committed. `value` is what the function returned in the attempt that was committed.

    None if that was `already_applied`: then the function was not called, or all that it wrote was withdrawn.
    """

    value: Returned | None = None

    @classmethod
    def of_run(cls, done: Committed, value: Returned | None) -> RunResult[Returned]:
        return cls(**{each.name: getattr(done, each.name) for each in fields(WriteResult)}, value=value)
