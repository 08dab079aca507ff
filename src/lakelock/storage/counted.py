"""Counts the requests of one part of the work, such as those that a commit sends under the lock.

The calls inside the block count, including those that `Runtime.gather` runs for them in other threads. Requests that
other threads of the process send meanwhile, such as heartbeats, do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import IO

from lakelock.storage.base import Changes, Listed, Storage, Stored, changed

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
