"""Time, randomness, identity and threads: the only module that touches them.

Everything else receives a `Runtime`, so that tests can hold time still and a simulator can decide every interleaving.
Wall-clock readings (`now_ms`) only ever name things; durations and deadlines use `monotonic_s`.
"""

from __future__ import annotations

import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from contextvars import copy_context
from types import TracebackType
from typing import Protocol, TypeVar

T = TypeVar("T")

# Unlike time.monotonic(), this clock keeps running while the machine sleeps, as other machines' leases do.
_MONOTONIC = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Flag(Protocol):
    """A one-way switch that another thread may be waiting for."""

    def set(self) -> None: ...

    def is_set(self) -> bool: ...

    def wait(self, timeout_s: float) -> bool:
        """Return True as soon as the flag is set, False when `timeout_s` seconds have passed."""
        ...


class Repeating(Protocol):
    """A background action that repeats until it is stopped."""

    def stop(self) -> None:
        """Stop: on return the action is not running, and it will not run again. May be called twice."""
        ...


class Runtime(Protocol):
    """What the engine needs from the outside world besides storage and locks."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC by this machine's clock, which may be wrong."""
        ...

    def monotonic_s(self) -> float:
        """Seconds by a clock that never goes backwards, for durations within this process."""
        ...

    def sleep(self, seconds: float) -> None:
        """Back off for a bounded time. Never a way to wait for another thread."""
        ...

    def random(self) -> float:
        """A number in [0, 1)."""
        ...

    def uuid(self) -> str:
        """A new random UUID in its 36-character form."""
        ...

    def every(self, interval_s: float, action: Callable[[], None], *, name: str) -> Repeating:
        """Run `action` every `interval_s` seconds in the background, for the first time after one interval.

        `action` handles its own errors; one that escapes ends the repetition.
        """
        ...

    def gather(self, calls: Sequence[Callable[[], T]], *, limit: int) -> list[T]:
        """Run `calls`, at most `limit` at a time, and return their results in order; the first error is raised.

        Each call sees the caller's context variables.
        """
        ...

    def mutex(self) -> AbstractContextManager[object]:
        """A new lock between the threads of this process."""
        ...

    def flag(self) -> Flag:
        """A new flag, not set."""
        ...


class SystemRuntime:
    """The real clock, threads and randomness of this process."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.clock_gettime(_MONOTONIC)

    def sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds))

    def random(self) -> float:
        return random.random()

    def uuid(self) -> str:
        return str(uuid.uuid4())

    def every(self, interval_s: float, action: Callable[[], None], *, name: str) -> Repeating:
        return _RepeatingThread(interval_s, action, name)

    def gather(self, calls: Sequence[Callable[[], T]], *, limit: int) -> list[T]:
        if len(calls) <= 1 or limit <= 1:
            return [call() for call in calls]
        with ThreadPoolExecutor(max_workers=min(limit, len(calls)), thread_name_prefix="lakelock") as pool:
            return [future.result() for future in [pool.submit(copy_context().run, call) for call in calls]]

    def mutex(self) -> AbstractContextManager[object]:
        return threading.RLock()

    def flag(self) -> Flag:
        return _ThreadFlag()


class _ThreadFlag:
    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, timeout_s: float) -> bool:
        return self._event.wait(timeout_s)


class _RepeatingThread:
    """A daemon thread, so that a driver that exits without closing anything is not kept alive by a heartbeat."""

    def __init__(self, interval_s: float, action: Callable[[], None], name: str) -> None:
        self._interval_s, self._action = interval_s, action
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"lakelock-{name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.wait(self._interval_s):
            self._action()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not threading.current_thread() and self._thread.is_alive():
            self._thread.join()


class ForkSafeMutex(AbstractContextManager[object]):
    """A mutex that outlives forks, for modules: a child has one of its own, since no thread there unlocks what it inherited."""

    def __init__(self) -> None:
        self._of_process = {os.getpid(): threading.RLock()}

    def __enter__(self) -> object:
        return self._mine().__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._mine().release()

    def _mine(self) -> threading.RLock:
        return self._of_process.get(os.getpid()) or self._of_process.setdefault(os.getpid(), threading.RLock())


def process_identity() -> tuple[str, int, str]:
    """Host name, process id and user name of this process."""
    user = os.environ.get("USER") or os.environ.get("LOGNAME") or login_name()
    return socket.gethostname(), os.getpid(), user or str(os.getuid() if hasattr(os, "getuid") else "unknown")


def login_name() -> str:
    """As the system knows this user, whatever variables say; empty for a user without a name."""
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        return ""
