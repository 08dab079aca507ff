"""lakelock cleans and takes savepoints on a table that Java writes, too: each goes on from what the other left."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.api import Coordinator, Storage, StorageLocation, layout, read_timeline
from tests.behaviour.test_every_fault import Dying, Killed
from tests.faulty_storage import CountingStorage
from tests.interop.shared import DEAD_WRITERS, TIDIED, Shared

from lakelock.table.service_metadata import CleanMetadata

Share = Callable[..., Shared]

SOON = {"clean.policy": "KEEP_LATEST_COMMITS", "clean.readers_s": 0, "clean.keep_commits": 2}
EAGERLY = {"hoodie.clean.commits.retained": "1", "hoodie.keep.min.commits": "20", "hoodie.keep.max.commits": "30"}
NEVER = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}


def rewrite(table: Shared, times: int, *, start: int = 1) -> list[str]:
    """Alternating commits of both sides that rewrite one row; their instants."""
    engine = table.engine()
    for number in range(start, start + times):
        if number % 2:
            engine.upsert(table.rows(("a", number, "eu")))
        else:
            table.java_write("upsert", ("a", number, "eu"), **NEVER)
        table.put(("a", number, "eu"))
    return [name[:17] for name in table.instants(".commit")]


def data_files(table: Shared) -> list[str]:
    return sorted(
        str(file.relative_to(table.path)) for file in Path(table.path).rglob("*.parquet") if ".hoodie" not in str(file)
    )


def over(table: Shared, storage: Storage, **options: object) -> Coordinator:
    """A writer of lakelock with the table's storage seen through another."""
    settings = table.coordinator(**options).table.settings
    table.opened.append(Coordinator.open(StorageLocation(table.storage.uri), settings, storage=storage))
    return table.opened[-1]


@pytest.mark.in_ci
@pytest.mark.sampled(promise=TIDIED)
def test_all_readers_agree_after_a_clean_of_lakelock_and_javas_cleaner_goes_on_from_it(share: Share) -> None:
    table = share()
    table.engine().insert(table.rows(("a", 0, "eu"), ("b", 0, "us")))
    table.put(("a", 0, "eu"), ("b", 0, "us"))
    rewrite(table, 5)
    coordinator = table.coordinator(**SOON)
    before = data_files(table)
    cleaned = coordinator.clean()
    assert cleaned.files == 3 and len(before) - len(data_files(table)) == 3
    table.agree()
    kept = table.java.read(query=f"select id, v, region from {as_of(table, cleaned.retained)}")
    assert {row["v"] for row in kept.to_pylist() if row["id"] == "a"} == {4}
    shown = table.java.sql(f"call show_cleans(table => '{named(table)}', limit => 10)")
    assert [row["clean_time"] for row in shown] == [cleaned.instant] and shown[0]["total_files_deleted"] == 3
    for number in range(6, 9):
        table.java_write("upsert", ("a", number, "eu"), **EAGERLY)
        table.put(("a", number, "eu"))
        table.agree()
    by_java = [i for i in read_timeline(table.storage).cleanings if i.requested != cleaned.instant]
    assert by_java and all(i.is_completed for i in by_java)
    assert len([file for file in data_files(table) if "region=eu" in file]) == 2
    assert coordinator.clean().files == 0
    table.engine().upsert(table.rows(("b", 1, "us")))
    table.put(("b", 1, "us"))
    table.agree()


