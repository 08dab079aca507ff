"""Which part of a rejected commit collided, and when a redo is worth trying."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.api import CommitMetadata, ConflictRule, FileGroupId, WriteStat

from lakelock.conflict import Conflict, Party
from lakelock.occ.footprint import CommitSummary, Footprint
from lakelock.occ.rules import REDOABLE, collision, worth_keeping
from lakelock.table.index import bucket_group, new_file_id

MINE, OTHER = Party("3", "UPSERT"), Party("2", "UPSERT")


def group(file_id: str, partition: str = "p") -> FileGroupId:
    return FileGroupId(partition, file_id)


def commit(*rewritten: str, added: tuple[str, ...] = (), replaced: tuple[str, ...] = ()) -> CommitSummary:
    instant = "20261121092737398"
    stats = [
        WriteStat(name, f"p/{name}_0-0-0_{instant}.parquet", partition_path="p", prev_commit="1" if name in rewritten else None)
        for name in (*rewritten, *added)
    ]
    return CommitSummary.of(instant, "9", CommitMetadata({"p": tuple(stats)}, "UPSERT", {}, {"p": replaced}), 1)


def footprint(*rewritten: str, added: tuple[str, ...] = ()) -> Footprint:
    return Footprint(MINE, rewritten=frozenset(map(group, rewritten)), added=frozenset(map(group, added)))


def conflict(rule: ConflictRule = ConflictRule.FILE_GROUP) -> Conflict:
    return Conflict.over(rule, MINE, OTHER, ["p/a"])


def test_what_others_rewrote_or_replaced_has_collided_and_the_rest_is_kept() -> None:
    found = collision(footprint("a", "b", "c", added=("n",)), [commit("a", "x"), commit(replaced=("b",))])
    assert found.collided == {group("a"), group("b")}
    assert found.kept == {group("c"), group("n")}


def test_rows_that_others_added_do_not_say_which_new_file_they_concern() -> None:
    assert collision(footprint("a", added=("n",)), [commit(added=("m",))]).collided == frozenset()


def test_of_two_first_file_groups_of_one_bucket_mine_has_collided() -> None:
    mine, theirs, elsewhere = (new_file_id(bucket, "p", instant) for bucket, instant in ((3, "1"), (3, "2"), (4, "2")))
    made = replace(footprint(added=(mine, elsewhere)), new_buckets=frozenset({bucket_group("p", 3), bucket_group("p", 4)}))
    assert collision(made, [commit(added=(theirs,))]).collided == {group(mine)}


@pytest.mark.parametrize("rule", list(ConflictRule), ids=str)
def test_only_conflicts_over_rows_and_file_groups_are_worth_a_redo(rule: ConflictRule) -> None:
    found = worth_keeping(conflict(rule), footprint("a", "b"), [commit("a")])
    assert (found is not None) == (rule in REDOABLE)
    assert found is None or found.kept == {group("b")}


def test_nothing_is_worth_keeping_if_everything_collided() -> None:
    assert worth_keeping(conflict(), footprint("a"), [commit("a")]) is None


def test_an_overwrite_depends_on_all_of_its_partitions() -> None:
    mine = footprint("a", "b")
    assert worth_keeping(conflict(), replace(mine, overwritten_partitions=frozenset({"p"})), [commit("a")]) is None
    assert worth_keeping(conflict(), replace(mine, replaced=frozenset({group("z")})), [commit("a")]) is None


def test_what_a_retry_does_not_resolve_a_redo_does_not_resolve_either() -> None:
    assert worth_keeping(replace(conflict(), retry_helps=False), footprint("a", "b"), [commit("a")]) is None
