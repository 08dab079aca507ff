"""Storage in the simulator: one linearizable server, and for each process a client whose requests can go wrong.

The server does what object stores promise: each request takes effect at one point in time between its sending and its answer, a
listing is consistent within a page, and pages are fetched one after the other, in the order of keys or, in a directory bucket,
in none. Everything else is the client's problem.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from io import BytesIO
from types import TracebackType
from typing import IO, Protocol, TypeVar
from zlib import crc32

from lakelock.errors import StorageError, StorageUnavailable
from lakelock.storage import Listed, Stored
from lakelock.storage.base import METADATA_FOLDER, is_shown
from lakelock.storage.objects import of_one_moment
from tests.simulator.faults import FaultKind, Faults, Weather
from tests.simulator.runtime import START_MS
from tests.simulator.scheduler import Dead, Hub, Process

T = TypeVar("T")


_AFTER_METADATA = f"{METADATA_FOLDER}0"
_ANY_FOLDER = "folder"


class Observer(Protocol):
    """Sees every change of the stored objects, just before it is made."""

    def writes(self, key: str, data: bytes, process: Process) -> None: ...

    def deletes(self, key: str, process: Process) -> None: ...


class SimServer:
    """The objects and their observer. Times are those of the storage's own clock, which is exact."""

    def __init__(self, hub: Hub, name: str = "simulated") -> None:
        self.hub, self.uri = hub, f"memory://{name}"
        self.objects: dict[str, Stored] = {}
        self.keys: list[str] = []
        self._listed: dict[str, Listed] = {}
        self._hidden: set[str] = set()
        self._ever: set[str] = set()
        self.observer: Observer | None = None
        self._versions = 0

    def get(self, key: str) -> Stored | None:
        return self.objects.get(key)

    def write(self, key: str, data: bytes, process: Process) -> str:
        if self.observer is not None:
            self.observer.writes(key, data, process)
        self._versions += 1
        etag = f"v{self._versions}"
        if key not in self.objects:
            insort(self.keys, key)
            self._ever.add(key)
            if not is_shown(key, _ANY_FOLDER):
                self._hidden.add(key)
        stored = self.objects[key] = Stored(data, etag, START_MS + round(self.hub.now_s * 1000))
        self._listed[key] = Listed(key, len(data), stored.modified_ms)
        return etag

    def put_if_absent(self, key: str, data: bytes, process: Process) -> str | None:
        return None if key in self.objects else self.write(key, data, process)

    def put_if_match(self, key: str, data: bytes, etag: str, process: Process) -> str | None:
        found = self.objects.get(key)
        return None if found is None or found.etag != etag else self.write(key, data, process)

    def has_had(self, key: str) -> bool:
        """Whether there has ever been such an object, for observers."""
        return key in self._ever

    def delete(self, keys: Sequence[str], process: Process) -> None:
        for key in keys:
            if key in self.objects:
                if self.observer is not None:
                    self.observer.deletes(key, process)
                del self.objects[key], self._listed[key]
                self._hidden.discard(key)
                del self.keys[bisect_left(self.keys, key)]

    def page(self, prefix: str, start_after: str, most: int) -> tuple[list[Listed], bool]:
        """The next at most `most` objects of a folder after a key, and whether there are more."""
        # Without a prefix only data files show; the metadata folder, which sorts before them, does not.
        start, end = (prefix + "/", prefix + "0") if prefix else (_AFTER_METADATA, "\U0010ffff")
        first = max(bisect_left(self.keys, start), bisect_right(self.keys, start_after) if start_after else 0)
        last = bisect_left(self.keys, end)
        cut = min(last, first + most)
        found = self.keys[first:cut]
        listed, hidden = self._listed, self._hidden
        shown = [listed[key] for key in found if key not in hidden] if hidden else [listed[key] for key in found]
        if cut < last and found:
            return [*shown, Listed(found[-1], -1, 0)], True
        return shown, False

    def scattered(self, prefix: str, after: tuple[int, str], most: int) -> tuple[list[Listed], bool]:
        """The next at most `most` objects of a folder in an order that says nothing, and whether there are more."""
        keys = self.folder(prefix) if prefix else self.keys[bisect_left(self.keys, _AFTER_METADATA) :]
        places = sorted(place for place in map(scattered_place, keys) if place > after)
        return [self._listed[key] for _, key in places[:most]], len(places) > most

    def folder(self, prefix: str) -> list[str]:
        """Keys in a folder now, for observers."""
        first, last = bisect_left(self.keys, prefix + "/"), bisect_left(self.keys, prefix + "0")
        return self.keys[first:last]


