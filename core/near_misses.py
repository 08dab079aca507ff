"""The known name that a misspelt one is nearest to: one measure of nearness for settings, options and columns."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The nearest of the known names, in any case; None if none is near."""
    by_lower = {one.lower(): one for one in known}
    near = get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[near[0]] if near else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean "x"?`, the end of a message that names an unknown word, or an empty string."""
    near = nearest(word, known)
    return f'; did you mean "{near}"?' if near else ""


def column_hint(name: str, names: Iterable[str]) -> str:
    """The hint of an error about an unknown column: the nearest of `names`, or the first of them."""
    known = list(names)
    near = nearest(name, known)
    return f"did you mean {near!r}?" if near else f"columns: {', '.join(known[:20])}"
