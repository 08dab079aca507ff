"""Upkeep meets a fault, or dies, at each of its storage requests in turn: the table stays whole, and the next run goes on."""

from __future__ import annotations

import contextlib

import pytest

from lakelock.errors import LakelockError, LeaseLost
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.history import Outcome
from tests.behaviour.test_every_fault import Dying, Killed
from tests.behaviour.upkeep.upkeep_tables import AgingTable
from tests.faulty_storage import Call, Fault, FaultyStorage, Rule


def aged() -> tuple[AgingTable, list[str]]:
    """Six commits, of which the first three may go; one is kept by a savepoint."""
    table = AgingTable()
    written = table.write_many(6)
    table.coordinator().savepoint("kept", as_of=written[1])
    table.runtime.advance(5)
    return table, written


def check_whole(table: AgingTable, written: list[str]) -> None:
    assert table.shown() == {"a": written[-1]}
    for instant in (written[1], *written[3:]):
        assert table.shown(instant) == {"a": instant}


def check_next_run_goes_on(table: AgingTable, written: list[str]) -> None:
    table.runtime.stop_repeating()
    table.runtime.advance(30)
    table.coordinator().clean()
    check_whole(table, written)
    assert table.slices() == [written[1], *written[3:]]
    assert len([i for i in table.timeline().cleanings if i.is_completed]) >= 1
    assert all(i.is_completed for i in table.timeline().cleanings)
    done = [name for name in table.names() if name.endswith(".clean")]
    assert len(done) == len(table.timeline().cleanings), "a clean is completed once"
    later = table.write("a")
    assert table.shown() == {"a": later}


CLEAN_REQUESTS = 36


@pytest.mark.parametrize("sent", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(1, CLEAN_REQUESTS))
def test_a_cleaner_may_die_at_any_request_and_the_next_goes_on(number: int, sent: bool) -> None:
    table, written = aged()
    with contextlib.suppress(Killed):
        table.coordinator(Dying(table.storage, number, sent=sent)).clean()
    check_whole(table, written)
    check_next_run_goes_on(table, written)


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("number", range(1, CLEAN_REQUESTS))
def test_a_cleaner_meets_a_fault_at_any_request_and_the_next_goes_on(number: int, fault: Fault) -> None:
    table, written = aged()
    faulty = FaultyStorage(table.storage, lambda call: Rule(fault=fault, late_by=3) if call.number == number else None)
    with contextlib.suppress(LakelockError):
        table.coordinator(faulty).clean()
    check_whole(table, written)
    faulty.deliver()
    check_next_run_goes_on(table, written)


@pytest.mark.parametrize("number", range(1, CLEAN_REQUESTS))
def test_two_cleaners_at_once_share_the_work(number: int) -> None:
    """The second runs from beginning to end within each request of the first, whose lock is broken meanwhile."""
    table, written = aged()

    def second() -> None:
        other: Coordinator = table.coordinator()
        provider = other.table.provider
        held = provider.inspect() if provider is not None else None
        if provider is not None and held is not None:
            provider.break_lock(held.token, force=True)
        other.clean()

    def plan(call: Call) -> Rule | None:
        return Rule(fault=None, meanwhile=second) if call.number == number else None

    with contextlib.suppress(LakelockError):
        table.coordinator(FaultyStorage(table.storage, plan)).clean()
    check_whole(table, written)
    table.runtime.advance(30)
    table.coordinator().clean()
    assert table.slices() == [written[1], *written[3:]] and all(i.is_completed for i in table.timeline().cleanings)


def long_table() -> tuple[AgingTable, list[str]]:
    """Twelve commits: two files of the history hold some, a third one is due, and then the three are merged."""
    table = AgingTable()
    written = table.write_many(6)
    table.coordinator().archive()
    written += table.write_many(2)
    table.coordinator().archive()
    written += table.write_many(2)
    return table, written


def check_known(table: AgingTable, written: list[str]) -> None:
    """Every commit is visible to readers by names, and known by its outcome and in the history."""
    assert table.shown() == {"a": written[-1]}
    coordinator = table.coordinator()
    for instant in written:
        assert table.shown(instant) == {"a": instant} and coordinator.outcome(instant) is Outcome.COMMITTED
    assert [entry.instant for entry in coordinator.history()] == written[::-1]


def check_archiver_goes_on(table: AgingTable, written: list[str]) -> None:
    table.runtime.stop_repeating()
    table.runtime.advance(30)
    table.coordinator().archive()
    check_known(table, written)
    assert [i.requested for i in table.timeline().commits] == written[-3:]
    written = [*written, *table.write_many(3)]
    table.coordinator().archive()
    check_known(table, written)


ARCHIVE_REQUESTS = 75


@pytest.mark.parametrize("sent", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(1, ARCHIVE_REQUESTS))
def test_an_archiver_may_die_at_any_request_and_the_next_goes_on(number: int, sent: bool) -> None:
    table, written = long_table()
    with contextlib.suppress(Killed):
        table.coordinator(Dying(table.storage, number, sent=sent)).archive()
    check_known(table, written)
    check_archiver_goes_on(table, written)


@pytest.mark.parametrize("number", range(1, ARCHIVE_REQUESTS))
def test_an_archiver_meets_a_fault_at_any_request_and_the_next_goes_on(number: int) -> None:
    table, written = long_table()
    fault = list(Fault)[number % len(Fault)]
    faulty = FaultyStorage(table.storage, lambda call: Rule(fault=fault, late_by=3) if call.number == number else None)
    with contextlib.suppress(LakelockError):
        table.coordinator(faulty).archive()
    check_known(table, written)
    faulty.deliver()
    check_archiver_goes_on(table, written)


@pytest.mark.parametrize("number", range(1, ARCHIVE_REQUESTS))
def test_of_two_archivers_at_once_neither_forgets_what_the_other_archived(number: int) -> None:
    """The second runs from beginning to end within each request of the first, whose lock is broken meanwhile."""
    table, written = long_table()

    def second() -> None:
        other = table.coordinator()
        provider = other.table.provider
        held = provider.inspect() if provider is not None else None
        if provider is not None and held is not None:
            provider.break_lock(held.token, force=True)
        other.archive()

    def plan(call: Call) -> Rule | None:
        return Rule(fault=None, meanwhile=second) if call.number == number else None

    with contextlib.suppress(LeaseLost):
        table.coordinator(FaultyStorage(table.storage, plan)).archive()
    check_known(table, written)
    check_archiver_goes_on(table, written)


@pytest.mark.parametrize("number", range(15, 25))
def test_an_archiver_that_stood_still_does_not_take_the_history_back_to_what_it_had_read(number: int) -> None:
    """Meanwhile others broke its lock, wrote on, and archived more than it is about to."""
    table, written = long_table()

    def meanwhile() -> None:
        provider = table.coordinator().table.provider
        held = provider.inspect() if provider is not None else None
        if provider is not None and held is not None:
            provider.break_lock(held.token, force=True)
        written.extend(table.write_many(4))
        table.coordinator().archive()

    def plan(call: Call) -> Rule | None:
        return Rule(fault=None, meanwhile=meanwhile) if call.number == number else None

    with contextlib.suppress(LakelockError):
        table.coordinator(FaultyStorage(table.storage, plan)).archive()
    check_known(table, written)
    check_archiver_goes_on(table, written)
