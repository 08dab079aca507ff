"""The promises of a lock on a service that stops for 0.2 s now and then, beside a core that has other work.

A request may then be carried out after the writer has given it up, and also after it has looked for its grant in vain.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tests.integration.matrix import SERVICES_OF_ROWS, Services
from tests.servers import Service

from lakelock.testing.lock_suite import LockedTable, LockProviderSuite

STOPS_S, RUNS_S = 0.2, 0.8
ANSWER_S = "2"
"""For how long an answer is waited for: a stop and the other work may add up to half a second, which Redis gets elsewhere."""
STOPPED_ROWS = sorted(SERVICES_OF_ROWS.keys() - {"storage", "storage on S3"})


@contextmanager
def slowed(service: Service) -> Iterator[Service]:
    """The service, which stops now and then as long as a test does not stop or pause it itself."""
    turn, over = threading.Lock(), threading.Event()

    def stopping_now_and_then() -> None:
        while not over.wait(RUNS_S):
            with turn:
                service.pause()
                over.wait(STOPS_S)
                service.resume()

    def ending_a_turn(end: Callable[[], None]) -> None:
        end()
        turn.release()

    def taking_a_turn(begin: Callable[[], None]) -> None:
        turn.acquire()
        begin()

    thread = threading.Thread(target=stopping_now_and_then, daemon=True)
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    thread.start()
    try:
        yield replace(
            service,
            options={**service.options, **{name: ANSWER_S for name in service.options if name == "redis.socket_timeout_s"}},
            stop=partial(taking_a_turn, service.stop),
            start=partial(ending_a_turn, service.start),
            pause=partial(taking_a_turn, service.pause),
            resume=partial(ending_a_turn, service.resume),
        )
    finally:
        over.set()
        thread.join()
        busy.kill()
        busy.wait()


@pytest.fixture(params=STOPPED_ROWS)
def service(request: pytest.FixtureRequest, services: Services) -> Iterator[Service]:
    with slowed(services(request.param)) as slow:
        yield slow


@pytest.mark.long
class TestOnASlowedService(LockProviderSuite):
    @pytest.fixture
    def locked_table(self, service: Service, tmp_path: Path) -> LockedTable:
        return LockedTable.of(service, tmp_path)