@pytest.mark.in_ci
@pytest.mark.sampled(promise=TIDIED)
def test_a_clean_after_javas_commits_and_cleans_lists_only_where_files_were_rewritten(share: Share) -> None:
    table = share()
    table.engine().insert(table.rows(("a", 0, "eu"), ("b", 0, "us"), ("c", 0, "ap")))
    table.put(("a", 0, "eu"), ("b", 0, "us"), ("c", 0, "ap"))
    rewrite(table, 5)
    assert table.coordinator(**SOON).clean().files == 3
    table.java_write("upsert", ("b", 1, "us"), **NEVER)
    table.java_write("insert", ("d", 1, "sa"), **NEVER)
    table.put(("b", 1, "us"), ("d", 1, "sa"))
    for number in range(6, 9):
        table.java_write("upsert", ("a", number, "eu"), **(EAGERLY if number == 6 else NEVER))
        table.put(("a", number, "eu"))
    assert len(read_timeline(table.storage).cleanings) == 2
    counting = CountingStorage(table.storage)
    over(table, counting, **SOON).clean()
    listed = {key for op, key in counting.calls if op == "list" and not key.startswith(layout.HOODIE)}
    assert "" not in listed and "region=us" in listed <= {"region=us", "region=eu"}
    assert len([file for file in data_files(table) if "region=us" in file]) == 1
    table.storage.delete([layout.CLEANED_UNTIL])
    assert table.coordinator(**SOON).clean().files == 0
    table.agree()


def named(table: Shared) -> str:
    """The name under which Java's procedures find the table."""
    name = f"named_{table.name}"
    table.java.sql(f"create table if not exists {name} using hudi location '{table.path}'")
    return name


def as_of(table: Shared, instant: str) -> str:
    """A view of the table as of an instant, for a query of Java's."""
    view = f"v{instant}"
    table.java.sql(
        f"create or replace temporary view {view} using hudi options (path '{table.path}', 'as.of.instant' '{instant}')"
    )
    return view


@pytest.mark.in_ci
@pytest.mark.sampled(promise=DEAD_WRITERS)
@pytest.mark.parametrize("inflight", [False, True], ids=["requested", "inflight"])
def test_java_carries_out_a_plan_of_lakelock_whose_cleaner_died(share: Share, inflight: bool) -> None:
    table = share()
    table.engine().insert(table.rows(("a", 0, "eu")))
    table.put(("a", 0, "eu"))
    rewrite(table, 4)
    before = data_files(table)
    for number in range(1, 60):
        with contextlib.suppress(Killed):
            over(table, Dying(table.storage, number, sent=True), **SOON).clean()
        if table.instants(".clean.requested"):
            break
    (pending,) = read_timeline(table.storage).cleanings
    if inflight:
        Path(table.path, ".hoodie", "timeline", f"{pending.requested}.clean.inflight").touch()
    assert not pending.is_completed and data_files(table) == before
    table.agree()
    table.java_write("upsert", ("a", 9, "eu"), **EAGERLY)
    table.put(("a", 9, "eu"))
    table.agree()
    (done,) = [i for i in read_timeline(table.storage).cleanings if i.requested == pending.requested]
    assert done.is_completed and len(data_files(table)) < len(before)
    assert table.coordinator(**SOON).clean().finished == ()


@pytest.mark.in_ci
@pytest.mark.sampled(promise=TIDIED)
def test_savepoints_of_either_side_are_respected_by_both_cleaners(share: Share) -> None:
    table = share()
    table.engine().insert(table.rows(("a", 0, "eu")))
    table.put(("a", 0, "eu"))
    instants = rewrite(table, 3)
    coordinator = table.coordinator(**SOON)
    coordinator.savepoint("of lakelock", as_of=instants[0])
    table.java.sql(f"call create_savepoint(table => '{named(table)}', commit_time => '{instants[1]}', comments => 'of Java')")
    shown = {row["savepoint_time"] for row in table.java.sql(f"call show_savepoints(table => '{named(table)}')")}
    assert shown == set(instants[:2]) == {s.instant for s in coordinator.savepoints()}
    assert {s.name for s in coordinator.savepoints()} == {"of lakelock", "of Java"}
    rewrite(table, 4, start=4)
    coordinator.clean()
    for number in range(8, 11):
        table.java_write("upsert", ("a", number, "eu"), **EAGERLY)
        table.put(("a", number, "eu"))
    table.agree()
    # Java reads as of nothing that is older than what its newest clean retained, a savepoint or not; the files are there.
    for number, instant in enumerate(instants[:2]):
        (file,) = coordinator.snapshot(instant).files
        assert pq.read_table(Path(table.path, file.key), columns=["v"], partitioning=None).column("v").to_pylist() == [number]
    cleans = [i for i in read_timeline(table.storage).cleanings if i.is_completed]
    told = [CleanMetadata.from_bytes(Path(table.path, ".hoodie/timeline", i.file_name).read_bytes()) for i in cleans]
    assert all(set(each.extra["savepointed_timestamps"].split(",")) == set(instants[:2]) for each in told)
    table.java.sql(f"call delete_savepoint(table => '{named(table)}', instant_time => '{instants[0]}')")
    assert [s.name for s in coordinator.savepoints()] == ["of Java"]
    coordinator.delete_savepoint("of Java")
    assert table.java.sql(f"call show_savepoints(table => '{named(table)}')") == []
    coordinator.clean()
    with pytest.raises(ValueError, match="were cleaned"):
        coordinator.snapshot(instants[0])
    table.agree()


