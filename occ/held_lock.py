"""The table's commit lock while it is held: what was asked while it was taken, and what goes on while it is given back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lakelock.providers.base import Lease


@dataclass
class HeldLock:
    """One hold of a table's lock. `lease` is None in SINGLE_WRITER mode, which takes no lock.

    `answers`: those to the requests that were made while it was taken. `undisturbed`: nobody has held the lock since before
    these requests were made. So what is changed only under the lock was then as it is now.
    """

    lease: Lease | None = None
    since_s: float = 0.0
    """When it was taken, by the monotonic clock."""
    waited_s: float = 0.0
    answers: tuple[Any, ...] = ()
    undisturbed: bool = True
    once_released: list[Callable[[], object]] = field(default_factory=list)
    """Called as soon as the lock is given back."""
    beside_release: list[Callable[[], object]] = field(default_factory=list)
    """Requests that are made while the lock is given back."""
