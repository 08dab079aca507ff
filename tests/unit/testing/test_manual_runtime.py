"""The clock that tests hold."""

from __future__ import annotations

import pytest

from lakelock.testing import ManualRuntime


def test_time_moves_only_when_told() -> None:
    runtime = ManualRuntime(start_ms=1000)
    assert (runtime.now_ms(), runtime.monotonic_s()) == (1000, 0.0)
    runtime.sleep(1.5)
    runtime.advance(0.25)
    assert (runtime.now_ms(), runtime.monotonic_s()) == (2750, 1.75)
    assert runtime.slept_s == [1.5]


def test_a_wrong_wall_clock_leaves_durations_alone() -> None:
    runtime = ManualRuntime(start_ms=1000)
    runtime.skew_ms = -600
    assert (runtime.now_ms(), runtime.monotonic_s()) == (400, 0.0)


def test_the_same_seed_gives_the_same_numbers_and_names() -> None:
    one, two, other = ManualRuntime(seed=1), ManualRuntime(seed=1), ManualRuntime(seed=2)
    assert [one.random(), one.uuid()] == [two.random(), two.uuid()] != [other.random(), other.uuid()]


def test_repeated_actions_run_at_their_times_in_order() -> None:
    runtime, ran = ManualRuntime(), []
    runtime.every(2, lambda: ran.append(("a", runtime.monotonic_s())), name="a")
    slow = runtime.every(3, lambda: ran.append(("b", runtime.monotonic_s())), name="b")
    runtime.advance(6)
    assert ran == [("a", 2.0), ("b", 3.0), ("a", 4.0), ("a", 6.0), ("b", 6.0)]
    slow.stop()
    slow.stop()
    runtime.advance(3)
    assert ran[5:] == [("a", 8.0)] and runtime.repeating == ["a"]


def test_an_action_that_takes_time_does_not_run_inside_itself() -> None:
    runtime, ran = ManualRuntime(), []
    runtime.every(1, lambda: (ran.append(runtime.monotonic_s()), runtime.advance(2.5)), name="slow")  # type: ignore[arg-type, return-value]
    runtime.advance(5)
    assert ran == [1.0, 4.5]


def test_an_error_in_an_action_ends_its_repetition_and_is_seen() -> None:
    runtime = ManualRuntime()
    runtime.every(1, lambda: 1 / 0, name="broken")  # type: ignore[arg-type, return-value]
    with pytest.raises(ZeroDivisionError):
        runtime.advance(1)
    assert runtime.repeating == []


def test_waiting_for_a_flag_ends_when_it_is_set() -> None:
    runtime = ManualRuntime()
    flag = runtime.flag()
    assert flag.wait(5) is False and runtime.monotonic_s() == 5
    runtime.every(2, flag.set, name="set")
    assert flag.wait(60) is True and runtime.monotonic_s() == 7


def test_gathered_calls_run_in_order() -> None:
    assert ManualRuntime().gather([lambda: 1, lambda: 2], limit=8) == [1, 2]