def scattered_place(key: str) -> tuple[int, str]:
    """Where a key comes in a listing that has no order."""
    return crc32(key.encode()), key


class SimStorage:
    """One process's way to the storage; implements `lakelock.storage.Storage`."""

    def __init__(
        self, server: SimServer, process: Process, faults: Faults, network: Process, *, page_keys: int, scattered: bool = False
    ) -> None:
        self._server, self._process, self._faults, self._network = server, process, faults, network
        self._hub, self._page_keys, self._scattered = server.hub, page_keys, scattered

    @property
    def uri(self) -> str:
        return self._server.uri

    @property
    def listing_seeks(self) -> bool:
        return not self._scattered

    def has_had(self, key: str) -> bool:
        """Whether there has ever been such an object: common knowledge, not a request."""
        return self._server.has_had(key)

    def get(self, key: str) -> Stored | None:
        return self._read("get", key, lambda: self._server.get(key))

    def put_if_absent(self, key: str, data: bytes, *, durable: bool = True) -> str | None:
        return self._write("put-if-absent", key, lambda: self._server.put_if_absent(key, data, self._process))

    def put_if_match(self, key: str, data: bytes, etag: str) -> str | None:
        return self._write("put-if-match", key, lambda: self._server.put_if_match(key, data, etag, self._process))

    def put(self, key: str, data: bytes) -> None:
        self._write("put", key, lambda: self._server.write(key, data, self._process), again_later=True)

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[Listed]:
        if self._scattered:
            yield from self._sorted_here(prefix, start_after)
            return
        more = True
        while more:
            after = start_after
            page, more = self._read("list", prefix, lambda after=after: self._server.page(prefix, after, self._page_keys))  # type: ignore[misc]
            if more:  # its last item only says where to continue
                start_after = page.pop().key
            yield from page

    def _sorted_here(self, prefix: str, start_after: str) -> Iterator[Listed]:
        """As `lakelock.storage.objects.sorted_here` lists a folder."""
        collected = partial(self._collected, prefix)
        found = of_one_moment(collected, self._page_keys) if prefix else collected()
        shown = (item for item in found if item.key > start_after and is_shown(item.key, prefix))
        yield from sorted(shown, key=lambda item: item.key)

    def _collected(self, prefix: str) -> Iterator[Listed]:
        after, more = (-1, ""), True
        while more:
            page, more = self._read("list", prefix, partial(self._server.scattered, prefix, after, self._page_keys))
            after = scattered_place(page[-1].key) if page else after
            yield from page

    def delete(self, keys: Iterable[str]) -> None:
        gone = list(keys)
        if gone:
            self._write("delete", gone[0], lambda: self._server.delete(gone, self._process), again_later=True)

    def delete_folder(self, folder: str) -> None:
        self.delete(item.key for item in self.list(folder))

    def open_input(self, key: str, *, size_bytes: int = 0) -> IO[bytes]:
        found = self._read("open", key, lambda: self._server.get(key))
        if found is None:
            raise StorageError(
                f"{self.uri}/{key}: no such file", hint="check the path; another process may have removed it", missing=True
            )
        return BytesIO(found.data)

    def open_output(self, key: str) -> IO[bytes]:
        return _Upload(self, key)

    def upload(self, key: str, data: bytes) -> None:
        self._write("upload", key, lambda: self._server.write(key, data, self._process))

    def _read(self, op: str, key: str, effect: Callable[[], T]) -> T:
        process, hub = self._process, self._hub
        if process.dead:
            raise Dead
        delay, fault = self._faults.fate(hub.current, f"{op} {key}", writes=False)
        if fault is None:
            hub.wait(delay)
            return effect()
        self._before(fault.kind, fault.amount_s)
        hub.wait(delay + (fault.amount_s if fault.kind is FaultKind.SLOW else 0.0))
        if fault.kind is FaultKind.UNAVAILABLE:
            hub.wait(fault.amount_s)
            raise _no_answer(op, key)
        result = effect()
        self._after(fault.kind, fault.amount_s)
        return result

    def _write(self, op: str, key: str, effect: Callable[[], T], *, again_later: bool = False) -> T:
        process, hub = self._process, self._hub
        if process.dead:
            raise Dead
        delay, fault = self._faults.fate(hub.current, f"{op} {key}", writes=True)
        if fault is None:
            hub.wait(delay)
            return effect()
        kind, amount_s = fault.kind, fault.amount_s
        if op == "upload" and kind is FaultKind.LATE:  # an assumption: see docs/robustness.md
            kind = FaultKind.LOST_REPLY
        self._before(kind, amount_s)
        hub.wait(delay + (amount_s if kind is FaultKind.SLOW else 0.0))
        if kind is FaultKind.UNAVAILABLE:
            hub.wait(amount_s)
            raise _no_answer(op, key)
        if kind is FaultKind.LATE:
            hub.spawn(self._network, lambda: _do(effect), f"late/{fault.label}/{fault.request}", after_s=amount_s)
            hub.wait(delay)
            raise _no_answer(op, key)
        result = effect()
        if kind is FaultKind.LOST_REPLY:
            hub.wait(amount_s)
            raise _no_answer(op, key)
        if kind is FaultKind.DUPLICATE and op != "upload":
            if again_later:
                hub.spawn(self._network, lambda: _do(effect), f"again/{fault.label}/{fault.request}", after_s=amount_s)
            else:
                hub.wait(delay)
                result = effect()
        self._after(kind, amount_s)
        return result

    def _before(self, kind: FaultKind, amount_s: float) -> None:
        if kind is FaultKind.CRASH:
            self._hub.kill(self._process)
        if kind is FaultKind.PAUSE:
            self._hub.pause(self._process, amount_s)
            self._hub.wait(0.0)

    def _after(self, kind: FaultKind, amount_s: float) -> None:
        if kind is FaultKind.CRASH_AFTER and not self._faults.spared():  # not spared before: the request was the decision
            self._hub.kill(self._process)
        if kind is FaultKind.PAUSE_AFTER:
            self._hub.pause(self._process, amount_s)
            self._hub.wait(0.0)


class ObserversStorage(SimStorage):
    """How an observer reads: requests take no time and never fail."""

    def __init__(self, server: SimServer) -> None:
        observer = Process("observer", 0)
        super().__init__(server, observer, Faults(Weather({})), observer, page_keys=1_000_000)

    def _read(self, op: str, key: str, effect: Callable[[], T]) -> T:
        return effect()


class _Upload(BytesIO):
    """A data file, uploaded in one request when it is closed; discarded when its block ends with an error."""

    def __init__(self, storage: SimStorage, key: str) -> None:
        super().__init__()
        self._storage, self._key, self._done = storage, key, False

    def close(self) -> None:
        if not self.closed:
            data = self.getvalue()
            super().close()
            if not self._done:
                self._done = True
                self._storage.upload(self._key, data)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._done = self._done or kind is not None
        self.close()

    def __del__(self) -> None:
        self._done = True


def _do(effect: Callable[[], object]) -> None:
    effect()


def _no_answer(op: str, key: str) -> StorageUnavailable:
    return StorageUnavailable(f"simulated: no answer to {op} {key}", hint="run again")
