"""The state of a table by its commits: the same in whatever order and in however many steps they are added."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.api import Action, CommitMetadata, DataFile, FileGroupId, Instant, State, Timeline, WriteStat

from lakelock.errors import CorruptTableError
from lakelock.table import checkpoint as module
from lakelock.table.checkpoint import Checkpoint, IndexState, LaterFormat, LoadedRows
from lakelock.table.log_files import LogFile
from lakelock.table.snapshot import Applied, CompletedLog, Effect, Slice, Snapshot

PARTITIONS = ["", "a", "a=1/b=2", "z"]


def at(number: int) -> str:
    return f"2026112100{number:04}000"


@st.composite
def effects(draw: st.DrawFn) -> list[Effect]:
    count = draw(st.integers(1, 12))
    completions = draw(st.permutations(range(count)))
    found = []
    for number in range(count):
        groups = draw(st.lists(st.tuples(st.sampled_from(PARTITIONS), st.sampled_from("abcd")), unique=True, max_size=4))
        gone = draw(st.lists(st.tuples(st.sampled_from(PARTITIONS), st.sampled_from("abcd")), max_size=1))
        slices = tuple(Slice(DataFile(p, f, "0-0-0", at(number), 10 + number), number, "k", None, None) for p, f in groups)
        told = at(completions[number]), at(number)
        logged = draw(st.lists(st.tuples(st.sampled_from(PARTITIONS), st.sampled_from("abcde")), unique=True, max_size=3))
        version = draw(st.none() | st.tuples(st.sampled_from("xy"), st.integers(0, 9)))
        applied = None if version is None else Applied(*told, *version, "UPSERT", "{}")
        found.append(
            Effect(
                at(number), at(completions[number]), slices, frozenset(FileGroupId(*g) for g in gone),
                draw(st.sampled_from(["", "s1", "s2"])), applied,
                tuple(LogFile(p, f, at(number), 1, "0-0-0", 5) for p, f in logged),
            )
        )  # fmt: skip
    return found


def timeline(some: Iterable[Effect]) -> Timeline:
    return Timeline.of((Instant(e.instant, Action.COMMIT, State.COMPLETED, e.completion) for e in some), archived=False)


def checkpointed(base: Checkpoint, before: list[Effect], some: list[Effect]) -> Checkpoint:
    return IndexState.after(base, some).checkpoint(timeline([*before, *some]))


@given(effects(), st.randoms(use_true_random=False), st.integers(0, 12))
@settings(deadline=None)
def test_whoever_checkpoints_the_same_commits_writes_the_same_bytes(some: list[Effect], random, cut: int) -> None:
    at_once = checkpointed(Checkpoint(), [], some)
    random.shuffle(some)
    first = checkpointed(Checkpoint(), [], some[:cut])
    again = Checkpoint.from_bytes(first.to_bytes())
    assert checkpointed(again, some[:cut], some[cut:]).to_bytes() == at_once.to_bytes()


@given(effects())
@settings(deadline=None)
def test_a_snapshot_has_the_newest_slice_of_every_group_that_was_not_replaced(some: list[Effect]) -> None:
    gone = {group for effect in some for group in effect.replaced}
    newest = {one.file.group: one.file for effect in some for one in effect.slices if one.file.group not in gone}
    for state in (IndexState.after(Checkpoint(), some), IndexState.after(checkpointed(Checkpoint(), [], some), [])):
        snapshot = Snapshot(slices=state)
        assert snapshot.files == tuple(sorted(newest.values()))
        assert snapshot.partitions == tuple(sorted({file.partition for file in newest.values()}))
        assert all(snapshot.group(group) == file for group, file in newest.items())


@given(effects())
@settings(deadline=None)
def test_log_files_lie_on_the_newest_slice_of_their_group_unless_they_completed_before_it(some: list[Effect]) -> None:
    gone = {group for effect in some for group in effect.replaced}
    newest = {one.file.group: one.file.instant for effect in some for one in effect.slices}
    expected: dict[FileGroupId, set[CompletedLog]] = {}
    for effect in some:
        for log in effect.logs:
            if log.group not in gone and effect.completion >= newest.get(log.group, ""):
                expected.setdefault(log.group, set()).add(CompletedLog(log, effect.completion))
    half = len(some) // 2
    stored = Checkpoint.from_bytes(checkpointed(Checkpoint(), [], some[half:]).to_bytes())
    assert IndexState.after(Checkpoint(), some).logs() == expected == IndexState.after(stored, some[:half]).logs()


def test_a_checkpoint_without_log_files_is_what_earlier_versions_read() -> None:
    header = pq.read_metadata(io.BytesIO(many(3, 1).to_bytes())).metadata[module.HEADER]
    assert json.loads(header)["format"] == 1
    logged = Effect(at(1), at(2), logs=(LogFile("p", "f", at(1), 1, "0-0-0", 5),))
    data = IndexState.after(Checkpoint(), [logged]).checkpoint(timeline([logged])).to_bytes()
    assert json.loads(pq.read_metadata(io.BytesIO(data)).metadata[module.HEADER])["format"] == 2
    assert Checkpoint.from_bytes(data).rows.partitions == ()


def test_log_files_are_unknown_after_a_checkpoint_of_an_earlier_version_which_passed_them_over() -> None:
    old = replace(Checkpoint(), knows_logs=False)
    logged = Effect(at(1), at(2), logs=(LogFile("p", "f", at(1), 1, "0-0-0", 5),))
    again = Checkpoint.from_bytes(checkpointed(old, [], [logged]).to_bytes())
    assert IndexState.after(old, [logged]).logs() is None and IndexState.after(again, []).logs() is None


def many(count: int, per_partition: int) -> Checkpoint:
    slices = tuple(
        Slice(DataFile(f"p={n // per_partition:05}", f"f{n:06}", "0-0-0", at(1), n + 1), n, f"k{n}", f"k{n}")
        for n in range(count)
    )
    one = Effect(at(1), at(1), slices)
    return IndexState.after(Checkpoint(), [one]).checkpoint(timeline([one]))


class Counting(io.BytesIO):
    read_bytes = 0

    def read(self, size: int | None = -1) -> bytes:
        found = super().read(size)
        self.read_bytes += len(found)
        return found


def test_one_partition_is_read_without_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GROUP_ROWS", 100)
    data = many(5_000, 30).to_bytes()
    source = Counting(data)
    state = IndexState.after(Checkpoint.opened(lambda: source), [])
    files = state.in_partition("p=00077")
    assert [file.file_id for file in files] == [f"f{n:06}" for n in range(77 * 30, 78 * 30)]
    footer = int.from_bytes(data[-8:-4], "little")
    assert source.read_bytes < footer + 40_000 < len(data) - 20_000
    assert state.statistics(files[0]).key_min == "k2310" and state.in_partition("p=none") == ()


def test_partitions_that_lie_across_row_groups_are_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GROUP_ROWS", 7)
    loaded = many(200, 30)
    data = loaded.to_bytes()
    stored = Checkpoint.opened(lambda: io.BytesIO(data))
    assert stored.rows.partitions == loaded.rows.partitions
    assert all(stored.rows.of(p).equals(loaded.rows.of(p)) for p in [*loaded.rows.partitions, "", "p", "q"])


def test_a_byte_that_changed_is_noticed_wherever_it_is() -> None:
    """It is told as damage, or it is one that nobody reads."""
    state = many(40, 10)
    data = state.to_bytes()
    noticed = 0
    for place in range(0, len(data), 3):
        broken = data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 :]
        try:
            found = Checkpoint.from_bytes(broken)
        except CorruptTableError:
            noticed += 1
        else:
            assert found.coverage == state.coverage and found.rows.all().equals(state.rows.all())
    assert noticed > len(data) / 6


@pytest.mark.parametrize("cut", [0, 3, 100, -1])
def test_a_torn_checkpoint_is_damaged(cut: int) -> None:
    with pytest.raises(CorruptTableError, match="cannot be read"):
        Checkpoint.from_bytes(many(40, 10).to_bytes()[:cut])


def test_a_checkpoint_of_a_later_version_is_told_from_a_damaged_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PLAIN_FORMAT", 3)
    data = many(3, 1).to_bytes()
    with pytest.raises(LaterFormat, match="format 3"):
        Checkpoint.from_bytes(data)


def test_an_effect_has_the_files_that_a_commit_names_and_no_other() -> None:
    stats = (
        WriteStat("f", "p/f_0-0-0_" + at(1) + ".parquet", partition_path="p", file_size_bytes=7, num_writes=3),
        WriteStat("g", None),
    )
    effect = Effect.of(at(1), at(2), CommitMetadata({"p": stats}, "UPSERT", {"schema": "s"}, {"q": ("h",)}))
    assert effect.slices == (Slice(DataFile("p", "f", "0-0-0", at(1), 7), 3),)
    assert effect.replaced == {FileGroupId("q", "h")} and effect.schema_json == "s"


def test_a_late_slice_of_a_replaced_group_does_not_bring_it_back() -> None:
    group = FileGroupId("p", "f")
    first = checkpointed(Checkpoint(), [], [Effect(at(5), at(5), (), frozenset({group}))])
    late = Effect(at(2), at(9), (Slice(DataFile("p", "f", "0-0-0", at(2), 1)),))
    assert IndexState.after(Checkpoint.from_bytes(first.to_bytes()), [late]).partitions == ()
    assert isinstance(first.rows, LoadedRows)
