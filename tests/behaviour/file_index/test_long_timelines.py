"""Readers of a timeline whose listing takes several answers see each commit with all before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.api import MemoryStorage, Storage, layout
from tests.behaviour.tables import insert, new_table, put_file, writer
from tests.faulty_storage import Wrapped
from tests.tuning import settings_of

from lakelock.settings import Settings
from lakelock.storage import Listed


class _InPages(Wrapped):
    """The listing of the timeline comes in two answers, between which, once, something happens."""

    def __init__(self, inner: Storage, meanwhile: Callable[[], None], *, listing: int = 1, after: str = "") -> None:
        super().__init__(inner)
        self._meanwhile, self._listing, self._after = meanwhile, listing, after
        """What happens, in which listing, and after which key; empty: after the last."""

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[Listed]:
        found = [*self.inner.list(prefix, start_after=start_after)]
        self._listing -= prefix == layout.TIMELINE
        if prefix != layout.TIMELINE or self._listing:
            return iter(found)
        if self._after:
            found = [item for item in found if item.key <= self._after]
        self._meanwhile()
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
    reader = writer(paged, settings_of({"listing.at_once": 1}), "reader")
    assert sorted(file.file_id for file in reader.snapshot().files) == ["a", "b", "c"]


def test_a_commit_that_is_archived_while_the_timeline_is_listed_does_not_look_pending() -> None:
    storage, settings = (
        MemoryStorage(),
        Settings.resolve({"archive.min_commits": 2, "archive.max_commits": 3, "archive.min_age_s": 0, "clean.readers_s": 0}),
    )
    new_table(storage)
    archiver = writer(storage, settings.settings, "archiver")
    instants = {file_id: insert(writer(storage), storage, "month=1", file_id).instant for file_id in "abcde"}
    assert archiver.archive().last == instants["c"]
    instants |= {file_id: insert(writer(storage), storage, "month=1", file_id).instant for file_id in "fg"}

    def meanwhile() -> None:
        assert archiver.archive().last == instants["e"]

    paged = _InPages(storage, meanwhile, listing=2, after=f"{layout.TIMELINE}/{instants['d']}.inflight")
    reader = writer(paged, settings_of({"listing.at_once": 1}), "reader")
    assert sorted(file.file_id for file in reader.snapshot().files) == list("abcdefg")
