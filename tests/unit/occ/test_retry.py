"""Back-off: bounded in number and length, and spread."""

from __future__ import annotations

import pytest
from tests.api import SystemRuntime

from lakelock.occ.retry import Backoff


class _Loaded(SystemRuntime):
    """A runtime whose dice always show the same number."""

    def __init__(self, number: float) -> None:
        self._number = number

    def random(self) -> float:
        return self._number


def test_waits_double_up_to_the_longest_and_then_end() -> None:
    waits = list(Backoff(6, 0.5, 3.0).waits(_Loaded(1.0)))
    assert waits == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_the_jitter_is_full_so_a_wait_may_be_none_at_all() -> None:
    assert list(Backoff(3, 1.0, 8.0).waits(_Loaded(0.0))) == [0.0, 0.0]
    assert list(Backoff(3, 1.0, 8.0).waits(_Loaded(0.25))) == [0.25, 0.5]


def test_one_attempt_means_no_retry() -> None:
    assert list(Backoff(1, 1.0, 8.0).waits(SystemRuntime())) == []


def test_very_many_attempts_do_not_overflow() -> None:
    assert Backoff(5_000, 1.0, 8.0).bound_s(4_999) == 8.0


@pytest.mark.parametrize("numbers", [(0, 1.0, 1.0), (2, -1.0, 1.0), (2, 2.0, 1.0)])
def test_senseless_numbers_are_refused(numbers: tuple[int, float, float]) -> None:
    with pytest.raises(ValueError, match="needs attempts"):
        Backoff(*numbers)
