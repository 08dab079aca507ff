"""What a process keeps in memory of decisions that it has read."""

from __future__ import annotations

import sys
import threading

import pytest
from tests.api import layout
from tests.behaviour.tables import insert, memory_table, writer

from lakelock.occ.log import REMEMBERED, Decision, DecisionKind, DecisionLog


@pytest.mark.in_ci
def test_decisions_that_others_collected_are_forgotten_but_for_the_newest():
    storage = memory_table()
    idle, busy = writer(storage), writer(storage)
    read: dict[int, str] = {}
    for number in range(4 * REMEMBERED):
        insert(busy, storage, "month=1", f"f{number}")
        read |= {decision.number: decision.instant for decision in idle.table.log.look(newest=None).decisions}
        if number % 32 == 31:
            busy.collect()
    kept = [number for number, instant in sorted(read.items()) if idle.table.log.known(instant)]
    assert kept[-1] == 4 * REMEMBERED and len(kept) <= 3 * REMEMBERED


def test_threads_may_look_through_what_is_known_while_others_read_more():
    storage, there = memory_table(), range(1, 4 * REMEMBERED)
    by = writer(storage).table.writer
    for number in there:
        decision = Decision(number, DecisionKind.ROLLBACK, f"instant {number}", "commit", "", by, "ROLLBACK")
        storage.put_if_absent(layout.decision(number), decision.to_bytes())
    log, is_over, errors = DecisionLog(storage), threading.Event(), list[Exception]()
    log.raise_boundary(there[-1] - 1)

    def read() -> None:
        while not is_over.is_set():
            log.between(0, there[-1])

    def look() -> None:
        try:
            for _ in range(3_000):
                log.known("none"), log.without_decision((), after=0, up_to=1), log.read_boundary()
        except RuntimeError as error:
            errors.append(error)
        is_over.set()

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=each) for each in (read, look)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    finally:
        sys.setswitchinterval(before)
    assert not errors
