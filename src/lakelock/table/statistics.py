"""What is known about the rows of one file without opening it: their number, key range, and each column's range.

A writer records them with its commit. Unknown values, such as those of another engine's commit, are None or left out, and
must be taken for "anything".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from types import MappingProxyType

Value = bool | int | float | str | date | datetime | Decimal
"""A value of a column, as pyarrow's `as_py` gives it. Timestamps with a zone are in UTC, those without have none."""

LONGEST_TEXT = 32
"""Texts are cut to this many characters: the least one down, the greatest one up."""

_LAST_CHARACTER, _BEFORE_SURROGATES, _AFTER_SURROGATES = 0x10FFFF, 0xD7FF, 0xE000


@dataclass(frozen=True)
class ColumnRange:
    """The least and the greatest value of one column of a file, and how many nulls it has; None where it is not known.

    No value lies outside the range, but its ends need not occur: texts are cut. Texts are compared by code points, as
    Python and UTF-8 do. Where `nulls` is the number of rows there is no value, and both ends are None.
    """

    least: Value | None = None
    greatest: Value | None = None
    nulls: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.least, str):
            object.__setattr__(self, "least", at_most(self.least))
        if isinstance(self.greatest, str):
            object.__setattr__(self, "greatest", at_least(self.greatest))


@dataclass(frozen=True)
class FileStatistics:
    """What the writer of one file knew about it. `key_min` and `key_max` are record keys in the order of Java's strings
    (`table/base_files/key_range.py`), never cut; empty keys and None mean that nobody knows.
    """

    rows: int | None = None
    key_min: str | None = None
    key_max: str | None = None
    columns: Mapping[str, ColumnRange] = field(default_factory=lambda: MappingProxyType({}))


UNKNOWN = FileStatistics()
"""For a file about which nothing was recorded."""


def at_most(text: str) -> str:
    """A text of at most `LONGEST_TEXT` characters that is not greater."""
    return text[:LONGEST_TEXT]


def at_least(text: str) -> str | None:
    """A text of at most `LONGEST_TEXT` characters that is not less; None if there is none."""
    if len(text) <= LONGEST_TEXT:
        return text
    kept = text[:LONGEST_TEXT]
    while kept:
        code = ord(kept[-1])
        if code < _LAST_CHARACTER:
            return kept[:-1] + chr(_AFTER_SURROGATES if code == _BEFORE_SURROGATES else code + 1)
        kept = kept[:-1]
    return None
