"""One small document that is only ever changed by compare-and-swap: where the lock table is kept."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from lakelock.clock import ForkSafeMutex
from lakelock.storage import Storage
from lakelock.table import layout


@dataclass(frozen=True)
class Version:
    """The document as read; `tag` changes with every write."""

    data: bytes
    tag: str


class Subscription(Protocol):
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

    def listen(self, grant: str) -> Subscription | None:
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
