"""Parameters that only the long form of a test has: `make test FULL=1`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import pytest


def long(*values: object) -> Iterator[object]:
    """These parameters, for `pytest.mark.parametrize`, in the long form only. A tuple is one parameter of several names."""
    for value in values:
        yield pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.long)


def but(values: Iterable[object], kept: Collection[object]) -> Iterator[object]:
    """All of these parameters, of which the short form has only what is `kept`."""
    for value in values:
        yield from (value,) if value in kept else long(value)
