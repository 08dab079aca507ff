"""The queue between the threads of one process: a turn is never lost."""

from __future__ import annotations

from threading import Event, Thread

from tests.api import SystemRuntime

from lakelock.clock import Flag
from lakelock.providers.polling import Turnstile


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


def waiter(turnstile: Turnstile, wait_s: float, interrupted: list[bool]) -> Thread:
    """A thread that waits for its turn, and says that it was interrupted."""

    def enter() -> None:
        try:
            turnstile.enter(wait_s)
        except KeyboardInterrupt:
            interrupted.append(True)

    thread = Thread(target=enter)
    thread.start()
    return thread


def test_an_interrupt_gives_the_turn_that_has_come_to_the_next() -> None:
    runtime, interrupted = Interrupting(), list[bool]()
    turnstile = Turnstile(runtime)
    assert turnstile.enter(0)
    waiting = waiter(turnstile, 5, interrupted)
    assert runtime.made.waiting.wait(5)
    turnstile.leave()
    waiting.join(5)
    assert interrupted == [True]
    assert turnstile.enter(0)


def test_an_interrupt_before_the_turn_leaves_the_queue() -> None:
    interrupted: list[bool] = []
    turnstile = Turnstile(Interrupting())
    assert turnstile.enter(0)
    waiter(turnstile, 0.01, interrupted).join(5)
    assert interrupted == [True]
    turnstile.leave()
    assert turnstile.enter(0)