ARCHIVING = {**SOON, "archive.min_commits": 3, "archive.max_commits": 3, "archive.min_age_s": 0, "archive.merge_files": 2}
JAVA_ARCHIVING = {
    **EAGERLY,
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.timeline.compaction.batch.size": "2",
    # With so few, Java archives delta commits of its metadata table that are newer than the base files there.
    "hoodie.metadata.enable": "false",
}


@pytest.mark.in_ci
@pytest.mark.sampled(promise=TIDIED)
def test_java_reads_the_history_that_lakelock_made_and_both_archive_on(share: Share) -> None:
    table = share()
    table.engine().insert(table.rows(("a", 0, "eu"), ("b", 0, "us")))
    table.put(("a", 0, "eu"), ("b", 0, "us"))
    everything = rewrite(table, 7)
    coordinator = table.coordinator(**ARCHIVING)
    cleaned = coordinator.clean()
    done = coordinator.archive()
    assert cleaned.instant and done.instants and len(table.instants(".commit")) == 3
    table.agree()
    archived = table.java.sql(
        f"call show_archived_commits(table => '{named(table)}', limit => 100, start_ts => '2', end_ts => '3')"
    )
    assert {row["commit_time"] for row in archived} >= set(everything[:5])
    changed = incremental(table, everything[0])
    assert {(row["id"], row["v"]) for row in changed} == {("a", 7)}
    for number in range(8, 14):
        table.java_write("upsert", ("a", number, "eu"), **{**JAVA_ARCHIVING, "hoodie.archive.automatic": "true"})
        table.put(("a", number, "eu"))
        table.engine().upsert(table.rows(("b", number, "us")))
        table.put(("b", number, "us"))
        coordinator.clean()
        coordinator.archive()
        table.agree()
    entries = coordinator.history(1000)
    assert len(entries) == 8 + 12 and {e.instant for e in entries} >= set(everything)
    assert all(coordinator.outcome(e.instant).value == "committed" for e in entries)
    assert len(incremental(table, everything[0])) == 2
    archived = table.java.sql(
        f"call show_archived_commits(table => '{named(table)}', limit => 100, start_ts => '2', end_ts => '3')"
    )
    active = {name[:17] for name in table.instants(".commit")}
    assert {row["commit_time"] for row in archived} >= {e.instant for e in entries} - active


def incremental(table: Shared, since: str) -> list[dict[str, object]]:
    """The rows that Java's incremental query shows after the completion of an instant."""
    view = f"i{since}"
    begin = next(e.completion for e in table.coordinator().history(1000) if e.instant == since)
    table.java.sql(
        f"create or replace temporary view {view} using hudi options (path '{table.path}', "
        f"'hoodie.datasource.query.type' 'incremental', 'hoodie.datasource.read.begin.instanttime' '{begin}')"
    )
    return [dict(row) for row in table.java.read(query=f"select id, v from {view}").to_pylist()]
