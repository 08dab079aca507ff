"""Archiving: what leaves the active timeline and what stays, and that nothing is forgotten by it."""

from __future__ import annotations

from dataclasses import replace

import pyarrow.compute as pc
import pytest
from tests.api import (
    Action,
    AppTransaction,
    ArrowEngine,
    FileGroupId,
    Instant,
    Outcome,
    RollbackPlan,
    State,
    WriteRequest,
    layout,
)
from tests.behaviour.foreign import Peer
from tests.behaviour.tables import Recorder, put_file
from tests.behaviour.upkeep.test_optimize import rows
from tests.behaviour.upkeep.upkeep_tables import KEEPING_TWO, PARTITION, AgingTable
from tests.faulty_storage import CountingStorage, FaultyStorage, RepeatingStorage, Rule

from lakelock.errors import ConflictError
from lakelock.occ.history import read_summary
from lakelock.settings import ArchiveSettings, CleanSettings, ListingSettings
from lakelock.table.archive import archived_writes, completed_write, read_commit
from lakelock.table.change_feed import read_changes
from lakelock.table.history_files import read_history
from lakelock.table.instants import later_than


def active(table: AgingTable) -> list[str]:
    return [i.requested for i in table.timeline().commits]


def test_the_oldest_instants_move_to_the_history_and_every_row_stays_visible() -> None:
    table = AgingTable()
    table.write("still")
    written = table.write_many(9)
    shown, recorder = table.shown(), Recorder()
    done = table.coordinator(listener=recorder).archive()
    assert active(table) == written[-3:] and done.instants == 7 and done.last == written[-4]
    assert table.shown() == shown and "archived" in recorder.kinds()
    assert read_history(table.storage).version == 1
    assert [f.name for f in read_history(table.storage).files] == [f"{done.first}_{done.last}_0.parquet"]
    left = {name[:17] for name in table.names() if not name.startswith("history")}
    assert left == set(written[-3:]), "nothing of the archived instants stays"
    later = table.write("a")
    assert table.shown()["a"] == later


def test_what_was_archived_shows_although_every_later_commit_has_a_savepoint() -> None:
    table = AgingTable()
    table.write("still")
    table.write_many(9)
    table.coordinator().archive()
    shown = table.shown()
    for instant in active(table):
        table.coordinator().savepoint(f"of {instant}", instant)
    assert table.shown() == shown and "still" in shown


def test_nothing_is_archived_before_there_is_enough() -> None:
    table = AgingTable()
    table.write_many(4)
    before = table.names("")
    assert table.coordinator().archive().instants == 0 and table.names("") == before


def test_as_many_commits_stay_as_cleaning_needs() -> None:
    table = AgingTable(replace(KEEPING_TWO, clean=CleanSettings(policy="KEEP_LATEST_COMMITS", keep_commits=6, readers_s=0)))
    written = table.write_many(9)
    table.coordinator().archive()
    assert active(table) == written[-7:]


def test_an_outcome_and_a_version_are_known_after_archiving_and_collecting() -> None:
    table = AgingTable()
    for version in range(5):
        table.runtime.advance(5)
        with table.coordinator().begin(WriteRequest("INSERT", application=AppTransaction("stream", version))) as tx:
            tx.commit([put_file(tx, table.storage, PARTITION, f"s{version}")])
    applied = active(table)
    gone = table.coordinator().begin("INSERT")
    gone.abort()
    table.write_many(9)
    table.coordinator().archive()
    assert table.coordinator().collect() > 0 and not set(applied) & set(active(table))
    fresh = table.coordinator()
    assert [fresh.outcome(instant) for instant in applied] == [Outcome.COMMITTED] * 5
    assert fresh.outcome(gone.instant) is Outcome.REJECTED
    for version in range(5):
        done = fresh.applied_by(AppTransaction("stream", version))
        assert done is not None and done.instant == applied[-1]
        with pytest.raises(ConflictError, match="already applied"):
            fresh.begin(WriteRequest("INSERT", application=AppTransaction("stream", version)))
    assert fresh.applied_by(AppTransaction("stream", 5)) is None and fresh.applied_by(AppTransaction("other", 0)) is None


