"""Upkeep meets a fault, or dies, at each of its storage requests in turn: the table stays whole, and the next run goes on."""

from __future__ import annotations

import contextlib

import pytest
from tests.api import Outcome, layout
from tests.behaviour.test_every_fault import Dying, Killed
from tests.behaviour.upkeep.upkeep_tables import AgingTable
from tests.faulty_storage import Call, Fault, FaultyStorage, Rule
from tests.sizes import but, but_in_ci

from lakelock.errors import LakelockError, LeaseLost, LockTimeout
from lakelock.table.history_files import instants_in, read_history


def aged() -> tuple[AgingTable, list[str]]:
    """Six commits, of which the first three may go; one is kept by a savepoint."""
    table = AgingTable()
    written = table.write_many(6)
    table.coordinator().savepoint("kept", as_of=written[1])
    table.runtime.advance(5)
    return table, written


def break_lock(table: AgingTable) -> None:
    """As an operator does who takes the holder for dead."""
    provider = table.coordinator().table.provider
    held = provider.inspect() if provider is not None else None
    if provider is not None and held is not None:
        provider.break_lock(held.token, force=True)


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
CLEAN_MOMENTS = but(range(1, CLEAN_REQUESTS), range(1, CLEAN_REQUESTS, 27), range(1, CLEAN_REQUESTS, 3))


