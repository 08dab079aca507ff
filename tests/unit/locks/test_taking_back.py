"""Requests that were given up without an answer are taken back, whatever else happens meanwhile."""

from __future__ import annotations

from lakelock.errors import StorageUnavailable
from lakelock.providers.base import TakingBack
from lakelock.testing import ManualRuntime


def test_what_is_given_up_as_the_last_one_is_done_is_taken_back_too() -> None:
    taken: list[str] = []
    runtime = ManualRuntime()

    class Mutex:
        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None:
            if taken == ["first"]:
                taken.append("meanwhile")
                back.add(lambda: taken.append("second"), 15, "second")

    runtime.mutex = Mutex  # type: ignore[method-assign, assignment]
    back = TakingBack(runtime)
    back.add(lambda: taken.append("first"), 0.3, "first")
    runtime.advance(20)
    assert "second" in taken


def test_an_attempt_that_fails_stops_neither_itself_nor_others() -> None:
    taken: list[str] = []
    runtime = ManualRuntime()
    back = TakingBack(runtime)

    def failing() -> None:
        taken.append("failing")
        raise RuntimeError("of a driver") if len(taken) % 2 else StorageUnavailable("no answer", hint="")

    back.add(failing, 15, "one")
    back.add(lambda: taken.append("other"), 15, "other")
    runtime.advance(20)
    assert taken.count("failing") > 3 and taken.count("other") > 3