def test_history_and_changes_go_on_into_the_archive() -> None:
    table = AgingTable()
    written = table.write_many(9)
    before = table.coordinator().history(100)
    changes = read_changes(table.storage, table.timeline(), "")
    table.coordinator().archive()
    assert table.coordinator().history(100) == before and [e.instant for e in before] == written[::-1]
    assert [e.instant for e in table.coordinator().history(7)] == written[:1:-1]
    assert read_changes(table.storage, table.timeline(), "") == changes
    third = completed_write(table.storage, table.timeline(), written[2])
    assert third is not None
    assert [i.requested for i in read_changes(table.storage, table.timeline(), third.completion).instants] == written[3:]


def test_the_past_can_be_read_as_of_an_archived_commit() -> None:
    table = AgingTable()
    table.write("still")
    written = table.write_many(9)
    table.coordinator().archive()
    assert {f.file_id: f.instant for f in table.coordinator().snapshot(written[1]).files}["a"] == written[1]


def test_a_commit_that_is_archived_after_it_was_listed_is_read_from_the_history() -> None:
    table = AgingTable()
    table.write_many(9)
    listed = table.timeline().commits
    before = [read_commit(table.storage, commit) for commit in listed]
    table.coordinator().archive()
    assert len(active(table)) == 3
    assert [read_commit(table.storage, commit) for commit in listed] == before


def test_an_instant_that_another_archiver_moves_meanwhile_is_no_damage() -> None:
    table = AgingTable()
    written = table.write_many(9)

    def second() -> None:
        assert table.coordinator().archive().instants == 6

    faulty = FaultyStorage(table.storage, [Rule("get", f"*{written[0]}*.commit", fault=None, meanwhile=second)])
    assert table.coordinator(faulty).archive().held_by == "another archiver"
    assert active(table) == written[-3:] and table.shown() == {"a": written[-1]}


def test_a_writer_with_a_slow_clock_that_has_just_begun_hides_nothing_that_was_archived() -> None:
    table = AgingTable()
    table.write("still")
    table.write_many(9)
    table.coordinator().archive()
    shown = table.shown()
    begun = Instant("20200101000000000", Action.COMMIT.value, State.REQUESTED)
    table.storage.put(layout.timeline(begun.file_name), b"")
    assert table.shown() == shown and "still" in shown
    assert {file.file_id: file.instant for file in table.coordinator().snapshot().files} == shown


def test_a_history_whose_version_was_put_twice_by_one_request_stays_readable() -> None:
    table = AgingTable()
    written = table.write_many(9)
    table.coordinator(RepeatingStorage(table.storage)).archive()
    written += table.write_many(9)
    table.coordinator().archive()
    assert active(table) == written[-3:]
    assert [entry.instant for entry in table.coordinator().history(100)] == written[::-1]


def test_a_running_transaction_keeps_what_it_has_to_judge_and_all_that_is_later() -> None:
    table = AgingTable()
    written = table.write_many(4)
    slow = table.coordinator().begin("INSERT")
    for _ in range(6):
        table.runtime.advance(1)
        table.write("b")
    held = table.coordinator().archive()
    assert held.instants == 3 and slow.instant in held.held_by
    assert len(active(table)) == 7 and active(table)[0] == written[-1] < slow.instant < active(table)[1]
    slow.commit([put_file(slow, table.storage, PARTITION, "mine")])
    table.runtime.advance(5)
    table.coordinator().archive()
    assert len(active(table)) == 3


def test_a_commit_that_completed_after_a_later_transaction_began_stays_while_that_runs() -> None:
    table = AgingTable()
    early = table.coordinator().begin("INSERT")
    table.runtime.advance(1.5)
    late = table.coordinator().begin("INSERT")
    table.runtime.advance(1.5)
    early.commit([put_file(early, table.storage, PARTITION, "early")])
    for _ in range(6):
        table.runtime.advance(1)
        table.write("b")
    assert table.coordinator().archive().instants == 0 and early.instant in active(table)
    late.abort()


def test_a_rolled_back_neighbour_does_not_make_a_transaction_fail_once_the_archive_covers_its_time() -> None:
    """Its names covered the time of an instant that was pending when the transaction began."""
    table = AgingTable()
    first = table.write("a")
    neighbour = table.coordinator().begin("INSERT")
    table.runtime.advance(1)
    last = table.write("b")
    mine = table.coordinator().begin("INSERT")
    neighbour.abort()
    table.write("c")
    Peer(table.storage).archive(first, last)
    assert first < neighbour.instant < last < mine.instant
    mine.commit([put_file(mine, table.storage, PARTITION, "mine")])
    assert table.shown()["mine"] == mine.instant


