"""A promise of the demo, and whether a run kept it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Promise:
    """Something that the run had to show, and what it showed."""

    kept: bool
    text: str
