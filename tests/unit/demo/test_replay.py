"""The demo's witness: the commits of a table read by fastavro, their serial replay, and the comparison with a reader."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.demo.commits import TableCommit, foreign_files, pending_instants, read_commits, snapshot_files
from tests.demo.compare import compare
from tests.demo.flights import SCHEMA, DemoError
from tests.demo.plan import STREAM, Operation, Plan
from tests.demo.replay import Applied, committed_operations, replay, stream_batches

COMMIT = {
    "type": "record",
    "name": "HoodieCommitMetadata",
    "fields": [
        {
            "name": "partitionToWriteStats",
            "type": {
                "type": "map",
                "values": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "HoodieWriteStat",
                        "fields": [{"name": "fileId", "type": "string"}, {"name": "path", "type": "string"}],
                    },
                },
            },
        },
        {"name": "extraMetadata", "type": {"type": "map", "values": "string"}},
        {"name": "operationType", "type": "string"},
        {
            "name": "partitionToReplaceFileIds",
            "type": ["null", {"type": "map", "values": {"type": "array", "items": "string"}}],
            "default": None,
        },
    ],
}


def put_commit(
    table: Path,
    name: str,
    decision: int,
    written: Mapping[str, str],
    *,
    pid: int = 1,
    batch: int | None = None,
    replaced: Sequence[str] = (),
) -> None:
    extra = {"lakelock.decision": str(decision), "lakelock.writer": json.dumps({"pid": pid})}
    if batch is not None:
        extra["lakelock.application"] = json.dumps({"id": "spark-stream:q", "version": batch})
    record = {
        "partitionToWriteStats": {"month=1": [{"fileId": f, "path": p} for f, p in written.items()]},
        "extraMetadata": extra,
        "operationType": "UPSERT",
        "partitionToReplaceFileIds": {"month=1": list(replaced)} if replaced else None,
    }
    folder = table / ".hoodie" / "timeline"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("wb") as stream:
        fastavro.writer(stream, COMMIT, [record])


def flight(number: int, *, delay: int | None = 0, hour: int = 0, tail: str | None = "N1", day: int = 1) -> dict[str, object]:
    row: dict[str, object] = dict.fromkeys(SCHEMA.names)
    row.update(year=2013, month=1, day=day, carrier="UA", flight=number, origin="JFK", tailnum=tail, arr_delay=delay)
    return {**row, "updated_at": 1_000_000 * 3600 * hour}


def table_of(*rows: dict[str, object]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), SCHEMA)


def applied(number: int, operation: Operation) -> Applied:
    return Applied(TableCommit(number, str(number), str(number), "", 1, None, {}, frozenset()), operation, operation.inputs)


def replayed(
    work: Path, *operations: tuple[str, pa.Table | tuple[str, ...]], newer_stays: bool = True
) -> list[tuple[int, int | None]]:  # fmt: skip
    """Flight number and delay of the rows after these operations."""
    steps = []
    for number, (kind, what) in enumerate(operations, 1):
        if isinstance(what, tuple):
            steps.append(applied(number, Operation(f"w{number}", "delete", "", (), what)))
        else:
            pq.write_table(what, work / f"{number}.parquet")
            steps.append(applied(number, Operation(f"w{number}", kind, "", (f"{number}.parquet",))))
    with duckdb.connect() as connection:
        count = replay(connection, steps, work, newer_stays=newer_stays)
        rows = connection.execute("SELECT flight, arr_delay FROM replay ORDER BY ALL").fetchall()
    assert count == len(rows)
    return rows


def test_an_upsert_replaces_unless_the_stored_row_is_newer_and_adds_what_is_not_there(tmp_path: Path):
    stored = table_of(flight(1, hour=1), flight(2, hour=2), flight(3, hour=3))
    changes = table_of(*[flight(n, delay=9, hour=2) for n in (1, 2, 3, 4)])
    assert replayed(tmp_path, ("insert", stored), ("upsert", changes)) == [(1, 9), (2, 9), (3, 0), (4, 9)]


def test_where_commits_order_the_rows_an_upsert_replaces_a_newer_one_too(tmp_path: Path):
    stored, older = table_of(flight(1, hour=3)), table_of(flight(1, delay=9, hour=2))
    assert replayed(tmp_path, ("insert", stored), ("upsert", older), newer_stays=False) == [(1, 9)]


def test_the_order_of_two_upserts_of_equal_age_shows_in_the_replay(tmp_path: Path):
    one, two = table_of(flight(1, delay=1)), table_of(flight(1, delay=2))
    assert replayed(tmp_path, ("upsert", one), ("upsert", two)) == [(1, 2)]
    assert replayed(tmp_path, ("upsert", two), ("upsert", one)) == [(1, 1)]


def test_a_delete_takes_the_rows_that_are_there_when_it_runs_and_never_those_without_a_tail_number(tmp_path: Path):
    rows = table_of(flight(1, tail="N1"), flight(2, tail=None), flight(3, tail="N3"))
    later = table_of(flight(4, tail="N1"))
    assert replayed(tmp_path, ("insert", rows), ("delete", ("N1", "N9")), ("insert", later)) == [(2, 0), (3, 0), (4, 0)]


@pytest.fixture
def witness() -> duckdb.DuckDBPyConnection:
    """A connection whose replay holds flights 1 to 9, flight 9 twice."""
    connection = duckdb.connect()
    connection.register("rows", table_of(*[flight(n) for n in range(1, 10)], flight(9)))
    connection.execute("CREATE TABLE replay AS SELECT * FROM rows")
    return connection


def test_the_same_rows_in_any_order_are_the_same(witness: duckdb.DuckDBPyConnection):
    rows = table_of(flight(9), *[flight(n) for n in range(9, 0, -1)]).append_column("_hoodie_file_name", [["f"] * 10])
    found = compare(witness, "me", rows)
    assert found.same and found.rows == 10
    assert str(found) == "me: 10 rows, the same as the serial replay"


def test_a_row_that_is_lost_doubled_or_changed_is_shown(witness: duckdb.DuckDBPyConnection):
    lost = compare(witness, "me", table_of(*[flight(n) for n in range(2, 10)], flight(9)))
    assert (lost.missing_count, lost.unexpected_count) == (1, 0)
    assert "flight=1" in str(lost) and "NOT the same" in str(lost)
    single = compare(witness, "me", table_of(*[flight(n) for n in range(1, 10)]))
    assert (single.missing_count, single.unexpected_count) == (1, 0)
    changed = compare(witness, "me", table_of(*[flight(n) for n in range(1, 10)], flight(9, delay=None)))
    assert (changed.missing_count, changed.unexpected_count) == (1, 1)


def test_commits_are_read_in_decision_order_and_pending_ones_are_not_commits(tmp_path: Path):
    put_commit(tmp_path, "20260101000000002_20260101000000005.commit", 1, {"a": "month=1/a_1_2.parquet"}, pid=7)
    put_commit(tmp_path, "20260101000000001_20260101000000009.commit", 2, {"b": "month=1/b_1_1.parquet"}, batch=3)
    timeline = tmp_path / ".hoodie" / "timeline"
    for name in ("20260101000000001.commit.requested", "20260101000000003.commit.requested", "20260101000000003.inflight"):
        (timeline / name).touch()
    commits = read_commits(tmp_path)
    assert [(c.decision, c.pid, c.batch) for c in commits] == [(1, 7, None), (2, 1, ("spark-stream:q", 3))]
    assert pending_instants(tmp_path) == ["20260101000000003"]


def test_the_snapshot_has_the_file_of_the_latest_begun_commit_of_each_group_and_no_replaced_one(tmp_path: Path):
    put_commit(tmp_path, "20260101000000001_20260101000000002.commit", 1, {"a": "a1", "b": "b1", "c": "c1"})
    put_commit(tmp_path, "20260101000000005_20260101000000006.commit", 2, {"a": "a5"})
    put_commit(tmp_path, "20260101000000007_20260101000000008.replacecommit", 3, {"d": "d7"}, replaced=["b"])
    assert snapshot_files(read_commits(tmp_path)) == ["a5", "c1", "d7"]


def test_a_data_file_that_no_commit_wrote_is_found(tmp_path: Path):
    put_commit(tmp_path, "20260101000000001_20260101000000002.commit", 1, {"a": "month=1/a.parquet"})
    (tmp_path / "month=1").mkdir()
    for name in ("month=1/a.parquet", "month=1/stray.parquet", ".hoodie/inner.parquet"):
        (tmp_path / name).touch()
    assert foreign_files(tmp_path, read_commits(tmp_path)) == ["month=1/stray.parquet"]


def test_log_files_are_known_by_their_commits_and_are_no_files_of_the_snapshot(tmp_path: Path):
    log, stray = "month=1/.a_20260101000000003.log.1_1-0-0", "month=1/.a_20260101000000005.log.1_1-0-0"
    put_commit(tmp_path, "20260101000000001_20260101000000002.deltacommit", 1, {"a": "month=1/a.parquet"})
    put_commit(tmp_path, "20260101000000003_20260101000000004.deltacommit", 2, {"a": log})
    (tmp_path / "month=1").mkdir()
    for name in ("month=1/a.parquet", log, stray):
        (tmp_path / name).touch()
    commits = read_commits(tmp_path)
    assert snapshot_files(commits) == ["month=1/a.parquet"]
    assert foreign_files(tmp_path, commits) == [stray]


def test_two_commits_with_one_decision_number_are_refused(tmp_path: Path):
    put_commit(tmp_path, "20260101000000001_20260101000000002.commit", 1, {})
    put_commit(tmp_path, "20260101000000003_20260101000000004.commit", 1, {})
    with pytest.raises(DemoError, match="same decision number"):
        read_commits(tmp_path)


PLAN = Plan(
    0,
    0,
    {
        STREAM: Operation(STREAM, "insert", "", ("inputs/stream-00.parquet", "inputs/stream-01.parquet")),
        "fix": Operation("fix", "upsert", "", ("inputs/fix.parquet",)),
    },
)


def test_each_commit_is_matched_with_its_operation_and_batch(tmp_path: Path):
    put_commit(tmp_path, "20260101000000001_20260101000000002.commit", 1, {}, pid=10, batch=1)
    put_commit(tmp_path, "20260101000000003_20260101000000004.commit", 2, {}, pid=20)
    found = committed_operations(read_commits(tmp_path), PLAN, {10: STREAM, 20: "fix"}, {0: ["x"], 1: ["y"]})
    assert [(a.name, a.inputs) for a in found] == [("stream batch 1", ("y",)), ("fix", ("inputs/fix.parquet",))]


@pytest.mark.parametrize("batch", [None, 4])
def test_a_batch_or_an_operation_that_was_committed_twice_is_refused(tmp_path: Path, batch: int | None):
    pid = 20 if batch is None else 10
    put_commit(tmp_path, "20260101000000001_20260101000000002.commit", 1, {}, pid=pid, batch=batch)
    put_commit(tmp_path, "20260101000000003_20260101000000004.commit", 2, {}, pid=pid, batch=batch)
    with pytest.raises(DemoError, match="committed more than once"):
        committed_operations(read_commits(tmp_path), PLAN, {10: STREAM, 20: "fix"}, {4: ["x"]})


def test_the_batches_of_the_stream_come_from_the_checkpoint_also_when_its_log_is_compacted(tmp_path: Path):
    log = tmp_path / "sources" / "0"
    log.mkdir(parents=True)
    first, second = (json.dumps({"path": f"file:///x/landing/stream-0{n}.parquet", "batchId": n}) for n in (0, 1))
    (log / "0").write_text(f"v1\n{first}")
    (log / "1.compact").write_text(f"v1\n{first}\n{second}")
    (log / ".1.crc").write_bytes(b"\0")
    assert stream_batches(tmp_path, PLAN) == {0: ["inputs/stream-00.parquet"], 1: ["inputs/stream-01.parquet"]}


def test_a_reader_that_lacks_a_column_or_has_another_type_is_an_error_with_its_name(witness: duckdb.DuckDBPyConnection):
    with pytest.raises(DemoError, match="me returned no column tailnum"):
        compare(witness, "me", table_of(flight(1)).drop_columns("tailnum"))
    index = SCHEMA.get_field_index("flight")
    with pytest.raises(DemoError, match="me returned values of another type"):
        compare(witness, "me", table_of(flight(1)).set_column(index, "flight", pa.array([1.5])))


def test_a_commit_of_nobody_is_refused(tmp_path: Path):
    put_commit(tmp_path, "20260101000000001_20260101000000002.commit", 1, {}, pid=99)
    with pytest.raises(DemoError, match="not one of the demo's writers"):
        committed_operations(read_commits(tmp_path), PLAN, {10: STREAM}, {})