def test_a_savepoint_and_all_that_is_later_stays_on_the_timeline() -> None:
    table = AgingTable()
    written = table.write_many(9)
    table.coordinator().savepoint("s", as_of=written[2])
    done = table.coordinator().archive()
    assert active(table) == written[2:] and written[2] in done.held_by


def test_a_replacement_stays_until_its_files_are_cleaned() -> None:
    table = AgingTable()
    table.write("a", "b")
    with table.coordinator().begin("INSERT_OVERWRITE") as tx:
        replacing = tx.commit([put_file(tx, table.storage, PARTITION, "new")], replaced={PARTITION: ["a", "b"]}).instant
    table.runtime.advance(5)
    table.write_many(8, "c")
    held = table.coordinator().archive()
    assert active(table)[0] == replacing and replacing in held.held_by
    shown = table.shown()
    table.coordinator().clean()
    assert table.coordinator().archive().instants > 0 and replacing not in active(table) and table.shown() == shown


def test_a_replacement_that_is_not_cleaned_yet_costs_few_listings_however_many_partitions_and_successors_it_has() -> None:
    table = AgingTable(replace(KEEPING_TWO, listing=ListingSettings(parallel_requests=2)))
    partitions = [f"month={number}" for number in range(10, 20)]
    for partition in partitions:
        table.write("a", partition=partition)
    instants = []
    for old, new in ("ab", "bc", "cd"):
        with table.coordinator().begin("INSERT_OVERWRITE") as tx:
            files = [put_file(tx, table.storage, partition, new) for partition in partitions]
            instants.append(tx.commit(files, replaced={partition: [old] for partition in partitions}).instant)
        table.runtime.advance(5)
    table.write_many(5, "e")

    table.coordinator().archive()
    assert active(table)[0] == instants[0]

    def listed() -> list[str]:
        storage = CountingStorage(table.storage)
        table.coordinator(storage).archive()
        assert not [name for name in later if ("get", f"{layout.TIMELINE}/{name}") in storage.calls]
        return [key for op, key in storage.calls if op == "list" and key.startswith("month=")]

    later = [i.file_name for i in table.timeline().commits if i.requested in instants[1:]]
    assert listed() == partitions[:2], "until a file of the first replacement is found; nothing is asked of the others"
    for partition in partitions:
        table.storage.delete([f"{partition}/a_0-1-0_{instant}.parquet" for instant in table.slices("a", partition)])
    later = later[1:]
    assert listed() == partitions + partitions[:2] and active(table)[0] == instants[1]


def test_a_replacement_that_is_among_the_commits_that_stay_is_not_looked_at() -> None:
    table = AgingTable()
    table.write_many(6)
    with table.coordinator().begin("INSERT_OVERWRITE") as tx:
        tx.commit([put_file(tx, table.storage, PARTITION, "new")], replaced={PARTITION: ["a"]})
    table.runtime.advance(5)
    storage = CountingStorage(table.storage)
    assert table.coordinator(storage).archive().instants == 4
    assert PARTITION not in [key for op, key in storage.calls if op == "list"]


def test_an_instant_that_left_something_holds_the_archive_until_that_is_removed() -> None:
    """Older than all of the timeline, its file would be taken for that of an archived commit."""
    table = AgingTable()
    written = table.write_many(2)
    lost = table.coordinator().begin("INSERT")
    put_file(lost, table.storage, PARTITION, "dirty")
    names = [f"{layout.TIMELINE}/{name}" for name in table.names() if name.startswith(lost.instant)]
    table.runtime.stop_repeating()
    table.storage.delete([*names, layout.heartbeat(lost.instant)])
    table.write_many(8)
    held = table.coordinator().archive()
    assert active(table)[0] == written[-1] < lost.instant and lost.instant in held.held_by
    assert "dirty" not in table.shown()
    table.coordinator().reap()
    table.coordinator().archive()
    assert len(active(table)) == 3 and "dirty" not in table.shown()


