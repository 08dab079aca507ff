"""Writes and reads of the Arrow engine against a plain model, and as the independent reader hudi-rs sees the table."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.api import ArrowEngine, BaseFile, LocalStorage, MemoryStorage
from tests.behaviour.tables import QUICK, SCHEMA, leftovers, new_table, writer
from tests.faulty_storage import CountingStorage

from lakelock.errors import ConcurrentAppendException, ConflictError, DuplicateKeyError, InputError, SchemaError
from lakelock.settings import ConcurrencySettings, Settings, WriteSettings
from lakelock.table.properties import COPY_ON_WRITE, MERGE_ON_READ
from lakelock.table.rewriting import Kernels


def rows(*values: tuple[str, int, str]) -> pa.Table:
    return pa.table([list(column) for column in zip(*values, strict=True)], schema=SCHEMA)


def content(table: pa.Table) -> list[tuple[str, int, str]]:
    return sorted(zip(*(table.column(n).to_pylist() for n in SCHEMA.names), strict=True))


@pytest.fixture(params=["memory", "local", "merge-on-read"])
def storage(request, tmp_path):
    made = LocalStorage(str(tmp_path / "t")) if request.param == "local" else MemoryStorage()
    new_table(made, table_type=MERGE_ON_READ if request.param == "merge-on-read" else COPY_ON_WRITE)
    return made


@pytest.fixture
def engine(storage):
    return ArrowEngine(writer(storage))


def test_rows_are_inserted_updated_deleted_and_overwritten(engine, storage):
    first = engine.insert(rows(("a", 1, "1"), ("b", 2, "1"), ("c", 3, "2")))
    changed = engine.upsert(rows(("a", 10, "1"), ("d", 4, "3")))
    assert (changed.rows_updated, changed.rows_inserted) == (1, 1)
    assert content(engine.read()) == [("a", 10, "1"), ("b", 2, "1"), ("c", 3, "2"), ("d", 4, "3")]
    gone = engine.delete(pc.field("v") >= 4)
    assert gone.rows_deleted == 2
    engine.delete(rows(("c", 0, "2"), ("x", 0, "2")))
    assert content(engine.read()) == [("b", 2, "1")]
    engine.overwrite_partitions(rows(("z", 9, "1")))
    assert content(engine.read()) == [("z", 9, "1")]
    assert content(engine.read(as_of=first.instant)) == [("a", 1, "1"), ("b", 2, "1"), ("c", 3, "2")]
    assert leftovers(storage) == []


def test_files_of_one_insert_are_written_at_once_as_full_as_one_after_the_other(storage):
    engine = ArrowEngine(writer(storage, Settings(write=WriteSettings(target_file_rows=10))))
    given = [*((f"k{number:02}", number, "1") for number in range(45)), ("k45", 45, "2")]
    made = engine.insert(rows(*given))
    found = [BaseFile(storage.open_input(file.key), file.key).rows for file in writer(storage).snapshot().files]
    assert (made.files, sorted(found)) == (6, [1, 5, 10, 10, 10, 10])
    assert content(engine.read()) == given
    assert engine.upsert(rows(*((name, value + 1, part) for name, value, part in given))).rows_updated == 46
    assert leftovers(storage) == []


def test_two_overwrites_at_once_of_partitions_of_their_own_both_commit_at_the_first_attempt(engine, storage):
    engine.insert(rows(("a", 1, "1"), ("b", 2, "2")))
    done = []

    class Meanwhile(Kernels):
        def new_file(self, *args):
            # The other one begins and commits while this one writes its file.
            done.append(ArrowEngine(writer(storage)).overwrite_partitions(rows(("y", 8, "2"))))
            return super().new_file(*args)

    mine = ArrowEngine(writer(storage), Meanwhile()).overwrite_partitions(rows(("z", 9, "1")))
    assert (mine.attempts, [other.attempts for other in done]) == (1, [1])
    assert content(engine.read()) == [("y", 8, "2"), ("z", 9, "1")]
    assert leftovers(storage) == []


def test_hudi_rs_reads_what_was_written(tmp_path):
    hudi = pytest.importorskip("hudi")
    storage = LocalStorage(str(tmp_path / "t"))
    new_table(storage)
    engine = ArrowEngine(writer(storage))
    engine.insert(rows(("a", 1, "1"), ("b", 2, "1"), ("c", 3, "2")))
    engine.upsert(rows(("a", 10, "1"), ("d", 4, "3")))
    engine.delete(pc.field("id") == "b")
    engine.overwrite_partitions(rows(("e", 5, "2")))
    seen = pa.Table.from_batches(hudi.HudiTable(str(tmp_path / "t")).read())
    assert content(seen.select(SCHEMA.names).cast(SCHEMA)) == content(engine.read())


def test_a_key_that_comes_twice_is_an_error_that_shows_it(engine):
    with pytest.raises(DuplicateKeyError, match="a"):
        engine.upsert(rows(("a", 1, "1"), ("a", 2, "1")))
    assert content(engine.read()) == []


def test_two_upserts_of_one_new_key_leave_it_once_and_the_later_updates(storage):
    one, two = ArrowEngine(writer(storage)), ArrowEngine(writer(storage))
    with writer(storage).begin("UPSERT") as late:
        other = ArrowEngine(writer(storage))
        other.upsert(rows(("k", 1, "1")))
        with pytest.raises(ConflictError) as caught:
            two.upsert_in(late, rows(("k", 2, "1")))
    assert caught.value.conflict.overlap == ("month=1: k",)
    two.upsert(rows(("k", 2, "1")))
    assert content(one.read()) == [("k", 2, "1")]


@pytest.mark.parametrize("appended", [5, 1])
def test_an_erasure_beside_an_append_looks_at_the_appended_rows(storage, appended):
    engine = ArrowEngine(writer(storage))
    engine.insert(rows(("a", 5, "1"), ("b", 1, "1")))
    with writer(storage).begin("DELETE") as tx:
        engine.insert(rows(("c", appended, "2")))
        if appended == 5:
            with pytest.raises(ConflictError):
                engine.delete_where_in(tx, pc.field("v") == 5)
        else:
            engine.delete_where_in(tx, pc.field("v") == 5)
            assert content(engine.read()) == [("b", 1, "1"), ("c", 1, "2")]


def test_a_transfer_that_read_what_another_changed_is_rejected_whole(storage):
    engine = ArrowEngine(writer(storage))
    engine.insert(rows(("a", 100, "1"), ("b", 100, "2")))
    with writer(storage).begin("UPSERT") as tx:
        seen = content(engine.read_in(tx))
        ArrowEngine(writer(storage)).upsert(rows(("a", 50, "1")))
        with pytest.raises(ConflictError):
            engine.upsert_in(tx, rows(("b", seen[0][1] + seen[1][1], "2")))
    assert content(engine.read()) == [("a", 50, "1"), ("b", 100, "2")]


def at_random():
    return pc.Expression._call("random", [], pc.RandomOptions(initializer="system")) < 0.5


def test_a_condition_that_draws_lots_is_refused_before_any_work(engine, storage):
    engine.insert(rows(("a", 1, "1"), ("b", 2, "1")))
    before = sorted(listed.key for listed in storage.list(""))
    with pytest.raises(InputError, match=r"random\(.* may give a different answer") as caught:
        engine.delete((pc.field("v") > 0) & at_random())
    assert "delete them by key" in caught.value.hint
    assert sorted(listed.key for listed in storage.list("")) == before
    with engine.coordinator.begin("UPSERT") as tx, pytest.raises(InputError, match="may give a different answer"):
        engine.read_in(tx, at_random())
    assert leftovers(storage) == []


@pytest.mark.parametrize("name", ["random({x})", 'a "random({x})" b', "random()"])
def test_a_value_that_reads_like_a_lot_is_none(engine, name):
    engine.insert(rows((name, 1, "1"), ("b", 2, "1")))
    assert engine.delete(pc.field("id") == name).rows_deleted == 1


def test_keys_of_a_delete_are_brought_into_the_tables_types() -> None:
    storage, schema = MemoryStorage(), pa.schema([("id", pa.decimal128(10, 2)), ("v", pa.int64())])
    new_table(storage, schema, partition_by=())
    engine = ArrowEngine(writer(storage))
    engine.insert(pa.table([[Decimal("1.50"), Decimal(2)], [1, 2]], schema=schema))
    assert engine.delete(pa.table({"ID": [Decimal("1.5")]})).rows_deleted == 1
    with pytest.raises(SchemaError, match="id"):
        engine.delete(pa.table({"id": ["2"]}))
    with pytest.raises(SchemaError, match="'id' is missing"):
        engine.delete(pa.table({"v": [2]}))
    assert engine.read().column("v").to_pylist() == [2]


@pytest.mark.parametrize("write", ["insert", "upsert", "overwrite_partitions"])
def test_a_row_that_is_a_deletion_to_hudis_writers_is_refused(write: str) -> None:
    storage = MemoryStorage()
    schema = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))
    new_table(storage, schema)
    engine = ArrowEngine(writer(storage))
    engine.insert(pa.table([["a", "b"], [1, 2], ["1", "1"], [False, None]], schema=schema))
    with pytest.raises(SchemaError, match="Hudi's writers delete") as refused:
        getattr(engine, write)(pa.table([["a"], [1], ["1"], [True]], schema=schema))
    assert "table.delete" in refused.value.hint
    assert engine.read().num_rows == 2


TYPED = pa.schema(
    [
        ("id", pa.string()), ("month", pa.string()), ("n", pa.int64()), ("f", pa.float64()), ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")), ("price", pa.decimal128(10, 2)), ("text", pa.string()), ("yes", pa.bool_()),
    ]
)  # fmt: skip
NOON = datetime(2026, 11, 29, 12, tzinfo=timezone.utc)


def typed_rows(number: int) -> pa.Table:
    """Three rows of one file, of which one has nulls; the float is NaN, -0.0 or 0.0."""
    values = {
        "id": [f"k{number}-{row}" for row in range(3)],
        "month": [str(number % 2) if number % 5 else None] * 3,
        "n": [number * 10, None, number * 10 + 5],
        "f": [float("nan") if number % 3 == 0 else -0.0, None, 0.0],
        "day": [date(2026, 1, 1 + number), None, date(2026, 1, 2 + number)],
        "at": [NOON + timedelta(hours=number), None, NOON + timedelta(hours=number + 1)],
        "price": [Decimal(number), None, Decimal(number) + Decimal("0.5")],
        "text": [f"{'x' * 40}{number}", None, f"y{number}"],
        "yes": [number % 2 == 0, None, number % 2 == 0],
    }
    return pa.table(values, schema=TYPED)


F = pc.field
CONDITIONS = [
    F("n") == 25, F("n") != 25, F("n") > 55.5, ~(F("n") > 20), F("n").is_null(), F("n").isin([30, 35]), F("n").isin([30, None]),
    F("month") == "1", F("month") != "1", F("month").is_null(), (F("month") == "0") & (F("n") >= 60),
    F("month").isin(["1", "7"]), F("f") == 0.0, F("f") == -0.0, pc.is_nan(F("f")), ~(F("f") < 0.0),
    F("day") < date(2026, 1, 3), F("day") == date(2026, 1, 7), F("at") >= NOON + timedelta(hours=7), F("at") == NOON,
    F("price") == Decimal("3.50"), F("price") > Decimal("7"), F("text") == "x" * 40 + "3", F("text") > "y6", F("text") < "x",
    pc.starts_with(F("text"), "x"), F("yes"), ~F("yes"), F("n") + 1 > 60, F("id") == "k4-2",
    (F("n") < 15) | (F("text") == "y7"), pc.if_else(F("n") > 40, F("yes"), F("month") == "1"), pc.scalar(True),
    pc.scalar(False), F("n") > F("price"),
]  # fmt: skip

IS_NAN, NAN = pc.is_nan(F("f")), float("nan")
FOUND, NEVER = F("n").is_valid(), pc.scalar(False)
OF_NAN = {
    str(condition): (condition, meaning)
    for condition, meaning in [
        (F("f") >= 0.0, F("f").is_valid()), (F("f") > 1.0, IS_NAN), (F("f") == NAN, IS_NAN), (F("f") != NAN, ~IS_NAN),
        (F("f").isin([NAN, -0.0]), F("f").is_valid()), (F("n") < NAN, FOUND), (F("n") >= NAN, NEVER), (~(F("n") >= NAN), FOUND),
        (F("n") != NAN, FOUND), (F("f") > F("n"), IS_NAN & FOUND), (F("f") * 2 == NAN, IS_NAN),
        ((F("n") < NAN) & (F("n") > 55), F("n") > 55), (F("price") <= NAN, F("price").is_valid()),
    ]
}  # fmt: skip
"""Conditions that Arrow and Spark answer differently, and what says the same to both."""


def test_a_read_by_a_condition_finds_what_it_selects_of_all_rows_and_what_it_rules_out_conflicts_with_nobody() -> None:
    storage = MemoryStorage()
    new_table(storage, columns=TYPED)
    settings = replace(QUICK, concurrency=ConcurrencySettings(profile="delta"))
    engine = ArrowEngine(writer(storage, settings))
    for number in range(8):
        engine.insert(typed_rows(number))
    rows = engine.read()
    for condition, meaning in [*zip(CONDITIONS, CONDITIONS, strict=True), *OF_NAN.values()]:
        wanted = sorted(rows.filter(meaning).column("id").to_pylist())
        with engine.coordinator.begin("UPSERT") as tx:
            assert sorted(engine.read_in(tx, condition).column("id").to_pylist()) == wanted, condition
        copy = MemoryStorage()
        new_table(copy, columns=TYPED)
        other = ArrowEngine(writer(copy, settings))
        other.insert(rows.slice(0, 12))
        other.insert(rows.slice(12))
        assert other.delete_where(condition).rows_deleted == len(wanted), condition


def test_a_delete_by_condition_opens_no_file_that_its_partition_or_a_range_rules_out() -> None:
    storage = MemoryStorage()
    new_table(storage)
    ArrowEngine(writer(storage)).insert(rows(*((f"k{month}", month, str(month)) for month in range(50))))
    for condition, opened in (((F("month") == "7") & (F("v") == 7), 1), (F("v") >= 48, 2), (F("id") == "k3", 1)):
        counting = CountingStorage(storage)
        with writer(counting) as coordinator:
            deleted = ArrowEngine(coordinator).delete_where(condition)
        looked_into = {key for op, key in counting.calls if op == "open_input" and key.endswith(".parquet")}
        assert (deleted.rows_deleted, len(looked_into)) == (opened, opened)


def test_an_upsert_opens_only_files_whose_recorded_key_range_may_have_one_of_its_keys() -> None:
    storage = MemoryStorage()
    new_table(storage)
    for number in range(5):
        ArrowEngine(writer(storage)).insert(rows((f"k{number}", number, "1")))
    for key, opened in (("k3", {"k3"}), ("k3", {"k3"}), ("k9", set())):
        counting = CountingStorage(storage)
        with writer(counting) as coordinator:
            done = ArrowEngine(coordinator).upsert(rows((key, 7, "1")))
        looked_into = {name for op, name in counting.calls if op == "open_input" and name.endswith(".parquet")}
        assert (done.rows_updated, len(looked_into)) == (len(opened), len(opened))


@pytest.mark.parametrize(
    ("where", "conflicts"),
    [(F("month") == "1", False), (F("month") == "2", True), (F("v") < 5, False), (F("v") > 5, True), (None, True)],
    ids=str,
)
def test_in_the_profile_delta_only_files_that_may_hold_such_rows_conflict(where, conflicts) -> None:
    storage = MemoryStorage()
    new_table(storage)
    settings = replace(QUICK, concurrency=ConcurrencySettings(profile="delta"))
    engine, other = (ArrowEngine(writer(storage, settings)) for _ in range(2))
    tx = engine.coordinator.begin("UPSERT")
    engine.read_in(tx, where)
    other.insert(rows(("x", 10, "2")))
    if conflicts:
        with pytest.raises(ConcurrentAppendException):
            engine.upsert_in(tx, rows(("y", 1, "3")))
    else:
        engine.upsert_in(tx, rows(("y", 1, "3")))


def test_floating_point_numbers_are_equal_as_in_spark_wherever_they_are() -> None:
    """Both zeros are one number, and NaN is the greatest, in columns of both kinds, in structs, and in isin."""
    storage = MemoryStorage()
    inside = pa.struct([("deep", pa.struct([("z", pa.float64())]))])
    schema = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("y", pa.float32()), ("s", inside)])
    new_table(storage, schema, ())
    engine = ArrowEngine(writer(storage))
    values = [-0.0, 0.0, 1.0, NAN, None]
    nested = [{"deep": {"z": value}} for value in values]
    engine.insert(pa.table([[1, 2, 3, 4, 5], values, values, nested], schema=schema))
    for column in (F("x"), F("y"), F("s", "deep", "z"), pc.struct_field(F("s"), [0, 0]), F("x") + 0, F("y").cast(pa.float64())):
        for zero in (0.0, -0.0):
            for condition, found in (
                (column == zero, [1, 2]), (column.isin([zero, 7.0]), [1, 2]), (column.isin([NAN, zero]), [1, 2, 4]),
                (column > zero, [3, 4]), (column <= zero, [1, 2]), (~(column > 1.0), [1, 2, 3]), (column == NAN, [4]),
                (pc.scalar(zero) < column, [3, 4]), (column >= NAN, [4]), (column > NAN, []), (~(column < NAN), [4]),
                (column == F("y"), [1, 2, 3, 4]), (column > pa.scalar(None, pa.float64()), []),
                (pc.index_in(column, value_set=pa.array([9.0, zero])) == 1, [1, 2]),
            ):  # fmt: skip
                assert engine.read(where=condition).column("id").to_pylist() == found, condition
    assert engine.read(where=F("x").cast(pa.string()) == "-0").column("id").to_pylist() == [1]
    assert engine.delete(F("x").isin([-0.0]) | (F("s", "deep", "z") == NAN)).rows_deleted == 3
    assert engine.read().column("id").to_pylist() == [3, 5]


def test_a_condition_that_names_a_column_by_its_number_is_refused() -> None:
    storage = MemoryStorage()
    new_table(storage)
    with pytest.raises(InputError, match="non-name field_refs") as refused:
        ArrowEngine(writer(storage)).read(where=pc.field(0) == "a")
    assert 'pc.field("id")' in refused.value.hint
