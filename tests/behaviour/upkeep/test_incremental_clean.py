"""Where a clean looks: in the partitions in which something was superseded since, and everywhere when nobody can tell."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.api import Action, FileGroupId, Instant, State, layout
from tests.behaviour.foreign import Peer
from tests.behaviour.tables import put_file
from tests.behaviour.upkeep.upkeep_tables import KEEPING_TWO, PARTITION, AgingTable
from tests.faulty_storage import CountingStorage, FaultyStorage, Rule

from lakelock.occ.clean import MOST_COMMITS, WHOLE_TABLE_EACH_MS, Cleaned
from lakelock.settings import ListingSettings, Settings
from lakelock.table.service_metadata import CleanedUntil, CleanMetadata, CleanPlan, SavepointMetadata

EVERYTHING = ""
OTHER = "month=2"


def clean(table: AgingTable, settings: Settings | None = None) -> tuple[list[str], Cleaned]:
    """A clean by one more process: which folders of data it listed, and what it says. The past stays as it has to."""
    storage = CountingStorage(table.storage)
    done = table.coordinator(storage, settings).clean()
    folders = [key for op, key in storage.calls if op == "list" and not key.startswith(layout.HOODIE)]
    return folders, done


def keeping(**changes: object) -> Settings:
    return replace(KEEPING_TWO, clean=replace(KEEPING_TWO.clean, **changes))  # type: ignore[arg-type]


def pass_time(table: AgingTable, commits: int = 3) -> None:
    """Commits that supersede nothing: what came before them is not kept any more."""
    for _ in range(commits):
        table.write(f"new-{table.runtime.now_ms()}", partition="month=99")


def cleaned_table(*, partitions: int = 3) -> AgingTable:
    """A table of which everything was cleaned; the next clean looks behind the newest commits only."""
    table = AgingTable()
    for _ in range(2):
        for number in range(1, partitions + 1):
            table.write("a", partition=f"month={number}")
    pass_time(table)
    folders, done = clean(table)
    assert folders == [EVERYTHING] and done.files == partitions
    return table


def is_clean(table: AgingTable) -> bool:
    """Whether a clean that lists the whole table finds nothing to delete."""
    table.storage.delete([layout.CLEANED_UNTIL])
    folders, done = clean(table)
    return folders == [EVERYTHING] and done.files == 0


def test_only_the_partition_that_changed_is_listed() -> None:
    table = cleaned_table(partitions=30)
    changed = [table.write("a", partition="month=7") for _ in range(4)]
    folders, done = clean(table)
    assert folders == ["month=7"] and done.files == 2
    assert table.slices("a", "month=7") == changed[-3:] and is_clean(table)


def test_nothing_is_listed_where_commits_only_added_files() -> None:
    table = cleaned_table()
    for _ in range(2):
        pass_time(table)
        folders, done = clean(table)
        assert (folders, done.files) == ([], 0)
    assert is_clean(table)


def test_nothing_is_listed_where_nothing_was_committed() -> None:
    table = cleaned_table()
    assert clean(table)[0] == []


def test_the_partition_of_a_replaced_group_is_listed() -> None:
    table = cleaned_table()
    with table.coordinator().begin("INSERT_OVERWRITE") as tx:
        tx.commit([put_file(tx, table.storage, PARTITION, "new")], replaced={OTHER: ["a"]})
    table.runtime.advance(5)
    pass_time(table)
    assert clean(table)[0] == [OTHER] and table.slices("a", OTHER) == [] and is_clean(table)


def test_a_partition_inside_another_one_is_listed_for_itself() -> None:
    table = cleaned_table()
    for partition in (PARTITION, f"{PARTITION}/day=1"):
        for _ in range(3):
            table.write("a", partition=partition)
    pass_time(table)
    folders, done = clean(table)
    assert folders == [PARTITION, f"{PARTITION}/day=1"] and done.files == 5 and is_clean(table)


def test_what_a_running_transaction_held_is_found_when_it_has_ended() -> None:
    table = cleaned_table()
    slow = table.coordinator().begin("UPSERT")
    for _ in range(4):
        table.runtime.advance(1)
        table.write("a")
    _, held = clean(table)
    assert slow.instant in held.held_by and held.files == 0
    slow.abort()
    folders, done = clean(table)
    assert folders == [PARTITION] and done.files == 2 and is_clean(table)


def test_a_commit_that_completes_under_an_instant_that_the_retention_has_passed_is_found() -> None:
    table = cleaned_table()
    late = table.coordinator().begin("UPSERT")
    late.claim([FileGroupId(OTHER, "a")])
    stat = put_file(late, table.storage, OTHER, "a")
    pass_time(table, 4)
    _, held = clean(table)
    assert held.retained > late.instant and late.instant in held.held_by
    late.commit([stat])
    pass_time(table)
    assert clean(table)[0] == [OTHER] and table.slices("a", OTHER) == [late.instant] and is_clean(table)


def test_what_readers_held_is_found_when_their_time_is_over() -> None:
    settings = keeping(readers_s=600)
    table = cleaned_table()
    table.write_many(5)
    assert clean(table, settings)[1].files == 0
    table.runtime.advance(600)
    folders, done = clean(table, settings)
    assert folders == [PARTITION] and done.files == 3 and is_clean(table)


def test_the_whole_table_is_listed_after_a_savepoint_was_deleted() -> None:
    table = cleaned_table()
    written = table.write_many(3)
    table.coordinator().savepoint("kept", as_of=written[0])
    table.runtime.advance(5)
    pass_time(table)
    clean(table)
    assert table.slices() == [written[0], written[2]]
    table.write("a", partition=OTHER)
    pass_time(table)
    assert clean(table)[0] == [OTHER], "the savepoint does not cost a listing of the whole table"
    table.coordinator().delete_savepoint("kept")
    assert clean(table)[0] == [EVERYTHING] and table.slices() == [written[2]] and is_clean(table)


@pytest.mark.parametrize("executed", [True, False])
def test_the_whole_table_is_listed_after_a_plan_that_kept_files_is_gone(executed: bool) -> None:
    table = cleaned_table()
    peer, group = Peer(table.storage), FileGroupId(OTHER, "a")
    table.write("a", partition=OTHER)
    plan = peer.plan_clustering(group)
    pass_time(table)
    clean(table)
    assert len(table.slices("a", OTHER)) == 2
    if executed:
        peer.execute_clustering(plan, group, "joined")
    else:
        table.storage.delete([layout.timeline(f"{plan}.clustering.requested")])
    pass_time(table)
    assert clean(table)[0] == [EVERYTHING]
    assert len(table.slices("a", OTHER)) == (0 if executed else 1) and is_clean(table)


def test_a_longer_retention_lists_nothing_and_a_shorter_one_only_what_changed() -> None:
    table = cleaned_table()
    table.write_many(6)
    assert clean(table, keeping(keep_commits=50))[0] == []
    assert clean(table)[0] == [PARTITION]
    table.write("a", partition=OTHER)
    hours = keeping(policy="KEEP_LATEST_BY_HOURS", keep_hours=0)
    assert clean(table, hours)[0] == [PARTITION] and len(table.slices()) == 1


def test_a_number_of_versions_lists_the_whole_table_and_leaves_the_note_true() -> None:
    table = cleaned_table()
    versions = keeping(policy="KEEP_LATEST_FILE_VERSIONS", keep_versions=3)
    for _ in range(2):
        table.write_many(2)
        assert clean(table, versions)[0] == [EVERYTHING]
    pass_time(table)
    assert clean(table)[0] == [PARTITION] and len(table.slices()) == 1 and is_clean(table)


def test_commits_that_were_archived_meanwhile_are_read_in_the_history() -> None:
    table = cleaned_table()
    first = table.write("a", partition=OTHER)
    pass_time(table, 1)
    assert clean(table) == ([], Cleaned(retained=first)), "the retention ends right before this commit"
    written = table.write_many(5)
    pass_time(table, 5)
    archived = table.coordinator().archive()
    assert archived.first < first < written[-1] < archived.last
    folders, done = clean(table)
    assert folders == [PARTITION, OTHER] and done.files == 6
    assert table.slices() == written[-1:] and table.slices("a", OTHER) == [first] and is_clean(table)


def test_a_clean_of_another_engine_in_between_changes_nothing() -> None:
    """Its metadata has no word of ours; it deletes and lists as its own policy says."""
    table = cleaned_table()
    before = [table.write("a", partition=OTHER) for _ in range(2)]
    peer = Peer(table.storage)
    gone = [f"a_0-1-0_{instant}.parquet" for instant in table.slices("a", OTHER) if instant not in before]
    plan = CleanPlan("KEEP_LATEST_COMMITS", before[-1], "commit", before[-1], {OTHER: tuple(gone)})
    theirs = peer.begin(Action.CLEAN, plan=plan.to_bytes())
    table.storage.delete([layout.in_partition(OTHER, name) for name in gone])
    done = Instant(theirs, Action.CLEAN.value, State.COMPLETED, peer.later())
    table.storage.put_if_absent(layout.timeline(done.file_name), CleanMetadata.of(theirs, 1, plan).to_bytes())
    assert len(gone) == 1
    pass_time(table)
    assert clean(table)[0] == [OTHER]
    assert table.slices("a", OTHER) == before[-1:] and is_clean(table)


def test_what_a_spent_budget_left_is_deleted_and_nothing_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakelock.occ.clean.DELETED_AT_ONCE", 1)
    table = cleaned_table()
    table.write_many(30)
    table.write("a", partition=OTHER)
    pass_time(table)
    before = table.storage.get(layout.CLEANED_UNTIL)
    spent = table.coordinator().clean(progress=lambda what, done, total: table.runtime.advance(100))
    assert spent.left > 0 and table.storage.get(layout.CLEANED_UNTIL) == before
    folders, done = clean(table)
    assert done.finished == (spent.instant,)
    assert folders == 2 * [PARTITION, OTHER], "once for what is left, and once for what is new"
    assert len(table.slices()) == len(table.slices("a", OTHER)) == 1 and clean(table)[0] == [] and is_clean(table)


def test_what_a_savepoint_kept_from_a_plan_that_had_not_seen_it_is_found_later() -> None:
    """Java takes a savepoint without a look at plans."""
    table = cleaned_table()
    second = table.write_many(4)[1]
    pass_time(table)
    saved = Instant(second, Action.SAVEPOINT.value, State.COMPLETED, Peer(table.storage).later())

    def save() -> None:
        files = {PARTITION: (f"a_0-1-0_{second}.parquet",)}
        table.storage.put(layout.timeline(saved.file_name), SavepointMetadata("java", 0, "s", files).to_bytes())

    # The plan is on the timeline, and looked at once more, before this object is put.
    faulty = FaultyStorage(table.storage, [Rule("put_if_absent", "*.clean.inflight", fault=None, meanwhile=save)])
    table.coordinator(faulty).clean()
    assert second in table.slices()
    table.storage.delete([layout.timeline(saved.file_name)])
    clean(table)
    assert second not in table.slices() and is_clean(table)


@pytest.mark.parametrize("note", [b"", b"{", b"[]", b'{"version":2}', b'{"version":1,"until":"9","holds":[3]}'])
def test_a_note_that_cannot_be_read_is_no_note(note: bytes) -> None:
    table = cleaned_table()
    table.storage.put(layout.CLEANED_UNTIL, note)
    assert clean(table)[0] == [EVERYTHING]
    assert clean(table)[0] == []


def test_the_whole_table_is_listed_once_a_day_by_the_storages_clock() -> None:
    table = cleaned_table()
    for _ in range(2):
        table.runtime.advance(WHOLE_TABLE_EACH_MS / 1000 - 60)
        assert clean(table)[0] == []
        table.runtime.advance(120)
        assert clean(table)[0] == [EVERYTHING]


def test_what_a_commit_did_not_say_is_found_within_a_day() -> None:
    """A writer that calls the next file of a group a new group's first, or has a clock that is behind everybody's."""
    table = cleaned_table()
    peer = Peer(table.storage)
    instant = peer.begin()
    stat = peer.write(instant, OTHER, "a")
    peer.complete(instant, [replace(stat, prev_commit="null")])
    pass_time(table)
    assert clean(table)[0] == []
    assert len(table.slices("a", OTHER)) == 2
    table.runtime.advance(WHOLE_TABLE_EACH_MS / 1000)
    clean(table)
    assert table.slices("a", OTHER) == [instant] and is_clean(table)


def test_the_whole_table_is_listed_where_that_takes_fewer_requests() -> None:
    table = cleaned_table(partitions=4)
    settings = replace(KEEPING_TWO, listing=ListingSettings(parallel_requests=2))
    for objects, expected in ((3_999, [EVERYTHING]), (4_000, [f"month={number}" for number in range(1, 5)])):
        stored = table.storage.get(layout.CLEANED_UNTIL)
        known = CleanedUntil.from_bytes(stored.data) if stored is not None else None
        assert known is not None and known.objects > 10
        table.storage.put(layout.CLEANED_UNTIL, replace(known, objects=objects).to_bytes())
        for number in range(1, 5):
            table.write("a", partition=f"month={number}")
        pass_time(table)
        assert clean(table, settings)[0] == expected
    assert is_clean(table)


def test_the_whole_table_is_listed_behind_a_thousand_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_COMMITS == 1_000
    monkeypatch.setattr("lakelock.occ.clean.MOST_COMMITS", 10)
    table = cleaned_table()
    pass_time(table, 10)
    assert clean(table)[0] == []
    pass_time(table, 11)
    assert clean(table)[0] == [EVERYTHING]


def test_a_commit_that_cannot_be_read_makes_the_clean_list_the_whole_table() -> None:
    table = cleaned_table()
    damaged = table.write("a", partition=OTHER)
    pass_time(table)
    (instant,) = [i for i in table.timeline().commits if i.requested == damaged]
    table.storage.put(layout.timeline(instant.file_name), b"torn")
    assert clean(table)[0] == [EVERYTHING] and table.slices("a", OTHER) == [damaged]


def test_a_dry_run_says_the_same_and_leaves_no_note() -> None:
    table = cleaned_table()
    table.write_many(4)
    before = table.storage.get(layout.CLEANED_UNTIL)
    would = table.coordinator().clean(dry_run=True)
    assert table.storage.get(layout.CLEANED_UNTIL) == before
    done = clean(table)[1]
    assert would.files == done.files > 0 and would.readable_from == done.readable_from
