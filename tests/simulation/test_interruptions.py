"""Whoever interrupts a run ends it; only an error of the code that is simulated is a finding."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.simulator.run import run
from tests.simulator.scenarios.swarm import scenario_of
from tests.simulator.scheduler import Hub


class TimeIsUp(BaseException):
    """As pytest's time limit: an interruption, and no error."""


def raised_at_wait(number: int, error: BaseException) -> Callable[[Hub, float], None]:
    """`Hub.wait`, which raises the error in whichever task is the one to wait for this time."""
    wait, waits = Hub.wait, 0

    def interrupted(hub: Hub, seconds: float) -> None:
        nonlocal waits
        waits += 1
        if waits == number:
            raise error
        wait(hub, seconds)

    return interrupted


@pytest.mark.parametrize("number", [1, 40, 400])
def test_an_interruption_ends_the_run_and_is_no_violation(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = run(scenario_of(0)).digest
    with monkeypatch.context() as patched:
        patched.setattr(Hub, "wait", raised_at_wait(number, TimeIsUp()))
        with pytest.raises(TimeIsUp):
            run(scenario_of(0))
    assert run(scenario_of(0)).digest == digest


def test_an_error_of_the_code_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Hub, "wait", raised_at_wait(400, ZeroDivisionError("planted")))
    (violation,) = run(scenario_of(0)).violations
    assert (violation.promise, "planted" in violation.detail) == ("no error but lakelock's own", True)
