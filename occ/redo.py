"""One attempt's part in a write that does again only what collided (ADR 19)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Redo:
    """What an attempt takes over from the one before it, and whether the next may take over from it."""

    keeps_files: bool = False
    """Whether a commit that conflicts sets the attempt aside, for `lakelock.occ.set_aside`."""
    earlier: str | None = None
    """The instant of the attempt before, which is set aside."""
    kept: int = 0
    """How many files are copies of that attempt's."""
