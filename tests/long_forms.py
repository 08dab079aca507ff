"""What only the long form of a test has, `make test FULL=1`: more parameters, more examples."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable

import pytest


def long(*values: object) -> list[object]:
    """These parameters, for `pytest.mark.parametrize`, in the long form only. A tuple is one parameter of several names."""
    return [pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.long) for value in values]


def but(values: Iterable[object], kept: Collection[object]) -> list[object]:
    """All of these parameters, of which the short form has only what is `kept`."""
    return [each for value in values for each in ([value] if value in kept else long(value))]


def examples(short: int, full: int) -> int:
    """How many examples a test takes in the short form, and in the long one."""
    return full if os.environ.get("FULL") else short
