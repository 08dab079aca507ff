"""Versions of rows by commit time, merged for whole columns: the same rows as a dictionary that is updated one by one."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakelock.table.row_versions import ByCommitTime, WrittenRows

KEY = "_hoodie_record_key"
COLUMNS = pa.schema([(KEY, pa.string()), ("x", pa.int64()), ("y", pa.string())])
KEYS = st.sampled_from("abcdef")
ROWS = st.lists(st.tuples(KEYS, st.none() | st.integers(0, 9), st.none() | st.sampled_from("pqr")), max_size=5)
STEPS = st.lists(
    st.tuples(st.just("rows"), ROWS, st.lists(st.booleans(), min_size=5, max_size=5))
    | st.tuples(st.just("deletes"), st.lists(KEYS, max_size=3))
    | st.tuples(st.sampled_from(["x", "y"]), ROWS),
    max_size=6,
)


def table(rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * 3
    return pa.table(
        [pa.array(list(column), field.type) for column, field in zip(columns, COLUMNS, strict=True)], schema=COLUMNS
    )


def loaded(rows: pa.Table, flags: Any) -> pa.Table:
    return rows if flags is None else rows.filter(pa.array(flags))


def written(names: Any, rows: list[tuple[Any, ...]], gone: Any = None, columns: frozenset[str] | None = None) -> WrittenRows:
    return WrittenRows(names, lambda flags: loaded(table(rows), flags), gone, columns)


def merged(versions: ByCommitTime, stored: pa.Table, cut: int) -> list[tuple[Any, ...]]:
    """The rows that are shown, of base files with two row groups."""
    parts = (stored.slice(0, cut), stored.slice(cut))
    found = [versions.merged(part.num_rows, partial(loaded, part)) for part in parts if not versions.passes(part.num_rows)]
    return [tuple(row.values()) for part in (*found, *versions.rest()) for row in part.to_pylist()]


@given(
    stored=st.lists(st.tuples(KEYS, st.integers(10, 19), st.sampled_from("stu")), max_size=8),
    steps=STEPS,
    cut=st.integers(0, 8),
)
def test_merged_columns_have_the_rows_that_updates_one_by_one_have(
    stored: list[tuple[Any, ...]], steps: list[tuple[Any, ...]], cut: int
) -> None:
    whole = table(stored)
    versions = ByCommitTime(COLUMNS, whole.num_rows, [whole.column(KEY).slice(0, cut), whole.column(KEY).slice(cut)])
    first = {key: number for number, (key, *_) in reversed(list(enumerate(stored)))}
    rows: dict[str, dict[str, Any]] = {
        key: dict(zip(("x", "y"), stored[number][1:], strict=True)) for key, number in first.items()
    }
    for kind, *what in steps:
        if kind == "rows":
            given_rows, flags = what
            gone = np.array(flags[: len(given_rows)], np.bool_)
            versions.add_rows(written(table(given_rows).column(KEY), given_rows, gone))
            for (key, x, y), is_gone in zip(given_rows, gone, strict=True):
                rows.pop(key, None)
                if not is_gone:
                    rows[key] = {"x": x, "y": y}
        elif kind == "deletes":
            versions.add_deletes((key, None) for key in what[0])
            for key in what[0]:
                rows.pop(key, None)
        else:
            versions.add_rows(written(table(what[0]).column(KEY), what[0], columns=frozenset({KEY, kind})))
            for key, x, y in what[0]:
                rows.setdefault(key, {"x": None, "y": None})[kind] = x if kind == "x" else y
    shown = merged(versions, whole, cut)
    others = [row for number, row in enumerate(stored) if first[row[0]] != number]  # second rows of a key stay
    assert sorted(shown, key=repr) == sorted([*((key, row["x"], row["y"]) for key, row in rows.items()), *others], key=repr)


@given(steps=STEPS, cut=st.integers(0, 6))
def test_rows_that_are_named_by_position_are_merged_as_those_named_by_key(steps: list[tuple[Any, ...]], cut: int) -> None:
    stored = table([(key, 10, "s") for key in "abcdef"])
    by_key, by_position = ByCommitTime(COLUMNS, 6, [stored.column(KEY)]), ByCommitTime(COLUMNS, 6)
    for kind, *what in steps:
        if kind == "deletes":
            by_key.add_deletes((key, None) for key in what[0])
            by_position.add_deletes(np.array(["abcdef".index(key) for key in what[0]], np.int64))
            continue
        rows = list({row[0]: row for row in what[0]}.values())
        gone = np.array(what[1][: len(rows)], np.bool_) if kind == "rows" else None
        columns = None if kind == "rows" else frozenset({KEY, kind})
        by_key.add_rows(written(table(rows).column(KEY), rows, gone, columns))
        by_position.add_rows(written(np.array(["abcdef".index(row[0]) for row in rows], np.int64), rows, gone, columns))
    assert sorted(merged(by_position, stored, cut), key=repr) == sorted(merged(by_key, stored, cut), key=repr)