def test_an_instant_is_archived_no_sooner_than_its_age_allows() -> None:
    table = AgingTable(replace(KEEPING_TWO, archive=ArchiveSettings(min_commits=3, max_commits=4, min_age_s=600)))
    table.write_many(9)
    assert table.coordinator().archive().instants == 0
    table.runtime.advance(600)
    assert table.coordinator().archive().instants == 6


def test_cleans_and_rollbacks_go_along_and_the_newest_clean_stays() -> None:
    table = AgingTable()
    for _ in range(4):
        table.write_many(2)
        table.coordinator().begin("INSERT").abort()
        table.coordinator().clean()
    table.write_many(4)
    cleans = [i.requested for i in table.timeline().cleanings]
    table.coordinator().archive()
    timeline = table.timeline()
    assert [i.requested for i in timeline.cleanings] == cleans[-1:]
    assert all(i.requested >= timeline.first_active for i in timeline.rollbacks)


def test_a_plan_to_cluster_holds_the_archive() -> None:
    table = AgingTable()
    table.write_many(2)
    plan = Peer(table.storage).plan_clustering(FileGroupId(PARTITION, "a"))
    table.write_many(8, "b")
    assert plan in table.coordinator().archive().held_by and active(table)[0] < plan < active(table)[1]


def test_a_dry_run_says_what_would_move_and_touches_nothing() -> None:
    table = AgingTable()
    table.write_many(9)
    before = table.names("")
    assert table.coordinator().archive(dry_run=True).instants == 6 and table.names("") == before


def test_files_of_the_history_are_merged_by_levels_and_old_versions_go() -> None:
    table = AgingTable()
    instants = [*table.write_many(4)]
    for _ in range(30):
        instants += table.write_many(2)
        table.coordinator().archive()
    history = read_history(table.storage)
    assert max(f.level for f in history.files) > 1 and all(len(history.level(n)) < 3 for n in range(3))
    names = table.names(layout.HISTORY)
    assert len(names) <= len(history.files) + 3 + 1 + 6
    fresh = table.coordinator()
    assert [e.instant for e in fresh.history(1000)] == instants[::-1]
    assert all(fresh.outcome(instant) is Outcome.COMMITTED for instant in instants)
    assert [f.first for f in sorted(history.files)] == sorted({f.first for f in history.files})


def test_a_long_listing_from_which_instants_are_archived_meanwhile_is_taken_again() -> None:
    """Otherwise an instant that is gone looks rolled back, because an older one is still shown."""
    table = AgingTable(replace(KEEPING_TWO, listing=replace(KEEPING_TWO.listing, at_once=5)))
    written = table.write_many(9)
    shown = {f.file_id: f.instant for f in table.coordinator().snapshot().files}

    class Paged:
        """The first listing of the timeline answers with its first page, and the rest after the archiver has passed."""

        def __init__(self) -> None:
            self.done = False

        def __getattr__(self, name: str) -> object:
            return getattr(table.storage, name)

        def list(self, prefix: str, *, start_after: str = ""):  # type: ignore[no-untyped-def]
            if prefix != layout.TIMELINE or self.done:
                return table.storage.list(prefix, start_after=start_after)
            self.done = True
            page = list(table.storage.list(prefix))[:4]
            table.coordinator().archive()
            return iter([*page, *table.storage.list(prefix, start_after=page[-1].key)])

    seen = table.coordinator(Paged()).table.timeline()  # type: ignore[arg-type]
    assert all(seen.is_visible(instant) for instant in written) and shown == {"a": written[-1]}


class Zombie:
    """A writer that stands still in the middle of an upload, is rolled back, uploads its file, and dies."""

    def __init__(self, table: AgingTable) -> None:
        self.table = table
        self.tx = table.coordinator().begin("INSERT")
        self.stat = put_file(self.tx, table.storage, PARTITION, "rejected")
        self.content = table.storage.get(self.stat.path).data

    def is_rolled_back(self) -> None:
        """Its heartbeat stops, and somebody reaps."""
        self.table.runtime.stop_repeating()
        self.table.runtime.advance(60)
        self.table.coordinator().reap()
        assert self.table.storage.get(self.stat.path) is None and not self.table.names(layout.TEMP)

    def uploads(self) -> None:
        with self.table.storage.open_output(self.stat.path) as out:
            out.write(self.content)


