"""Commands of lakelock in texts for people."""

from __future__ import annotations

import shlex


def command(*words: object) -> str:
    """`lakelock` with these words, as a shell takes it: each is one word there, whatever is in it."""
    return shlex.join(["lakelock", *map(str, words)])
