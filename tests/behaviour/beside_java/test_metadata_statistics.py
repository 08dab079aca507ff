"""The statistics in Hudi's metadata table stay true, whatever is written; and `lakelock doctor` names those that are not.

Each of the last tests plants a mistake that costs Java's readers rows, and shows that this judge sees it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.api import Event, EventKind, LocalStorage, TableIO, Timeline, layout, read_timeline
from tests.behaviour.beside_java.test_metadata_table import (
    ALONE,
    SEVERAL,
    Killed,
    changed,
    engine,
    is_true,
    killed_at,
    nobody_is_killed,
    table,
    values,
)
from tests.behaviour.cli.command_line import run
from tests.behaviour.foreign import Peer
from tests.golden_tables import unpack

from lakelock.engine.batch import AttemptCache, Batch
from lakelock.events import Step, at_each_step
from lakelock.occ import metadata_table as writing
from lakelock.occ.committed import Committed
from lakelock.occ.footprint import WholeTable
from lakelock.occ.metadata_table import KeptMetadata
from lakelock.occ.transaction import Transaction
from lakelock.table import metadata_stats
from lakelock.table.archive import read_commit
from lakelock.table.commit_metadata import CommitMetadata, WriteStat
from lakelock.table.instants import Action, Instant, State, later_than
from lakelock.table.metadata_records import COLUMN_STATS, PARTITION_STATS, Record
from lakelock.table.metadata_stats import ColumnStats, partition_stats_records, stats_in, value_type
from lakelock.table.metadata_table import (
    MetadataTable,
    file_groups,
    group_logs,
    list_partition,
    own_time,
    read_metadata_timeline,
    schemas_of,
)
from lakelock.table.rewriting import ARROW
from lakelock.table.schema import Alteration, replacing_schema

__all__ = ["nobody_is_killed", "table"]


def grown(table: Path) -> None:
    """A column is added, and others grow."""
    types = {"i": pa.int64(), "f": pa.float64(), "small": pa.decimal128(20, 5)}
    engine(table).alter(Alteration(add={"note": pa.string()}, widen=types))


def with_values(rows: pa.Table, **values: Any) -> pa.Table:
    """The rows with these values in all of them."""
    for name, value in values.items():
        at = rows.schema.get_field_index(name)
        field = rows.schema.field(at)
        rows = rows.set_column(at, field, pa.array([value] * rows.num_rows, field.type))
    return rows


def test_statistics_stay_true_where_columns_are_added_and_grow(table: Path) -> None:
    grown(table)
    is_true(table)
    engine(table).upsert(with_values(changed(table, "k2", "n1"), note="noted", i=2**40, f=1e300))
    is_true(table)
    engine(table).insert(with_values(changed(table, "n2"), region="new", i=-(2**40), note=None))
    is_true(table)


def test_statistics_stay_true_where_values_have_no_bounds_in_parquet(table: Path) -> None:
    engine(table).upsert(with_values(changed(table, "k2", "n1"), name="x" * 6000, d=math.nan, bytes=b"\xff" * 6000))
    is_true(table)
    engine(table).upsert(with_values(changed(table, "k2"), d=2.0))
    is_true(table)


def test_a_file_that_is_damaged_between_decision_and_publication_stops_nobody(table: Path) -> None:
    rows = with_values(changed(table, "n0"), region="newer")
    killed_at(Step.DECIDED, lambda: engine(table).insert(rows))
    instant = max(path.name for path in (table / ".hoodie/timeline").glob("*.inflight")).partition(".")[0]
    (torn,) = table.glob(f"region=*/*_{instant}.parquet")
    torn.write_bytes(b"PAR1" + torn.read_bytes()[4:-8] + b"xxxxxxxx")
    told: list[Event] = []
    engine(table, told).insert(with_values(changed(table, "n1"), region="new"))
    assert any("no statistics" in str(event.facts.get("problem")) for event in told if event.kind is EventKind.ALERT)


def test_no_new_file_is_read_while_others_wait_at_the_lock(table: Path) -> None:
    rows, hidden = changed(table, "k2", "n1", v=10**9), dict[Path, Path]()

    def hide(at: Step) -> None:
        if at is Step.DECIDED:
            newest = max(path.name for path in (table / ".hoodie/timeline").glob("*.inflight")).partition(".")[0]
            hidden.update({path: path.rename(table / path.name) for path in table.glob(f"region=*/*{newest}*")})
        elif at is Step.PUBLISHED:
            for path, now in hidden.items():
                now.rename(path)

    at_each_step(hide)
    engine(table).upsert(rows)
    assert hidden
    is_true(table)


def replaced(table: Path, rows: pa.Table) -> None:
    """The whole table gets these rows and their columns, as by an overwrite of the schema and a drop of columns in Spark."""
    at = engine(table)

    def overwrite(tx: Transaction) -> Committed:
        tx.reads(WholeTable())
        schema, now = replacing_schema(tx.schema, rows.schema, tx.baseline.properties), tx.snapshot()
        batch = Batch(at.coordinator, ARROW, tx, schema, rows, AttemptCache())
        tx.claim(file.group for file in now.files)
        gone = {partition: [file.file_id for file in now.in_partition(partition)] for partition in now.partitions}
        return tx.commit(batch.new_files(batch.placed(batch.by_partition(), anew=True)), schema=schema, replaced=gone)

    at.run(overwrite, "INSERT_OVERWRITE_TABLE")


def bounds(table: Path, column: str) -> dict[str, ColumnStats]:
    """The statistics of a column by partition."""
    storage = LocalStorage(str(table))
    found = MetadataTable.look(TableIO(storage), read_timeline(storage)).records(PARTITION_STATS).values()
    named = [(record["ColumnStatsMetadata"][1], stats_in(record)) for record in found]
    return {about["fileName"]: stats for about, stats in named if about["columnName"] == column and stats is not None}


def test_rows_count_as_null_in_a_column_that_is_dropped_and_added_again(table: Path) -> None:
    for column, is_made_by_java in (("v", True), ("own", False)):
        if not is_made_by_java:
            engine(table).alter(Alteration(add={column: pa.int64()}))
            engine(table).insert(with_values(changed(table, "n1"), region="new", own=5))
        replaced(table, engine(table).read().drop_columns([column]))
        is_true(table)
        engine(table).alter(Alteration(add={column: pa.int64()}))
        is_true(table)
        assert all(found.nulls for found in bounds(table, column).values())
        rows = engine(table).read()
        engine(table).insert(pa.Table.from_pylist([{**rows.to_pylist()[0], "id": f"{column}1", column: 7}], rows.schema))
        is_true(table)
        assert all(found.nulls for found in bounds(table, column).values())


def test_the_statistics_of_all_files_are_read_once_for_a_column_that_was_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Who holds the lock for each commit does not read what grows with the files of the table."""
    table, asked, whole = unpack("java12_metadata", tmp_path), list[str](), MetadataTable.records

    def records(self: MetadataTable, name: str) -> dict[str, Record]:
        asked.append(name)
        return whole(self, name)

    def is_read(act: Callable[[], object]) -> bool:
        asked.clear()
        act()
        return COLUMN_STATS in asked

    monkeypatch.setattr(MetadataTable, "records", records)
    at, other = engine(table, options=SEVERAL), engine(table, options=SEVERAL)
    assert is_read(lambda: at.alter(Alteration(add={"note": pa.string()})))
    rows = with_values(changed(table, "k2"), note="noted")
    assert not is_read(lambda: at.upsert(rows))
    assert is_read(lambda: other.insert(with_values(changed(table, "n1"), region="new")))
    for writer in (at, other):
        assert not is_read(lambda writer=writer: writer.upsert(rows))  # type: ignore[misc]
    is_true(table)
    replaced(table, at.read().drop_columns(["note"]))
    engine(table).alter(Alteration(add={"note": pa.string()}))
    assert is_read(lambda: at.upsert(rows)), "another has written without the column"
    is_true(table)
    java_commits(table, later_than(0, at.coordinator.table.timeline().newest_time), changed(table, "j1"))
    assert is_read(lambda: at.upsert(rows)), "another engine has written"
    is_true(table)
    assert not is_read(lambda: at.upsert(rows))


