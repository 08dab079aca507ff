"""Whether a table is as it was: its files, its rows, its history, and nothing pending."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lakelock.spark_plugin import LakeTable


def files(table: LakeTable) -> set[Path]:
    return set(_root(table).rglob("*.parquet"))


def _root(table: LakeTable) -> Path:
    return Path(table.path.removeprefix("file://"))


def _state(table: LakeTable) -> tuple[set[Path], list[str], int]:
    return files(table), sorted(map(repr, table.read().collect())), table.history().count()


@contextmanager
def unchanged(table: LakeTable) -> Iterator[None]:
    """Fail unless the table is after the block as before, with nothing pending and no stray file."""
    before = _state(table)
    yield
    assert _state(table) == before
    assert list((_root(table) / ".hoodie/.heartbeat").glob("*")) == []