def test_a_file_that_a_rolled_back_writer_uploads_when_nothing_announces_it_is_gone_before_its_instant_is_passed() -> None:
    """Seed 155476 of the simulator: from then on readers took it for the file of an archived commit."""
    table = AgingTable()
    table.write_many(2)
    zombie = Zombie(table)
    zombie.is_rolled_back()
    zombie.uploads()
    written = table.write_many(8)
    assert "rejected" not in table.shown()
    table.coordinator().archive()
    assert active(table) == written[-3:] and table.shown() == {"a": written[-1]}
    assert table.storage.get(zombie.stat.path) is None


def test_an_instant_that_was_rolled_back_lately_is_not_passed_because_its_writer_may_not_know() -> None:
    table = AgingTable(replace(KEEPING_TWO, archive=replace(KEEPING_TWO.archive, min_age_s=600)))
    written = table.write_many(3)
    table.runtime.advance(3600)
    zombie = Zombie(table)
    later = table.write_many(6, "b")
    table.runtime.advance(3600)
    zombie.is_rolled_back()
    held = table.coordinator().archive()
    assert zombie.tx.instant in held.held_by and active(table) == [written[-1], *later]
    zombie.uploads()
    table.runtime.advance(600)
    table.coordinator().archive()
    assert active(table) == later[-3:] and table.shown() == {"a": written[-1], "b": later[-1]}


def test_what_is_rolled_back_after_the_archive_has_reached_it_is_not_passed_by_that() -> None:
    """The commit before a running transaction stays, so that the transaction never becomes the oldest of the timeline."""
    table = AgingTable()
    table.write_many(2)
    zombie = Zombie(table)
    written = table.write_many(8, "b")
    table.coordinator().archive()
    zombie.is_rolled_back()
    zombie.uploads()
    assert "rejected" not in table.shown()
    table.coordinator().archive()
    assert active(table) == written[-3:] and "rejected" not in table.shown()


@pytest.mark.parametrize("archived", [False, True], ids=["the commit is on the timeline", "the commit is archived"])
def test_a_file_of_a_commit_is_never_taken_for_one_that_was_rolled_back(archived: bool) -> None:
    """Another engine may roll back an instant that shares its time with a commit of another action."""
    table = AgingTable()
    committed = table.write("still")
    (name,) = [item.key.rpartition("/")[2] for item in table.storage.list(PARTITION) if committed in item.key]
    if archived:
        table.write_many(9)
        table.coordinator().archive()
    plan = RollbackPlan(committed, Action.DELTA_COMMIT.value, {PARTITION: (name,)})
    instant = later_than(table.runtime.now_ms(), table.timeline().newest_time)
    for state in (State.REQUESTED, State.INFLIGHT, State.COMPLETED):
        done = later_than(table.runtime.now_ms(), instant) if state is State.COMPLETED else None
        name = Instant(instant, Action.ROLLBACK.value, state, done).file_name
        table.storage.put(layout.timeline(name), plan.to_bytes())
    table.write_many(9)
    assert table.coordinator().archive().last > instant
    assert committed not in active(table) and table.shown()["still"] == committed


def test_the_history_holds_no_values_of_rows_so_an_erasure_is_final() -> None:
    table = AgingTable()
    engine = ArrowEngine(table.coordinator())
    engine.insert(rows(("SECRET", 1, "1"), ("b", 2, "1")))
    engine.insert(rows(("c", 3, "1")))
    engine.delete_where(pc.field("id") == "SECRET")
    first = [i.requested for i in table.timeline().commits]
    for number in range(9):
        table.runtime.advance(5)
        engine.insert(rows((f"k{number}", number, "1")))
    before = engine.coordinator.history()
    assert engine.coordinator.archive().instants >= len(first)
    assert engine.coordinator.history() == before
    metadata = [each.data for _, writes in archived_writes(table.storage) for each in writes]
    assert len(metadata) >= len(first) and not any(b"SECRET" in data for data in metadata)
    blind = [read_summary(table.storage, instant) for instant in archived_instants(table, first)]
    assert [summary.is_blind_append for summary in blind] == [True, True, False]


def archived_instants(table: AgingTable, requested: list[str]) -> list[Instant]:
    found = {w.requested: w for _, writes in archived_writes(table.storage) for w in writes}
    return [Instant(each, found[each].action, State.COMPLETED, found[each].completion) for each in requested]
