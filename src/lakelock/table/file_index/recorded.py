"""What writers record about their files: JSON in the extra metadata of the commit, under `lakelock.statistics`.

`{"<path>": [key_min, key_max, {"<column>": [least, greatest, nulls]}]}`. Dates, timestamps and decimals are objects with one
letter for the kind. A damaged record, or one of a later version, counts as not recorded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from lakelock.json_object import JsonObject
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.statistics import ColumnRange, FileStatistics, Value

STATISTICS = "lakelock.statistics"
MOST_CHARACTERS = 262_144
"""The most bytes of statistics in a commit, which is written under the lock. Beyond it columns are left out, then keys."""


def recorded(statistics: FileStatistics) -> str:
    """What a task reports to its driver about one file."""
    ranges = {name: [*map(_plain, (r.least, r.greatest)), r.nulls] for name, r in statistics.columns.items()}
    return json.dumps([statistics.key_min, statistics.key_max, ranges], separators=(",", ":"))


def of_commit(stats: Iterable[WriteStat]) -> str:
    """What a commit records about all its files; empty if it records nothing."""
    files = {stat.path: json.loads(stat.recorded) for stat in stats if stat.path and stat.recorded}
    for kept in (files, {path: [least, greatest, {}] for path, (least, greatest, _) in files.items()}):
        text = json.dumps(kept, separators=(",", ":"))
        if len(text) <= MOST_CHARACTERS:
            return text if kept else ""
    return ""


def by_path(text: str) -> Mapping[str, tuple[str | None, str | None, str | None]]:
    """Key range and the text of the column ranges for each file that a commit describes."""
    try:
        found = JsonObject.parse(text).fields if text else {}
        return {
            path: (
                _text(least),
                _text(greatest),
                json.dumps(columns, separators=(",", ":"), sort_keys=True) if columns else None,
            )
            for path, (least, greatest, columns) in found.items()
        }
    except (ValueError, TypeError):
        return {}


def column_ranges_in(text: str | None) -> dict[str, ColumnRange]:
    """The ranges in the text that `by_path` gives."""
    try:
        found = JsonObject.parse(text).fields if text else {}
        return {
            name: ColumnRange(_value(least), _value(greatest), nulls if isinstance(nulls, int) else None)
            for name, (least, greatest, nulls) in found.items()
        }
    except (ValueError, TypeError, InvalidOperation):
        return {}


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise ValueError("a key is not text")


def _plain(value: Value | None) -> Any:
    if isinstance(value, datetime):
        return {"t": value.isoformat()}
    if isinstance(value, date):
        return {"d": value.isoformat()}
    if isinstance(value, Decimal):
        return {"n": str(value)}
    return value if isinstance(value, bool | int | float | str) else None


def _value(plain: Any) -> Value | None:
    if isinstance(plain, dict):
        ((kind, text),) = plain.items()
        readers: dict[str, Any] = {"t": datetime.fromisoformat, "d": date.fromisoformat, "n": Decimal}
        return readers[kind](text) if kind in readers else None  # type: ignore[no-any-return]
    return plain if isinstance(plain, bool | int | float | str) else None
