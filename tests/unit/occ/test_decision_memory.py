"""What a process keeps in memory of decisions that it has read."""

from __future__ import annotations

import pytest
from tests.behaviour.tables import insert, memory_table, writer

from lakelock.occ.log import REMEMBERED


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
