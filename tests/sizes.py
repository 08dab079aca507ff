"""How much of the tests a run takes.

`make test` shows once what most users rely on. In CI, and with `CI=1`, those with the marker `in_ci` run, too: the same on
further services, stores, engines and moments, of which each build takes a sample (`tests.sampling`), corners, and what takes
long. Those with the marker `long` need `FULL=1`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable

import pytest

Parameters = list[object]
"""For `pytest.mark.parametrize`. A tuple is one parameter of several names."""


def in_ci(*values: object) -> Parameters:
    """These parameters in the long form, and some of them in CI: `tests.sampling` says which."""
    return [_marked(value, pytest.mark.in_ci, pytest.mark.sampled) for value in values]


def long(*values: object) -> Parameters:
    """These parameters in the long form only."""
    return [_marked(value, pytest.mark.long) for value in values]


def but(values: Iterable[object], kept: Collection[object], ci: Collection[object] = ()) -> Parameters:
    """What is `kept` of these parameters in each run, some of `ci` in CI as well, and all of them in the long form."""
    return [each for value in values for each in ([value] if value in kept else in_ci(value) if value in ci else long(value))]


def but_in_ci(values: Collection[object], kept: Collection[object]) -> Parameters:
    """What is `kept` of these parameters in each run, some of them in CI, and all of them in the long form."""
    return but(values, kept, values)


def examples(short: int, full: int) -> int:
    """How many examples a test takes in a run, and in the long form."""
    return full if os.environ.get("FULL") else short


def _marked(value: object, *marks: pytest.MarkDecorator) -> object:
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=marks)
