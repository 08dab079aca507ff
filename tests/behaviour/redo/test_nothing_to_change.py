"""A write that finds only newer rows in a file group leaves it alone, and has read it all the same."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.api import (
    AppTransaction,
    ArrowEngine,
    BucketIndex,
    ConflictRule,
    MemoryStorage,
    Storage,
    SystemRuntime,
    TableProperties,
    TableSchema,
    create_table,
)
from tests.behaviour.tables import QUICK, leftovers, writer

from lakelock.errors import ConflictError
from lakelock.settings import ConcurrencySettings

COLUMNS = pa.schema([("id", pa.string()), ("v", pa.int64()), ("ts", pa.int64()), ("p", pa.string())])


def rows(*values: tuple[str, int, int | None, str]) -> pa.Table:
    columns = zip(*values, strict=True)
    return pa.table([pa.array(list(each), field.type) for each, field in zip(columns, COLUMNS, strict=True)], schema=COLUMNS)


def content(engine: ArrowEngine) -> list[tuple[str, int, int, str]]:
    return sorted(zip(*(engine.read().column(name).to_pylist() for name in COLUMNS.names), strict=True))


def files(engine: ArrowEngine) -> set[str]:
    return {file.key for file in engine.coordinator.snapshot().files}


INDEX = BucketIndex(4, ("id",))


def new(index: BucketIndex | None) -> Storage:
    made, schema = MemoryStorage(), TableSchema.from_arrow(COLUMNS).to_avro_json("t")
    table = TableProperties.new("t", ("id",), ("p",), ordering_field="ts", create_schema=schema)
    create_table(made, table.indexed(index), SystemRuntime())
    return made


@pytest.fixture(params=[None, INDEX], ids=["without-index", "bucket"])
def storage(request: pytest.FixtureRequest) -> Storage:
    return new(request.param)


@pytest.fixture
def engine(storage: Storage) -> ArrowEngine:
    return filled(storage)


def filled(storage: Storage) -> ArrowEngine:
    made = ArrowEngine(writer(storage))
    made.insert(rows(("a", 1, 10, "1"), ("b", 2, 10, "2")))
    return made


def test_an_upsert_of_older_rows_only_commits_and_writes_no_file(storage: Storage, engine: ArrowEngine) -> None:
    before, stored = files(engine), content(engine)
    done = engine.upsert(rows(("a", 9, 9, "1"), ("b", 9, None, "2")), application=AppTransaction("job", 1))
    assert (done.rows_inserted, done.rows_updated, done.files) == (0, 0, 0)
    assert files(engine) == before and content(engine) == stored
    again = engine.upsert(rows(("a", 9, 11, "1")), application=AppTransaction("job", 1))
    assert again.already_applied and content(engine) == stored
    assert leftovers(storage) == []


def test_only_file_groups_with_a_newer_row_are_rewritten(storage: Storage, engine: ArrowEngine) -> None:
    left_alone = {key for key in files(engine) if key.startswith("p=2/")}
    done = engine.upsert(rows(("a", 7, 10, "1"), ("b", 9, 9, "2"), ("c", 3, 1, "3")))
    assert (done.rows_inserted, done.rows_updated, done.files) == (1, 1, 2)
    assert {key for key in files(engine) if key.startswith("p=2/")} == left_alone
    assert content(engine) == [("a", 7, 10, "1"), ("b", 2, 10, "2"), ("c", 3, 1, "3")]
    assert leftovers(storage) == []


@pytest.mark.parametrize("what", ["the key", "another row"])
def test_the_rows_that_were_newer_have_been_read(storage: Storage, engine: ArrowEngine, what: str) -> None:
    """Without the newer row that another deletes meanwhile, the older one would be stored."""
    engine.insert(rows(("elsewhere", 0, 0, "3")))
    late = replace(QUICK, concurrency=ConcurrencySettings(early_conflict_detection=False))
    engine = ArrowEngine(writer(storage, late))
    mine = engine.coordinator.begin("UPSERT")
    gone = pc.field("id") == ("a" if what == "the key" else "elsewhere")
    ArrowEngine(writer(storage)).delete(gone)
    if what == "another row":
        engine.upsert_in(mine, rows(("a", 9, 9, "1")))
        return
    with pytest.raises(ConflictError) as caught:
        engine.upsert_in(mine, rows(("a", 9, 9, "1")))
    assert caught.value.conflict.rule is ConflictRule.KEY
    assert leftovers(storage) == []
    engine.upsert(rows(("a", 9, 9, "1")))
    assert ("a", 9, 9, "1") in content(engine)


def test_upserts_of_older_rows_do_not_keep_each_other_from_committing(storage: Storage, engine: ArrowEngine) -> None:
    other = ArrowEngine(writer(storage))
    mine = engine.coordinator.begin("UPSERT")
    other.upsert(rows(("a", 8, 8, "1")))
    done = engine.upsert_in(mine, rows(("a", 9, 9, "1")))
    assert done.files == 0 and content(engine)[0] == ("a", 1, 10, "1")


def test_a_newer_row_of_a_bucket_has_been_read() -> None:
    storage = new(INDEX)
    test_the_rows_that_were_newer_have_been_read(storage, filled(storage), "the key")