@pytest.mark.parametrize(
    ("column", "type_now"), [("at", pa.date32()), ("v", pa.int32()), ("d", pa.int32()), ("v", pa.string())]
)
def test_bounds_of_a_partition_are_of_the_type_that_its_column_has_now(
    tmp_path: Path, column: str, type_now: pa.DataType
) -> None:  # fmt: skip
    """Java cannot read those of a type that the column had before all rows were replaced."""
    table = unpack("java12_metadata", tmp_path)
    rows = engine(table).read()
    values_now = pc.cast(rows.column(column), type_now, safe=False)
    replaced(table, rows.set_column(rows.schema.get_field_index(column), pa.field(column, type_now), values_now))
    is_true(table)
    assert {found.type for found in bounds(table, column).values()} == {value_type(type_now)}


def out_of_order(table: Path, step: Step | None = None) -> None:
    """Of two that write into a new partition, the one that began first commits last, or is killed at a step."""
    new = [with_values(changed(table, key, v=v), region="new") for key, v in (("n1", 10**9), ("n2", 5))]
    first, second = (engine(table, options=SEVERAL) for _ in range(2))
    with suppress(Killed), first.coordinator.begin("INSERT") as tx:
        second.insert(new[1])
        if step is None:
            first.insert_in(tx, new[0])
            return
        killed_at(step, lambda: first.insert_in(tx, new[0]))
        raise Killed


