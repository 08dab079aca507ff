"""The queue between the threads of one process: a turn is never lost."""

from __future__ import annotations

from threading import Event, Thread

from lakelock.clock import Flag, SystemRuntime
from lakelock.providers.turnstile import Turnstile


class InterruptedOnceItsTurnCame:
    """A flag whose waiter gets Ctrl-C when it has just been let in."""

    def __init__(self) -> None:
        self._came = Event()
        self.waiting = Event()

    def set(self) -> None:
        self._came.set()

    def is_set(self) -> bool:
        return self._came.is_set()

    def wait(self, timeout_s: float) -> bool:
        self.waiting.set()
        self._came.wait(timeout_s)
        raise KeyboardInterrupt


class Interrupting(SystemRuntime):
    def __init__(self) -> None:
        self.made = InterruptedOnceItsTurnCame()

    def flag(self) -> Flag:
        return self.made


def enter(turnstile: Turnstile, interrupted: list[bool]) -> None:
    try:
        turnstile.enter(5)
    except KeyboardInterrupt:
        interrupted.append(True)


def test_an_interrupt_gives_the_turn_that_has_come_to_the_next() -> None:
    runtime, interrupted = Interrupting(), list[bool]()
    turnstile = Turnstile(runtime)
    assert turnstile.enter(0)
    waiter = Thread(target=enter, args=(turnstile, interrupted))
    waiter.start()
    assert runtime.made.waiting.wait(5)
    turnstile.leave()
    waiter.join(5)
    assert interrupted == [True]
    assert turnstile.enter(0)


def test_an_interrupt_before_the_turn_leaves_the_queue() -> None:
    runtime = Interrupting()
    turnstile = Turnstile(runtime)
    assert turnstile.enter(0)
    interrupted: list[bool] = []
    waiter = Thread(target=lambda: interrupted.append(raised(turnstile)))
    waiter.start()
    waiter.join(5)
    assert interrupted == [True]
    turnstile.leave()
    assert turnstile.enter(0)


def raised(turnstile: Turnstile) -> bool:
    try:
        turnstile.enter(0.01)
    except KeyboardInterrupt:
        return True
    return False
