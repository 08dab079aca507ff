"""Texts for people: amounts, commands of lakelock, and the known name that a misspelt one is nearest to.

There is one measure of nearness for settings, options and columns.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from enum import Enum


def size_text(size_bytes: int) -> str:
    """A number of bytes, such as `2.5 KiB`."""
    amount = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def counted(number: int, what: str) -> str:
    """A number of things: `1 file`, `2,000 files`."""
    return f"{number:,} {what if number == 1 else what + 's'}"


def command(*words: object) -> str:
    """`lakelock` with these words, as a shell takes it: each is one word there, whatever is in it."""
    return shlex.join(["lakelock", *map(str, words)])


_LOOKED_AT = 3
_SURELY = 2


def nearest(word: str, known: Iterable[str], destructive: Collection[str] = ()) -> str | None:
    """The nearest of the known names, in any case; None if none is near.

    Of those that look alike, the one with the fewest edits between it and the word. A `destructive` name, which would replace
    or delete what is there, is named only to a user who has surely meant it.
    """
    by_lower = {one.lower(): one for one in known}
    lower = word.lower()
    near = get_close_matches(lower, by_lower, n=_LOOKED_AT, cutoff=0.6)
    edits = {one: _edits(_letters(lower), _letters(one)) for one in near}
    offered = [one for one in near if by_lower[one] not in destructive or edits[one] <= _SURELY]
    return by_lower[min(offered, key=lambda one: edits[one])] if offered else None


def did_you_mean(word: str, known: Iterable[str], destructive: Collection[str] = ()) -> str:
    """`; did you mean "x"?`, the end of a message that names an unknown word, or an empty string."""
    near = nearest(word, known, destructive)
    return f'; did you mean "{near}"?' if near else ""


def column_hint(name: str, names: Iterable[str]) -> str:
    """The hint of an error about an unknown column: the nearest of `names`, or the first of them."""
    known = list(names)
    near = nearest(name, known)
    return f"did you mean {near!r}?" if near else f"columns: {', '.join(known[:20])}"


def _letters(word: str) -> str:
    """A word without what joins its parts: `merge_schema` and `mergeSchema` are one."""
    return word.replace("_", "").replace(".", "").replace("-", "")


def _edits(one: str, other: str) -> int:
    """How many letters are to be put in, left out, replaced or swapped with the next to make one word of the other."""
    before: list[int] = []
    last = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        row = [i]
        for j, its in enumerate(other, 1):
            least = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (letter != its))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == its:
                least = min(least, before[j - 2] + 1)
            row.append(least)
        before, last = last, row
    return last[-1]


class StrEnum(str, Enum):
    """An enumeration whose members are their texts. The standard library has it from Python 3.11 on."""

    def __str__(self) -> str:
        return str(self.value)