def test_bounds_of_who_began_earlier_than_another_commit_count_all_the_same(table: Path) -> None:
    """Readers merge in the order of instants."""
    out_of_order(table)
    is_true(table)


@pytest.mark.parametrize("step", [Step.DECIDED, Step.METADATA_LOGGED, Step.METADATA_KEPT])
def test_whoever_finishes_a_commit_that_began_earlier_than_another_writes_its_bounds_once_more(
    tmp_path: Path, step: Step
) -> None:
    table = unpack("java12_metadata", tmp_path)
    out_of_order(table, step)
    engine(table, options=SEVERAL).insert(changed(table, "k50"))
    assert {"n1", "n2", "k50"} <= values(table).keys()
    is_true(table)


def out_of_order_by_java(table: Path) -> None:
    """Java writes its bounds but once, so the later instant's count."""
    with pytest.MonkeyPatch.context() as as_java:
        as_java.setattr(KeptMetadata, "append_anew", lambda self, *_: self)
        out_of_order(table)
    with pytest.raises(AssertionError):
        is_true(table)


def test_bounds_of_another_engine_that_began_earlier_are_joined_by_the_next_commit_once(table: Path) -> None:
    out_of_order_by_java(table)
    for number in range(2):
        before = len(list((table / ".hoodie/metadata/.hoodie/timeline").glob("*_*.deltacommit")))
        engine(table, options=SEVERAL).insert(changed(table, f"k5{number}"))
        is_true(table)
        after = len(list((table / ".hoodie/metadata/.hoodie/timeline").glob("*_*.deltacommit")))
        assert after - before == (1 if number else 2), "the bounds, and its own"


def java_commits(table: Path, instant: str, rows: pa.Table, *, lists: bool = True) -> None:
    """Another engine commits rows at an instant that it took before; its bounds it writes once, or nothing at all."""
    at = engine(table, options=SEVERAL).coordinator
    Peer(at.table.storage).insert(rows, "region=new", instant=instant)
    (done,) = (each for each in at.table.timeline().commits if each.requested == instant)
    kept = KeptMetadata.look(at.table, at.table.properties())
    assert kept is not None
    with pytest.MonkeyPatch.context() as once:
        once.setattr(KeptMetadata, "append_anew", lambda self, *_: self)
        if lists:
            kept.commit(instant, read_commit(at.table.storage, done), at.table.timeline())