@pytest.mark.parametrize("sent", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", CLEAN_MOMENTS)
def test_a_cleaner_may_die_at_any_request_and_the_next_goes_on(number: int, sent: bool) -> None:
    table, written = aged()
    with contextlib.suppress(Killed):
        table.coordinator(Dying(table.storage, number, sent=sent)).clean()
    check_whole(table, written)
    check_next_run_goes_on(table, written)


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("number", CLEAN_MOMENTS)
def test_a_cleaner_meets_a_fault_at_any_request_and_the_next_goes_on(number: int, fault: Fault) -> None:
    table, written = aged()
    faulty = FaultyStorage(table.storage, lambda call: Rule(fault=fault, late_by=3) if call.number == number else None)
    with contextlib.suppress(LakelockError):
        table.coordinator(faulty).clean()
    check_whole(table, written)
    faulty.deliver()
    check_next_run_goes_on(table, written)


@pytest.mark.parametrize("number", CLEAN_MOMENTS)
def test_two_cleaners_at_once_share_the_work(number: int) -> None:
    """The second runs from beginning to end within each request of the first, whose lock is broken meanwhile."""
    table, written = aged()

    def second() -> None:
        break_lock(table)
        table.coordinator().clean()

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
ARCHIVE_MOMENTS = but(range(1, ARCHIVE_REQUESTS), range(1, ARCHIVE_REQUESTS, 27), range(1, ARCHIVE_REQUESTS, 3))


@pytest.mark.parametrize("sent", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", ARCHIVE_MOMENTS)
def test_an_archiver_may_die_at_any_request_and_the_next_goes_on(number: int, sent: bool) -> None:
    table, written = long_table()
    with contextlib.suppress(Killed):
        table.coordinator(Dying(table.storage, number, sent=sent)).archive()
    check_known(table, written)
    check_archiver_goes_on(table, written)


@pytest.mark.parametrize("number", ARCHIVE_MOMENTS)
def test_an_archiver_meets_a_fault_at_any_request_and_the_next_goes_on(number: int) -> None:
    table, written = long_table()
    fault = list(Fault)[number % len(Fault)]
    faulty = FaultyStorage(table.storage, lambda call: Rule(fault=fault, late_by=3) if call.number == number else None)
    with contextlib.suppress(LakelockError):
        table.coordinator(faulty).archive()
    check_known(table, written)
    faulty.deliver()
    check_archiver_goes_on(table, written)


@pytest.mark.parametrize("number", ARCHIVE_MOMENTS)
def test_of_two_archivers_at_once_neither_forgets_what_the_other_archived(number: int) -> None:
    """The second runs from beginning to end within each request of the first, whose lock is broken meanwhile."""
    table, written = long_table()

    def second() -> None:
        break_lock(table)
        table.coordinator().archive()

    def plan(call: Call) -> Rule | None:
        return Rule(fault=None, meanwhile=second) if call.number == number else None

    with contextlib.suppress(LeaseLost):
        table.coordinator(FaultyStorage(table.storage, plan)).archive()
    check_known(table, written)
    check_archiver_goes_on(table, written)


@pytest.mark.parametrize("number", but_in_ci(range(15, 25), range(15, 25, 3)))
def test_an_archiver_that_stood_still_does_not_take_the_history_back_to_what_it_had_read(number: int) -> None:
    """Meanwhile others broke its lock, wrote on, and archived more than it is about to."""
    table, written = long_table()

    def meanwhile() -> None:
        break_lock(table)
        written.extend(table.write_many(4))
        table.coordinator().archive()

    def plan(call: Call) -> Rule | None:
        return Rule(fault=None, meanwhile=meanwhile) if call.number == number else None

    with contextlib.suppress(LakelockError):
        table.coordinator(FaultyStorage(table.storage, plan)).archive()
    check_known(table, written)
    check_archiver_goes_on(table, written)


@pytest.mark.parametrize("number", ARCHIVE_MOMENTS)
def test_an_archiver_that_stood_still_while_others_replaced_and_merged_the_history_finds_no_damage(number: int) -> None:
    """What it had read is superseded, and most of it removed. It may lose the lock, but reports no damage and does none."""
    table, written = long_table()

    def plan(call: Call) -> Rule | None:
        return Rule(fault=None, meanwhile=lambda: others(table, written)) if call.number == number else None

    with contextlib.suppress(LeaseLost, LockTimeout):
        table.coordinator(FaultyStorage(table.storage, plan)).archive()
    check_nothing_is_forgotten(table, written)
    check_archiver_goes_on(table, written)


@pytest.mark.parametrize("sent", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", ARCHIVE_MOMENTS)
def test_what_a_killed_archiver_left_is_not_removed_once_the_next_one_has_listed_it(number: int, sent: bool) -> None:
    """A third archiver stands still between its listing and its removals, for as long as it takes to list it."""
    table, written = long_table()
    with contextlib.suppress(Killed):
        table.coordinator(Dying(table.storage, number, sent=sent)).archive()
    table.runtime.advance(1_000)
    listings = 0

    def plan(call: Call) -> Rule | None:
        nonlocal listings
        listings += (call.op, call.key) == ("list", layout.HISTORY)
        if listings != 1 or call.op == "list":
            return None
        listings += 1
        return Rule(fault=None, meanwhile=lambda: others(table, written))

    for _ in range(4):
        written.extend(table.write_many(2))
        with contextlib.suppress(LeaseLost, LockTimeout):
            table.coordinator(FaultyStorage(table.storage, plan)).archive()
        check_nothing_is_forgotten(table, written)
    assert listings > 1, "the third one did stand still"
    history = read_history(table.storage)
    left = {name for name in table.names(layout.HISTORY) if name.endswith(".parquet")} - {file.name for file in history.files}
    assert len(left) < 10, "what was left behind goes in the end"


def others(table: AgingTable, written: list[str]) -> None:
    """Whoever finds a lock in the way breaks it."""
    break_lock(table)
    for _ in range(6):
        written.extend(table.write_many(2))
        table.runtime.advance(1_000)
        table.coordinator().archive()


def check_nothing_is_forgotten(table: AgingTable, written: list[str]) -> None:
    """Each commit is on the timeline or in a file of the newest history, and all files that it lists exist."""
    known = {requested for file in read_history(table.storage).files for requested, _ in instants_in(table.storage, file)}
    assert known | {commit.requested for commit in table.timeline().commits} >= set(written)
