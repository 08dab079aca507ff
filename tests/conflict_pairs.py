"""The operations of `docs/reference-conflicts.md`, done by an engine, and judged in all pairs at both levels of Delta.

Each operation runs once by itself on a copy of one table. What its commit asked the rules about it is one side of a pair, its
commit metadata the other; so a pair costs nothing, and both sides are what the engine really did.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest

from lakelock.occ import commit
from lakelock.occ.footprint import CommitSummary, Footprint, Isolation
from lakelock.occ.history import read_summary
from lakelock.occ.rules import PROFILES, judge
from lakelock.table.key_search import buckets_of_keys
from tests.api import ArrowEngine, BucketIndex, LocalStorage, SystemRuntime, TableProperties, TableSchema, create_table
from tests.behaviour.tables import writer

COLUMNS = pa.schema([("id", pa.string()), ("g", pa.int64()), ("v", pa.int64()), ("month", pa.string())])
INDEX = BucketIndex(4, ("id",))


def matrix() -> ModuleType:
    """`docs/conflict_matrix.py`: what the page says."""
    path = Path(__file__).parents[1] / "docs" / "conflict_matrix.py"
    spec = importlib.util.spec_from_file_location("conflict_matrix", path)
    assert spec is not None and spec.loader is not None
    module = sys.modules["conflict_matrix"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _keys() -> list[list[str]]:
    names = [f"k{number}" for number in range(100)]
    buckets = buckets_of_keys(names, INDEX)
    return [[name for name, bucket in zip(names, buckets, strict=True) if bucket == wanted] for wanted in range(INDEX.count)]


KEYS = _keys()
"""Keys by bucket: those of the first two are in the table, and make its two file groups in each partition."""


def rows(*values: tuple[str, int, str]) -> pa.Table:
    """Rows of an id, a value of `g`, and a month."""
    ids, marks, months = ([value[at] for value in values] for at in range(3))
    return pa.table([ids, marks, [0] * len(values), months], schema=COLUMNS)


def filled(path: Path, *, in_buckets: bool) -> Path:
    """Two partitions of two file groups. No range rules out that `g = 1` or `g = 2` is in a file; each is in one of both."""
    storage, schema = LocalStorage(path), TableSchema.from_arrow(COLUMNS).to_avro_json("t")
    properties = TableProperties.new("t", ("id",), ("month",), create_schema=schema)
    create_table(storage, properties.indexed(INDEX if in_buckets else None), SystemRuntime())
    with writer(storage) as coordinator:
        for bucket, mark in ((0, 1), (1, 2)):
            ArrowEngine(coordinator).insert(
                rows(*((key, g, month) for month in ("1", "2") for key, g in zip(KEYS[bucket], (0, mark, 9), strict=False)))
            )
    return path


class Side:
    """Where an operation works: `mark` and `known` are of the file group that it touches, `new` are keys that nobody has."""

    def __init__(self, month: str, group: int, new: int, *, in_buckets: bool) -> None:
        self.month, self.mark, self.known, self.new = month, group + 1, KEYS[group][0], KEYS[new][:2]
        self.in_buckets = in_buckets

    @property
    def brought(self) -> pa.Table:
        """Two rows of new keys, whose range has every mark; in buckets an insert brings one for a file group that is there."""
        return rows((self.new[0], 0, self.month), (self.new[1], 9, self.month))

    @property
    def inserted(self) -> pa.Table:
        more = [(KEYS[self.mark - 1][5], 5, self.month)] if self.in_buckets else []
        return rows((self.new[0], 0, self.month), (self.new[1], 9, self.month), *more)

    @property
    def upserted(self) -> pa.Table:
        return rows((self.new[0], 0, self.month), (self.new[1], 9, self.month), (self.known, 5, self.month))


Does = Callable[[Path, str, Side], None]
"""Runs the operation of this name on a table."""


def deeds(
    monkeypatch: pytest.MonkeyPatch, base: Path, work: Path, does: Does, operation: str, side: Side
) -> tuple[Footprint, Isolation, CommitSummary]:
    """What an operation is as either side of a pair."""
    path = work / f"{operation}-{side.month}-{side.mark}-{side.new[0]}"
    shutil.copytree(base, path)
    asked: list[tuple[Footprint, Isolation]] = []

    def told(profile, mine, others, isolation):  # type: ignore[no-untyped-def]
        asked.append((mine, isolation))
        return judge(profile, mine, others, isolation)

    with monkeypatch.context() as patch:
        patch.setattr(commit, "judge", told)
        does(path, operation, side)
    with writer(LocalStorage(path)) as coordinator:
        newest = coordinator.table.timeline().commits[-1]
        return *asked[-1], read_summary(coordinator.table.storage, newest)


def wrong_pairs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, does: Does, operations: list[str], *, in_buckets: bool
) -> tuple[int, list[tuple[object, ...]]]:
    """How many pairs were judged at both levels of Delta, and those that end otherwise than the page says."""
    told, base, count, wrong = matrix(), filled(tmp_path / "base", in_buckets=in_buckets), 0, []
    overlaps = {
        told.Overlap.NOTHING: Side("2", 1, 3, in_buckets=in_buckets),
        told.Overlap.PARTITION: Side("1", 1, 3, in_buckets=in_buckets),
        told.Overlap.FILE_GROUP: Side("1", 0, 3, in_buckets=in_buckets),
    }
    mine = {
        name: deeds(monkeypatch, base, tmp_path / "mine", does, name, Side("1", 0, 2, in_buckets=in_buckets))
        for name in operations
    }
    theirs = {
        (name, overlap): deeds(monkeypatch, base, tmp_path / overlap.name, does, name, side)[2]
        for name in operations
        for overlap, side in overlaps.items()
    }
    for case in _cases(told, operations, in_buckets=in_buckets):
        footprint, isolation, _ = mine[case.mine]
        other = theirs[case.other, case.overlap]
        conflict, looks = judge(PROFILES["delta"], footprint, [other], replace(isolation, level=case.level))
        assert not looks
        count += 1
        if (conflict is not None) != case.collides:
            wrong.append((*case, conflict and (conflict.rule, conflict.overlap)))
    return count, wrong


def _cases(told: ModuleType, operations: list[str], *, in_buckets: bool) -> Iterator[object]:
    """An optimize joins all file groups of a partition, so it has one in common with whoever touches any."""
    for case in told.cases(in_buckets=in_buckets):
        if case.profile != "delta" or case.overlap is told.Overlap.ROWS or not {case.mine, case.other} <= {*operations}:
            continue
        both = all(told.touches(name, in_buckets=in_buckets) for name in (case.mine, case.other))
        if case.overlap is told.Overlap.PARTITION and both and "OPTIMIZE" in (case.mine, case.other):
            continue
        yield case
