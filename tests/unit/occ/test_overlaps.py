"""What the audit takes for a pair of commits that the lock should have kept apart, without any table."""

from __future__ import annotations

import pytest
from tests.api import CommitMetadata, FileGroupId, WriteStat

from lakelock.occ.commit_keys import DECISION, SAW
from lakelock.occ.footprint import CommitSummary
from lakelock.occ.foreign import Overlap, overlaps

GROUP = FileGroupId("eu", "f")


def at(second: int) -> str:
    return f"202611211200{second:02}000"


def commit(
    requested: int, completed: int, on: int | None = None, *, ours: bool = False, replaces: bool = False, saw: int | None = None
) -> CommitSummary:
    """A commit that rewrites GROUP on top of the slice `on`, or replaces it."""
    stat = WriteStat("f", f"eu/f_0-0-0_{at(requested)}.parquet", partition_path="eu")
    stats = {} if replaces else {"eu": (stat if on is None else stat.__class__(**{**stat.__dict__, "prev_commit": at(on)}),)}
    extra = {**({DECISION: "1"} if ours else {}), **({SAW: at(saw)} if saw is not None else {})}
    metadata = CommitMetadata(stats, "UPSERT", extra, {"eu": ("f",)} if replaces else None)
    return CommitSummary.of(at(requested), at(completed), metadata, None)


def pairs(*commits: CommitSummary) -> list[tuple[str, str]]:
    return [(o.first.instant[-5:-3], o.second.instant[-5:-3]) for o in overlaps(commits)]


FIRST = commit(0, 1)
"""It made the file group."""


def test_commits_one_after_the_other_do_not_overlap() -> None:
    assert pairs(FIRST, commit(2, 3, on=0), commit(3, 5, on=2), commit(6, 7, on=3), commit(8, 9, replaces=True)) == []


def test_two_that_rewrote_the_same_slice_at_the_same_time_are_found_in_any_order() -> None:
    mine, other = commit(2, 5, on=0, ours=True), commit(3, 4, on=0)
    assert pairs(FIRST, mine, other) == pairs(other, mine, FIRST) == [("03", "02")]
    (overlap,) = overlaps([FIRST, mine, other])
    assert overlap == Overlap(other.party, mine.party, (GROUP,))
    assert "does not know of" in str(overlap) and "eu/f" in str(overlap) and "another Hudi writer" in str(overlap)


def test_a_commit_that_was_requested_early_but_starts_from_the_other_is_none() -> None:
    assert pairs(FIRST, commit(2, 4, on=0), commit(3, 6, on=2)) == []
    assert pairs(FIRST, commit(2, 5, on=0), commit(3, 6, on=2), commit(4, 7, on=3)) == []


def test_a_slice_on_top_of_the_other_that_readers_take_for_the_older_one_is_found() -> None:
    assert pairs(FIRST, commit(3, 4, on=0), commit(2, 6, on=3)) == [("03", "02")]


@pytest.mark.parametrize(("saw", "expected"), [(None, [("02", "03")]), (3, [("02", "03")]), (4, [])])
def test_a_replacement_of_the_file_group_overlaps_unless_its_writer_says_that_it_saw_the_other(saw, expected) -> None:
    assert pairs(FIRST, commit(2, 4, on=0), commit(3, 5, replaces=True, ours=True, saw=saw)) == expected


def test_a_rewrite_of_what_another_replaced_meanwhile_is_found() -> None:
    assert pairs(FIRST, commit(2, 4, replaces=True), commit(3, 5, on=0)) == [("02", "03")]


def test_commits_of_lakelock_alone_are_left_to_the_decision_log() -> None:
    assert pairs(commit(0, 1, ours=True), commit(2, 5, on=0, ours=True), commit(3, 4, on=0, ours=True)) == []


def test_commits_to_other_file_groups_do_not_matter() -> None:
    elsewhere = WriteStat("g", f"eu/g_0-0-0_{at(3)}.parquet", at(0), partition_path="eu")
    other = CommitSummary.of(at(3), at(4), CommitMetadata({"eu": (elsewhere,)}, "UPSERT", {}), None)
    assert pairs(FIRST, commit(2, 5, on=0), other) == []
