"""Visits every state that a model can reach: what all models of this folder have in common."""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

World = TypeVar("World", bound=Hashable)


class Broken(Exception):
    """A step that breaks a promise by itself, whatever state it leads to."""


def visit(
    first: World, steps: Callable[[World], Iterable[World]], violation: Callable[[World], str | None], *, most_states: int
) -> tuple[int, str | None]:
    """How many states there are, and the first violation that is met; an error if there are more than `most_states`."""
    known, stack = {first}, [first]
    with _uncollected():
        while stack:
            try:
                for after in steps(stack.pop()):
                    if after in known:
                        continue
                    found = violation(after)
                    if found:
                        return len(known), found
                    known.add(after)
                    stack.append(after)
            except Broken as broken:
                return len(known), str(broken)
            if len(known) > most_states:
                raise AssertionError(f"more than {most_states} states")
    return len(known), None


@contextmanager
def _uncollected() -> Iterator[None]:
    """States have no cycles: a garbage collector that walks over millions of them again and again finds nothing."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
