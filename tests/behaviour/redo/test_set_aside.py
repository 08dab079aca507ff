"""An attempt that is set aside holds no claims, never commits, and leaves nothing behind."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.api import FileGroupId, MemoryStorage, Transaction, layout
from tests.behaviour.redo.test_redo import EARLY, MONTHS, Watched, base, content, engine, everywhere, rows
from tests.behaviour.tables import Recorder, leftovers, new_table, writer
from tests.faulty_storage import Wrapped

from lakelock.conflict import Party
from lakelock.errors import ConflictError, StorageUnavailable
from lakelock.markers.claims import Claim
from lakelock.occ.claims import AnnouncedGroups
from lakelock.occ.ending import News, OwnDecision
from lakelock.occ.rules import Collision
from lakelock.occ.transaction import goes_aside


@pytest.fixture
def five():
    """A table with the rows a and b in each of five months, a file group each."""
    storage = MemoryStorage()
    new_table(storage)
    engine(storage).insert(rows(*((key, 1, month) for month in MONTHS for key in "ab")))
    return storage


def owners_of_claims(storage) -> set[str]:
    stored = [storage.get(item.key) for item in storage.list(layout.CLAIMS)]
    return {claim.instant for found in stored if (claim := Claim.from_bytes(found.data)) is not None}


def test_an_attempt_that_is_set_aside_holds_no_claims_and_its_files_wait_for_the_holder_of_a_group(five):
    """The redo finds a group claimed: it waits for the holder, and then still has the files of the first attempt."""
    held: list[Transaction] = []

    def other() -> None:
        added = engine(five).insert(rows(("n", 7, "3"))).instant
        held.append(tx := writer(five, EARLY).begin("UPSERT"))
        tx.claim(f.group for f in tx.snapshot().files if f.instant == added)

    class Listener(Recorder):
        def __call__(self, event) -> None:
            super().__call__(event)
            if event.kind.value == "set-aside":
                owners.update(owners_of_claims(five))
            if event.kind.value == "retry" and self.kinds().count("retry") == 2:
                held[0].abort("the holder gives up")

    owners: set[str] = set()
    kernels = Watched(written_10=other)
    brought = rows(*((key, 2, month) for month in MONTHS for key in "bn"))
    done = engine(five, kernels, EARLY, Listener()).upsert(brought)
    assert owners == {held[0].instant}  # of the group that the redo does not know yet
    assert (done.attempts, done.files, done.files_kept) == (3, 10, 9)
    assert [c.early for c in done.conflicts] == [False, True]
    assert kernels.done["written"] == 11
    assert content(engine(five).read()) == sorted([*base(b=2), *(("n", 2, month) for month in MONTHS)])
    assert leftovers(five) == []


def test_an_attempt_whose_decision_may_be_in_the_log_is_not_set_aside(five):
    """Its late decision could still commit it beside the attempt that copied its files."""
    table, mine = writer(five).table, Party("20261121092737397", "UPSERT")
    found = Collision(frozenset({FileGroupId("p", "a")}), frozenset({FileGroupId("p", "b")}))
    own = OwnDecision()
    own.learn(News.SENDS)
    own.learn(News.LOSES)
    assert not goes_aside(table, own, mine, found, AnnouncedGroups())
    own.learn(News.UNCOLLECTED)
    assert goes_aside(table, own, mine, found, AnnouncedGroups())
    own.learn(News.SENDS)
    own.learn(News.HEARS_NOTHING)
    own.learn(News.LOSES)
    own.learn(News.REJECTED)
    assert not goes_aside(table, own, mine, found, AnnouncedGroups())


def test_a_redo_claims_what_collided_before_it_copies_also_where_nothing_else_is_claimed(five):
    """So redos of the same group queue for it. A writer that claims, too, leaves it to the redo and waits."""
    groups: list[str] = []
    kernels = Watched(
        written_2=lambda: engine(five).upsert(rows(("a", 7, "3"))),
        copied_1=lambda: groups.extend(item.key for item in five.list(layout.CLAIMS)),
    )
    done = engine(five, kernels).upsert(everywhere("b", 2))
    (third,) = writer(five).snapshot().in_partition("month=3")
    assert groups == [layout.claim(third.group)]
    assert (done.attempts, done.files_kept) == (2, 4)
    assert leftovers(five) == []


def test_a_redo_whose_group_is_taken_waits_for_its_holder_before_it_copies_a_file(five):
    held: list[Transaction] = []

    def other() -> None:
        engine(five).upsert(rows(("a", 7, "3")))
        held.append(tx := writer(five, EARLY).begin("UPSERT"))
        tx.claim(f.group for f in tx.snapshot().in_partition("month=3"))

    class Listener(Recorder):
        def __call__(self, event) -> None:
            super().__call__(event)
            if event.kind.value == "retry":
                copied.append(kernels.done["copied"])
                if len(copied) == 2:
                    held[0].abort("the holder gives up")

    copied: list[int] = []
    kernels = Watched(written_2=other)
    done = engine(five, kernels, listener=Listener()).upsert(everywhere("b", 2))
    assert (copied, done.attempts, done.files_kept) == ([0, 0], 3, 4)
    assert kernels.done["written"] == 6
    assert content(engine(five).read()) == base(b=2, a3=7)
    assert leftovers(five) == []


class Unsure(Wrapped):
    """Removes the claims, says that it could not, and somebody else has them at once."""

    def __init__(self, inner) -> None:
        super().__init__(inner)
        self.taken: list[Transaction] = []

    def delete(self, keys) -> None:
        keys = list(keys)
        super().delete(keys)
        if not self.taken and keys and all(key.startswith(layout.CLAIMS) for key in keys):
            self.taken.append(tx := writer(self.inner, EARLY).begin("UPSERT"))
            tx.claim(f.group for f in tx.snapshot().files if f.partition == "month=1")
            raise StorageUnavailable("no answer")


def test_claims_that_may_have_been_given_back_are_not_taken_from_whoever_has_them_now(five):
    unsure = Unsure(five)
    kernels = Watched(written_10=lambda: engine(five).insert(rows(("n", 7, "3"))))
    impatient = replace(EARLY, retry=replace(EARLY.retry, holder_wait_s=0.1))
    with pytest.raises(ConflictError):
        engine(unsure, kernels, impatient).upsert(rows(*((key, 2, month) for month in MONTHS for key in "bn")))
    assert owners_of_claims(five) == {unsure.taken[0].instant}
    unsure.taken[0].abort()
    assert leftovers(five) == []


def test_an_error_right_after_an_attempt_was_set_aside_leaves_nothing_behind(five, monkeypatch):
    def fails(*_: object) -> None:
        raise StorageUnavailable("no answer")

    monkeypatch.setattr("lakelock.occ.retry.applied_instead", fails)
    heard, kernels = Recorder(), Watched(written_2=lambda: engine(five).upsert(rows(("a", 7, "3"))))
    with pytest.raises(StorageUnavailable):
        engine(five, kernels, listener=heard).upsert(everywhere("b", 2))
    assert "set-aside" in heard.kinds()
    assert content(engine(five).read()) == base(a3=7)
    assert leftovers(five) == []
