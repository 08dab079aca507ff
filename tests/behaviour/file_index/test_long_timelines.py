"""Readers of a timeline whose listing takes several answers see each commit with all before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lakelock.settings import Settings
from lakelock.storage import Listed, Storage
from lakelock.storage.memory import MemoryStorage
from lakelock.table import layout
from tests.behaviour.tables import insert, new_table, put_file, writer
from tests.faulty_storage import Wrapped


class _InPages(Wrapped):
    """The listing of the timeline comes in two answers, between which, once, something happens."""

    def __init__(self, inner: Storage, meanwhile: Callable[[], None]) -> None:
        super().__init__(inner)
        self._meanwhile: list[Callable[[], None]] = [meanwhile]

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[Listed]:
        found = [*self.inner.list(prefix, start_after=start_after)]
        if prefix != layout.TIMELINE or not self._meanwhile:
            return iter(found)
        self._meanwhile.pop()()
        rest = self.inner.list(prefix, start_after=found[-1].key)
        return iter([*found, *rest])


def test_a_reader_does_not_see_a_commit_without_the_one_before_it() -> None:
    storage = MemoryStorage()
    new_table(storage)
    insert(writer(storage), storage, "month=1", "a")
    first, second = writer(storage, Settings(), "first").begin("INSERT"), writer(storage, Settings(), "second").begin("INSERT")
    files = put_file(first, storage, "month=1", "b"), put_file(second, storage, "month=1", "c")

    def meanwhile() -> None:
        first.commit([files[0]])
        second.commit([files[1]])

    paged = _InPages(storage, meanwhile)
    reader = writer(paged, Settings.resolve({"listing.at_once": 1}).settings, "reader")
    assert sorted(file.file_id for file in reader.snapshot().files) == ["a", "b", "c"]
