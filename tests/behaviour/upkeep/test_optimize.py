"""Joining small files: no row changes, nobody loses against it, and it yields to whoever writes the same file groups."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.api import ArrowEngine, CommitMetadata, LocalStorage, MemoryStorage, layout
from tests.behaviour.foreign import Peer
from tests.behaviour.tables import QUICK, SCHEMA, leftovers, new_table, writer

from lakelock.errors import ConflictError, InputError
from lakelock.occ.footprint import CommitSummary
from lakelock.occ.live_logs import slices_at
from lakelock.settings import OptimizeSettings, RetrySettings
from lakelock.table.merged_slices import open_slice
from lakelock.table.rewriting import Kernels
from lakelock.table.schema import TableSchema

META = ["_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key", "_hoodie_partition_path"]


def rows(*values: tuple[str, int, str]) -> pa.Table:
    return pa.table([list(column) for column in zip(*values, strict=True)], schema=SCHEMA)


def content(table: pa.Table) -> list[tuple[str, int, str]]:
    return sorted(zip(*(table.column(n).to_pylist() for n in SCHEMA.names), strict=True))


def stored(engine: ArrowEngine) -> list[tuple[object, ...]]:
    """Every row with its meta columns, but for the name of its file."""
    table, found = engine.coordinator.table, []
    for file in slices_at(table, table.timeline()).files:
        with open_slice(file, table.storage, TableSchema(SCHEMA)) as source:
            read = pq.read_table(source, partitioning=None)
            assert file.logs or set(read.column("_hoodie_file_name").to_pylist()) == {file.name}
            found += list(zip(*(read.column(n).to_pylist() for n in [*META, *SCHEMA.names]), strict=True))
    return sorted(found)


@pytest.fixture(params=["memory", "local"])
def storage(request, tmp_path):
    made = MemoryStorage() if request.param == "memory" else LocalStorage(str(tmp_path / "t"))
    new_table(made)
    return made


@pytest.fixture
def engine(storage):
    return with_small_files(storage)


def with_small_files(storage) -> ArrowEngine:
    """An engine that has inserted four times into two partitions, and once into a third."""
    made = ArrowEngine(writer(storage))
    for number in range(4):
        made.insert(rows((f"a{number}", number, "1"), (f"b{number}", number, "2")))
    made.insert(rows(("c", 9, "3")))
    return made


class Meanwhile(Kernels):
    """Does something once, when the first file of this engine is begun."""

    def __init__(self, what) -> None:
        self._what = what

    def new_file(self, *args):
        what, self._what = self._what, None
        if what is not None:
            what()
        return super().new_file(*args)


def test_small_files_of_each_partition_become_one_and_no_row_changes(engine, storage):
    before, as_of = stored(engine), engine.coordinator.history(1)[0].instant
    done = engine.optimize()
    assert (done.files_before, done.files_after, done.yielded) == (8, 2, 0)
    assert [len(engine.coordinator.snapshot().in_partition(p)) for p in ("month=1", "month=2", "month=3")] == [1, 1, 1]
    assert stored(engine) == before
    assert len(engine.coordinator.snapshot(as_of).files) == 9
    assert content(engine.read(as_of=as_of)) == content(engine.read())
    assert leftovers(storage) == []


def test_it_is_a_replacecommit_that_clusters_as_hudi_names_it_and_says_that_no_row_changed(engine, storage):
    (commit,) = engine.optimize(tag="nightly").commits
    instant = engine.coordinator.table.timeline().write_at(commit.instant)
    assert instant.action == "replacecommit"
    metadata = CommitMetadata.from_bytes(storage.get(layout.timeline(instant.file_name)).data)
    assert metadata.operation == "CLUSTER"
    summary = CommitSummary.of(commit.instant, commit.completion, metadata, commit.decision)
    assert summary.changes_no_row
    (entry,) = engine.coordinator.history(1)
    assert (entry.operation, entry.rows_inserted, entry.tag) == ("CLUSTER", 0, "nightly")


def test_what_is_joined_already_is_left_alone(engine):
    engine.optimize()
    timeline = engine.coordinator.table.timeline().instants
    assert engine.optimize().commits == []
    assert engine.coordinator.table.timeline().instants == timeline


def test_partitions_are_chosen_by_name_or_by_condition(engine):
    assert engine.optimize(partition="month=1").files_before == 4
    assert engine.optimize(pc.field("month") > "1").files_before == 4
    with pytest.raises(InputError, match="partition columns"):
        engine.optimize(pc.field("v") > 1)


def test_rows_are_sorted_across_the_new_files_on_request(storage):
    engine = ArrowEngine(writer(storage))
    for start in range(4):
        engine.insert(rows(*((f"k{value}", value, "1") for value in range(start, 40, 4))))
    size = sum(file.size_bytes for file in engine.coordinator.snapshot().files)
    before = stored(engine)
    done = engine.optimize(sort_by=["v"], sizes=OptimizeSettings(size // 2, size // 2, 2 * size))
    assert (done.files_before, done.files_after) == (4, 2)
    assert stored(engine) == before
    found = []
    for file in engine.coordinator.snapshot().files:
        with storage.open_input(file.key) as source:
            found.append(pq.read_table(source, partitioning=None).column("v").to_pylist())
    assert sorted(found) == [list(range(20)), list(range(20, 40))]


def test_a_column_to_sort_by_that_is_not_there_is_an_input_error(engine):
    with pytest.raises(InputError, match=r"to sort by(; did you mean|$)"):
        engine.optimize(sort_by=["V"])


@pytest.mark.parametrize("sort_by", [[], ["v"]])
def test_a_lone_file_without_rows_vanishes_and_with_it_its_partition(engine, storage, sort_by):
    engine.optimize()
    as_of = engine.delete_where(pc.field("month") == "2").completion
    engine.delete_where(pc.field("id") == "a0")
    before, history = content(engine.read()), len(engine.coordinator.history())
    assert engine.coordinator.snapshot().partitions == ("month=1", "month=2", "month=3")
    done = engine.optimize(sort_by=sort_by)
    assert (done.files_before, done.files_after, len(engine.coordinator.history())) == (1, 0, history + 1)
    assert engine.coordinator.snapshot().partitions == ("month=1", "month=3")
    assert content(engine.read()) == before
    assert engine.optimize(sort_by=sort_by).commits == []
    assert engine.changes(as_of, mode="net").num_rows == 1
    engine.insert(rows(("x", 1, "2")))
    assert len(content(engine.read())) == len(before) + 1


@pytest.mark.parametrize("sort_by", [[], ["v"]])
def test_file_groups_without_rows_vanish(storage, sort_by):
    engine = ArrowEngine(writer(storage))
    for number in range(3):
        engine.insert(rows((f"a{number}", number, "1")))
    engine.delete(pc.field("v") >= 0)
    done = engine.optimize(sort_by=sort_by)
    assert (done.files_before, done.files_after) == (3, 0)
    assert engine.coordinator.snapshot().files == ()
    engine.insert(rows(("x", 1, "1")))
    assert content(engine.read()) == [("x", 1, "1")]


def test_an_append_and_a_read_beside_it_commit_at_the_first_attempt(engine, storage):
    done = []

    def append():
        done.append(ArrowEngine(writer(storage)).insert(rows(("new", 7, "1"))))
        other = ArrowEngine(writer(storage))
        with other.coordinator.begin("UPSERT") as tx:
            count = other.read_in(tx).num_rows
            done.append(other.upsert_in(tx, rows(("count", count, "9"))))

    joined = ArrowEngine(writer(storage), Meanwhile(append)).optimize()
    assert [write.attempts for write in done] == [1, 1]
    assert (joined.files_before, joined.yielded) == (8, 0)
    assert ("count", 10, "9") in content(engine.read())


def test_a_reader_of_everything_is_not_disturbed_by_an_optimize_that_commits_first(engine, storage):
    with engine.coordinator.begin("UPSERT") as tx:
        count = engine.read_in(tx).num_rows
        assert ArrowEngine(writer(storage)).optimize().files_after == 2
        engine.upsert_in(tx, rows(("count", count, "9")))
    assert ("count", 9, "9") in content(engine.read())


@pytest.mark.parametrize("attempts", [1, 5])
def test_an_upsert_makes_a_running_optimize_yield_and_is_not_run_again(engine, storage, attempts):
    quick, done = replace(QUICK, retry=RetrySettings(attempts=attempts)), []
    before = content(engine.read())

    def upsert():
        done.append(ArrowEngine(writer(storage, quick)).upsert(rows(("a1", 100, "1"))))

    joined = ArrowEngine(writer(storage), Meanwhile(upsert)).optimize()
    assert [write.attempts for write in done] == [1]
    assert (joined.commits, joined.files_before, joined.yielded) == ([], 0, 8)
    assert "rolled back" in joined.reasons[0] and "which writes the same file groups" in joined.reasons[0]
    assert content(engine.read()) == sorted({*before, ("a1", 100, "1")} - {("a1", 1, "1")})
    engine.coordinator.reap()
    assert leftovers(storage) == []
    assert engine.optimize().files_before == 8


def test_an_upsert_that_finds_its_groups_joined_since_it_began_looks_again_at_no_cost(engine, storage):
    begun = []

    class Slow(Kernels):
        def tag(self, *args):
            found = super().tag(*args)
            if not begun:
                begun.append(ArrowEngine(writer(storage)).optimize())
            return found

    quick = replace(QUICK, retry=RetrySettings(attempts=1))
    done = ArrowEngine(writer(storage, quick), Slow()).upsert(rows(("a1", 100, "1")))
    assert begun[0].files_after == 2
    assert (done.attempts, [conflict.early for conflict in done.conflicts]) == (2, [True])
    assert ("a1", 100, "1") in content(engine.read())
    assert leftovers(storage) == []


def test_groups_that_a_writer_has_claimed_are_left_to_it_and_the_others_are_joined(engine, storage):
    mine = engine.coordinator.snapshot().in_partition("month=1")[0]
    with writer(storage).begin("UPSERT") as tx:
        tx.claim([mine.group])
        done = engine.optimize()
        assert (done.files_before, done.files_after, done.yielded) == (7, 2, 1)
    assert engine.coordinator.snapshot().group(mine.group) is not None


def test_one_commit_rewrites_as_much_as_is_allowed(engine):
    size = max(file.size_bytes for file in engine.coordinator.snapshot().files)
    done = engine.optimize(sizes=OptimizeSettings(10 * size, 10 * size, 1))
    assert (len(done.commits), done.files_before, done.files_after) == (2, 8, 2)


def test_an_upsert_of_a_key_finds_it_in_the_joined_file(engine):
    engine.optimize()
    changed = engine.upsert(rows(("a2", 50, "1"), ("d", 1, "1")))
    assert (changed.rows_updated, changed.rows_inserted) == (1, 1)
    assert ("a2", 50, "1") in content(engine.read())


def test_a_file_that_no_commit_names_is_not_made_permanent(engine, storage):
    (file, *_) = engine.coordinator.snapshot().in_partition("month=1")
    stray = file._replace(file_id="stray", token="9-9-9")
    storage.put(stray.key, storage.get(file.key).data)
    assert engine.optimize().files_before == 8
    storage.delete([stray.key])
    assert content(engine.read()) == sorted(
        [(f"{p}{n}", n, m) for n in range(4) for p, m in (("a", "1"), ("b", "2"))] + [("c", 9, "3")]
    )


def test_file_groups_in_a_clustering_plan_of_java_are_left_to_it(engine, storage):
    planned = engine.coordinator.snapshot().in_partition("month=2")[0]
    Peer(storage).plan_clustering(planned.group)
    done = engine.optimize()
    assert (done.files_before, done.yielded) == (7, 1)
    assert engine.coordinator.snapshot().group(planned.group) == planned


def test_an_optimize_whose_claim_was_taken_over_does_not_commit_although_nobody_else_has(engine, storage):
    group = engine.coordinator.snapshot().in_partition("month=1")[0].group
    other, begun = ArrowEngine(writer(storage)), []

    def take_over():
        begun.append(other.coordinator.begin("UPSERT"))
        begun[0].claim([group])

    done = ArrowEngine(writer(storage), Meanwhile(take_over)).optimize(partition="month=1")
    assert (done.commits, done.yielded) == ([], 4)
    with begun[0] as tx:
        other.upsert_in(tx, rows(("a0", 100, "1")))
    assert ("a0", 100, "1") in content(engine.read())


@pytest.mark.parametrize("profile", ["strict", "delta"])
def test_a_row_that_is_removed_after_an_optimize_has_moved_it_was_read_all_the_same(engine, storage, profile):
    """What is removed is in no file that the reader has seen, and in none that is left: seed 12852 of the simulator."""
    mine = ArrowEngine(writer(storage, replace(QUICK, concurrency=replace(QUICK.concurrency, profile=profile))))
    with mine.coordinator.begin("UPSERT") as tx:
        counted = mine.read_in(tx, pc.field("month") == "1").num_rows
        engine.optimize()
        engine.delete_where(pc.field("month") == "1")
        with pytest.raises(ConflictError) as lost:
            mine.upsert_in(tx, rows(("count", counted, "3")))
    assert lost.value.conflict.other.operation == "DELETE"
