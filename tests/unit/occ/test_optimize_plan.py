"""What an optimize joins, and how much of it in one commit: pure functions over files and their sizes."""

from __future__ import annotations

import pytest
from tests.api import DataFile

from lakelock.errors import SettingsError
from lakelock.occ.optimize import Optimized, first_commit, plan_joins, without
from lakelock.settings import OptimizeSettings

SIZES = OptimizeSettings(small_file_bytes=60, target_file_bytes=100, commit_bytes=250)


def file(partition: str, name: str, size_bytes: int, instant: int = 0) -> DataFile:
    return DataFile(partition, name, "0-0-0", f"{instant:017}", size_bytes)


def names(joins) -> list[str]:
    return ["".join(source.file_id for source in join.sources) for join in joins]


def test_small_files_of_a_partition_are_packed_up_to_the_target_the_oldest_first() -> None:
    files = [file("p", "a", 50, 3), file("p", "b", 50, 1), file("p", "c", 50, 2), file("p", "d", 40, 4), file("q", "e", 9)]
    assert names(plan_joins([*files, file("p", "big", 60)], SIZES)) == ["bc", "ad"]


def test_one_file_alone_is_left_alone() -> None:
    assert plan_joins([file("p", "a", 1), file("q", "b", 1), file("", "c", 1)], SIZES) == []


def test_files_to_be_sorted_are_joined_together_up_to_a_commit() -> None:
    joins = plan_joins([file("p", letter, 50, number) for number, letter in enumerate("abcdefg")], SIZES, in_order=True)
    assert names(joins) == ["abcde", "fg"]
    assert [join.files for join in joins] == [2, 1]


def test_a_commit_takes_what_it_may_and_one_join_at_least() -> None:
    joins = plan_joins([file(partition, name, 50) for partition in "pqr" for name in "ab"], SIZES)
    assert [join.partition for join in first_commit(joins, SIZES)] == ["p", "q"]
    assert len(first_commit(joins, OptimizeSettings(60, 100, 1))) == 1
    assert first_commit([], SIZES) == []


def test_what_others_have_at_hand_is_left_out_and_with_it_a_join_of_which_one_file_is_left() -> None:
    joins = plan_joins([file(partition, name, 30) for partition in "pq" for name in "abc"], SIZES)
    taken = {joins[0].sources[0].group, *(source.group for source in joins[1].sources[:2])}
    assert names(without(joins, taken)) == ["bc"]


def test_a_target_below_the_size_of_small_files_is_refused() -> None:
    with pytest.raises(SettingsError, match="still count as small"):
        OptimizeSettings(small_file_bytes=100, target_file_bytes=99)


@pytest.mark.parametrize(
    ("done", "told"),
    [
        (Optimized(), "OPTIMIZE: nothing to do"),
        (Optimized(files_before=3, files_after=1, size_bytes=2048), "OPTIMIZE: 3 files became 1 (2.0 KiB)"),
        (Optimized(compacted=4, size_bytes=2048), "OPTIMIZE: log files of 4 file groups compacted (2.0 KiB)"),
        (
            Optimized(files_before=2, files_after=1, compacted=1, size_bytes=10, yielded=1),
            "OPTIMIZE: 2 files became 1, log files of 1 file group compacted (10 B); 1 file group left to other writers",
        ),
        (Optimized(yielded=2), "OPTIMIZE: 2 file groups left to other writers"),
    ],
)
def test_the_result_tells_what_was_done_and_nothing_that_was_not(done: Optimized, told: str) -> None:
    assert repr(done) == told
