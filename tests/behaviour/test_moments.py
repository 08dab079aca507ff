"""Moments that a read may name: those that have come, by this machine's clock or by the table's own instants."""

from __future__ import annotations

import pytest
from tests.api import Action, Instant, MemoryStorage, State, format_instant, layout
from tests.behaviour.tables import new_table, writer

from lakelock.errors import InputError
from lakelock.occ.reading import CLOCK_AHEAD_MS, ensure_in_order, ensure_not_future
from lakelock.testing import ManualRuntime


def test_a_moment_has_come_unless_it_is_later_than_this_clock_and_than_every_instant_of_the_table() -> None:
    storage, runtime = MemoryStorage(), ManualRuntime()
    new_table(storage)
    with writer(storage, runtime=runtime) as opened:
        table, now_ms = opened.table, runtime.now_ms()
        soon, later = format_instant(now_ms + CLOCK_AHEAD_MS), format_instant(now_ms + 3 * CLOCK_AHEAD_MS)
        assert ensure_not_future(table, "UTC", soon, "as_of") == soon
        with pytest.raises(InputError, match=f"as_of is {later}, which is still to come") as told:
            ensure_not_future(table, "UTC", later, "as_of")
        assert "in UTC" in told.value.hint
        ahead = Instant(soon, Action.COMMIT.value, State.COMPLETED, later)
        storage.put(layout.timeline(ahead.file_name), b"{}")
        assert ensure_not_future(table, "UTC", later, "as_of") == later, "the clock of the machine that committed is ahead"


def test_a_range_that_ends_before_it_begins_is_refused() -> None:
    ensure_in_order("20261120120000000", None)
    ensure_in_order("20261120120000000", "20261120120000000")
    with pytest.raises(InputError, match="until .* is before since"):
        ensure_in_order("20261120120000000", "20261119120000000")