@pytest.mark.parametrize("step", [Step.DECIDED, Step.METADATA_LOGGED, Step.METADATA_KEPT])
def test_whoever_finishes_a_commit_looks_first_for_bounds_that_do_not_count(tmp_path: Path, step: Step) -> None:
    """Bounds that were written once more tell that somebody has looked for those of others."""
    table = unpack("java12_metadata", tmp_path)
    rows = [with_values(changed(table, key, v=v), region="new") for key, v in (("n1", 10**9), ("n2", 5), ("n3", 6))]
    killed, other = (engine(table, options=SEVERAL) for _ in range(2))
    with suppress(Killed), killed.coordinator.begin("INSERT") as tx:
        javas = Peer(killed.coordinator.table.storage).begin()
        other.insert(rows[1])
        killed_at(step, lambda: killed.insert_in(tx, rows[2]))
        raise Killed
    java_commits(table, javas, rows[0])
    engine(table, options=SEVERAL).insert(changed(table, "k50"))
    assert {"n1", "n2", "n3", "k50"} <= values(table).keys()
    is_true(table)


def test_so_does_who_brings_in_what_the_metadata_table_lacks(tmp_path: Path) -> None:
    table = unpack("java12_metadata", tmp_path)
    rows = [with_values(changed(table, key, v=v), region="new") for key, v in (("n1", 10**9), ("n2", 5), ("n3", 6))]
    peer = Peer(LocalStorage(str(table)))
    lacking, listed = peer.begin(), peer.begin()
    engine(table, options=SEVERAL).insert(rows[1])
    java_commits(table, listed, rows[0])
    java_commits(table, lacking, rows[2], lists=False)
    engine(table, options=SEVERAL).insert(changed(table, "k50"))
    assert {"n1", "n2", "n3", "k50"} <= values(table).keys()
    is_true(table)


def test_no_transaction_that_begins_later_has_the_time_at_which_bounds_are_written_once_more(table: Path) -> None:
    """Readers would pass over them while it is pending, and its rollback would take them out."""
    out_of_order(table)
    both = (read_timeline(LocalStorage(str(table))), read_metadata_timeline(LocalStorage(str(table))))
    (own,) = {i.requested for i in both[1].commits[-2:]} - {i.requested for i in both[0].instants}
    assert own == max(i.requested for i in both[1].instants) < both[0].newest_time


def another_engine_says(table: Path) -> None:
    """What Java does: a delta commit with tight bounds of each partition, by the files that are visible."""
    storage = LocalStorage(str(table))
    io, timeline = TableIO(storage), read_metadata_timeline(storage)
    metadata = MetadataTable(io, timeline, Timeline.of([]))
    listed = list_partition(storage, PARTITION_STATS)
    records = metadata.records(PARTITION_STATS)
    narrow: dict[str, Record] = {}
    for record in records.values():
        name, known = record["ColumnStatsMetadata"][1]["fileName"], metadata_stats.stats_in(record)
        if record["ColumnStatsMetadata"][1]["columnName"] == "v" and known is not None:
            narrow |= partition_stats_records(name, [{"v": replace(known, high=known.low)}], {}, 2)
    instant = writing.later_than(0, timeline.newest_time)
    schema, table_schema = schemas_of(metadata)
    groups = {PARTITION_STATS: file_groups(PARTITION_STATS, listed)}
    (log,) = group_logs(instant, {PARTITION_STATS: narrow}, groups, schema)
    storage.put(f"{layout.METADATA_TABLE}/{log.path}", log.data)
    stat = WriteStat(log.file_id, log.path, prev_commit=instant, partition_path=PARTITION_STATS, log_files=(log.name,))
    done = CommitMetadata({PARTITION_STATS: (stat,)}, "UPSERT_PREPPED", {"schema": table_schema}).to_bytes()
    for name, data in (("requested", b""), ("inflight", b"")):
        storage.put(f"{layout.METADATA_TABLE}/{layout.timeline(f'{instant}.deltacommit.{name}')}", data)
    completion = writing.later_than(0, instant)
    storage.put(f"{layout.METADATA_TABLE}/{layout.timeline(f'{instant}_{completion}.deltacommit')}", done)


@pytest.mark.parametrize("step", [Step.METADATA_LOGGED, Step.METADATA_KEPT])
def test_bounds_that_another_engine_wrote_before_a_killed_commit_was_finished_are_joined_with_its_files(
    tmp_path: Path, step: Step
) -> None:
    table = unpack("java12_metadata", tmp_path)
    rows = changed(table, "k2", "k3", v=10**9)
    killed_at(step, lambda: engine(table).upsert(rows))
    another_engine_says(table)
    engine(table).insert(with_values(changed(table, "n1"), region="new"))
    storage = LocalStorage(str(table))
    metadata = MetadataTable(TableIO(storage), read_metadata_timeline(storage), Timeline.of([]))
    highest = [
        metadata_stats.stats_in(record)
        for record in metadata.records(PARTITION_STATS).values()
        if record["ColumnStatsMetadata"][1]["columnName"] == "v"
        and record["ColumnStatsMetadata"][1]["fileName"] != "region=new"
    ]
    assert [each is not None and each.high for each in highest] == [10**9] * len(highest)


Mutation = Callable[[pytest.MonkeyPatch], None]


def without_a_partitions_record(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(writing, "partition_stats_records", lambda *_: {})


def without_one_column(patch: pytest.MonkeyPatch) -> None:
    whole = writing.column_stats_records

    def some(partition: str, name: str, stats: Any, version: int) -> Any:
        return whole(partition, name, {column: each for column, each in stats.items() if column != "v"}, version)

    patch.setattr(writing, "column_stats_records", some)


def with_bounds_of_new_files_only(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(writing, "partition_stats_records", lambda p, added, _, *rest: partition_stats_records(p, added, {}, *rest))


def with_a_nan_passed_over(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(metadata_stats, "NAN_BOUNDS", (0.0, 0.0))


def without_records_of_an_added_column(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(writing, "null_records", lambda *_: {})


@pytest.mark.parametrize(
    ("mutation", "what"),
    [
        (without_a_partitions_record, PARTITION_STATS), (without_one_column, COLUMN_STATS),
        (with_bounds_of_new_files_only, PARTITION_STATS), (with_a_nan_passed_over, COLUMN_STATS),
        (without_records_of_an_added_column, PARTITION_STATS),
    ],
)  # fmt: skip
def test_each_planted_mistake_about_statistics_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutation: Mutation, what: str
) -> None:
    table = unpack("java12_metadata", tmp_path)
    with monkeypatch.context() as patch:
        mutation(patch)
        grown(table)
        rows = with_values(changed(table, "n1", "n2"), v=10**9, d=math.nan, note="noted")
        engine(table).insert(rows)
        engine(table).insert(with_values(rows, region="new"))
    found = [check for check in run("doctor", str(table), "--json", *ALONE).json["checks"] if check["name"] == "metadata"]
    assert {check["status"] for check in found} == {"failed"} and any(what in check["found"] for check in found), found


def test_a_time_for_bounds_alone_is_between_two_times_of_transactions() -> None:
    newest = "20261130120000123"
    done = Instant(newest, Action.DELTA_COMMIT.value, State.COMPLETED, "20261130120000200")
    own = own_time(Timeline.of([done]))
    again = own_time(Timeline.of([done, Instant(own, Action.DELTA_COMMIT.value, State.REQUESTED)]))
    assert newest < own < again < later_than(0, newest)
