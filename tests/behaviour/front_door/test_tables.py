"""`lakelock.create` and `lakelock.open`: what a user of Python without Spark does with a table."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.servers import S3_OPTIONS
from tests.sizes import but_in_ci

import lakelock
from lakelock import (
    ConflictError,
    DuplicateKeyError,
    InputError,
    SchemaError,
    SettingsError,
    TableError,
    TransactionStateError,
)

GOODS = "id bigint, name string, price decimal(10, 2), day date"
QUICK = {"retry.first_wait_s": 0.01, "retry.longest_wait_s": 0.1, "lock.poll_s": 0.02}
TEA = {"id": 1, "name": "tea", "price": Decimal("2.50"), "day": date(2026, 11, 20)}
JAM = {"id": 2, "name": "jam", "price": None, "day": date(2026, 11, 21)}

Making = Callable[..., lakelock.Table]


@pytest.fixture(params=but_in_ci(["local", "s3"], ["local", "s3"]))
def making(request: pytest.FixtureRequest, tmp_path: Path) -> Making:
    """Makes tables of one folder, or of one bucket."""
    root, settings = str(tmp_path), dict[str, object](QUICK)
    if request.param == "s3":
        endpoint = request.getfixturevalue("s3_endpoint")
        root = f"s3://lake/{tmp_path.name}"
        settings |= {f"storage.{name}": value for name, value in {**S3_OPTIONS, "endpoint": endpoint}.items()}

    def make(name: str = "goods", **how: Any) -> lakelock.Table:
        given = {"schema": GOODS, "key": "id", "partition_by": "day", "settings": settings, **how}
        return lakelock.create(f"{root}/{name}", **given)

    return make


@pytest.fixture
def goods(tmp_path: Path) -> lakelock.Table:
    table = lakelock.create(tmp_path / "goods", schema=GOODS, key="id", partition_by="day", settings=QUICK)
    table.insert([TEA, JAM])
    return table


def rows(table: lakelock.Table, *where: str) -> list[dict[str, object]]:
    return sorted(table.read(*where).to_pylist(), key=lambda row: row["id"])


def test_rows_are_written_changed_and_read_on_a_disk_and_on_s3(making: Making) -> None:
    with making() as table:
        first = table.insert([TEA, JAM])
        assert (first.operation, first.rows_inserted) == ("INSERT", 2)
        changed = table.upsert([{**TEA, "name": "green tea"}, {**TEA, "id": 3}])
        assert (changed.rows_updated, changed.rows_inserted) == (1, 1)
        assert table.update({"price": "price + 1", "name": "'mint ' || name"}, "id = 3").rows_updated == 1
        assert table.delete("day = '2026-11-21'").rows_deleted == 1
        assert rows(table) == [{**TEA, "name": "green tea"}, {**TEA, "id": 3, "name": "mint tea", "price": Decimal("3.50")}]
        assert sorted(table.read(as_of=first.instant).column("name").to_pylist()) == ["jam", "tea"]
        assert [entry.operation for entry in table.history()] == ["DELETE", "UPDATE", "UPSERT", "INSERT"]
        assert table.delete().rows_deleted == 2
        assert table.read().num_rows == 0


def test_a_transaction_over_two_tables_is_in_both_or_in_none(making: Making) -> None:
    orders, stock = making("orders"), making("stock")
    stock.insert([TEA])
    with lakelock.transaction(orders, stock) as tx:
        tx[orders].insert(tx[stock].read("id = 1"))
        tx[stock].delete("id = 1")
        tx[stock].upsert([JAM])
        tx[stock].update({"name": "'marmalade'"}, "id = 2")
    assert [result.rows_inserted for result in tx.results] == [1, 1]
    assert (rows(orders), rows(stock)) == ([TEA], [{**JAM, "name": "marmalade"}])
    with pytest.raises(ZeroDivisionError), lakelock.transaction(orders, stock) as tx:  # noqa: PT012
        tx[orders].delete()
        tx[stock].insert([TEA])
        _ = 1 / 0
    assert (rows(orders), rows(stock)) == ([TEA], [{**JAM, "name": "marmalade"}])


@pytest.mark.parametrize(
    "given",
    [
        [TEA, JAM],
        pa.Table.from_pylist([TEA, JAM]),
        pa.RecordBatch.from_pylist([TEA, JAM]),
        pa.Table.from_pylist([TEA, JAM]).to_reader(),
        pd.DataFrame([TEA, JAM]),
        (TEA, JAM),
    ],
    ids=["dicts", "table", "batch", "reader", "pandas", "tuple"],
)
def test_rows_are_given_in_whatever_form_the_caller_has_them(tmp_path: Path, given: object) -> None:
    table = lakelock.create(tmp_path / "t", schema=GOODS, key="id", partition_by="day")
    assert table.upsert(given).rows_inserted == 2
    assert rows(table) == [TEA, JAM]


def test_anything_that_arrow_can_import_is_rows(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    table = lakelock.create(tmp_path / "t", schema="id int, name string", key="id")
    table.upsert(duckdb.sql("select 1::int as id, 'tea' as name"))
    assert table.read().to_pylist() == [{"id": 1, "name": "tea"}]


def test_a_read_gives_the_columns_and_rows_that_it_names(goods: lakelock.Table) -> None:
    assert goods.read("id = 1", columns=["NAME"]).to_pydict() == {"name": ["tea"]}
    assert goods.read(pc.field("price").is_null()).column("id").to_pylist() == [2]
    assert goods.read(partition="day=2026-11-20", columns=["price", "id"]).to_pylist() == [{"price": Decimal("2.50"), "id": 1}]
    assert goods.read("name = 'nothing'").schema == goods.schema


def test_columns_that_a_condition_needs_are_read_and_not_shown(goods: lakelock.Table) -> None:
    assert goods.read("price > 2", columns=["name"]).to_pydict() == {"name": ["tea"]}


def test_a_read_by_batches_opens_files_as_they_are_needed(goods: lakelock.Table, tmp_path: Path) -> None:
    reader = goods.read_batches()
    assert reader.schema == goods.schema
    assert reader.read_next_batch().num_rows == 1
    for file in (tmp_path / "goods").rglob("*.parquet"):
        file.unlink()
    with pytest.raises(lakelock.StorageError):
        reader.read_all()


def test_a_read_skips_files_that_its_condition_rules_out(goods: lakelock.Table, tmp_path: Path) -> None:
    for file in (tmp_path / "goods").glob("day=2026-11-21/*.parquet"):
        file.unlink()
    assert goods.read("day = '2026-11-20'").num_rows == 1
    assert goods.read("id < 2").num_rows == 1


def test_a_moment_is_an_instant_a_time_or_a_datetime(goods: lakelock.Table) -> None:
    before = datetime.now(timezone.utc)
    goods.delete()
    after = before + timedelta(milliseconds=1)
    assert goods.read(as_of=goods.history()[-1].instant).num_rows == 2
    assert goods.read(as_of=before).num_rows == goods.read(as_of=before.strftime("%Y-%m-%d %H:%M:%S.%f")).num_rows == 2
    assert goods.read().num_rows == 0 and after > before


def test_changes_tell_what_each_commit_did(goods: lakelock.Table) -> None:
    first = goods.history()[0]
    goods.update({"name": "'green tea'"}, "id = 1")
    seen = goods.changes(first.completion).select(["id", "name", "_change_type"]).to_pylist()
    assert [(row["name"], row["_change_type"]) for row in seen] == [
        ("tea", "update_preimage"), ("green tea", "update_postimage"),
    ]  # fmt: skip
    assert goods.changes().num_rows == 4
    assert goods.changes(feed="net").num_rows == 2


def test_a_write_of_an_application_is_applied_once(goods: lakelock.Table) -> None:
    for _ in range(2):
        done = goods.insert([{**TEA, "id": 7}], txn_app_id="nightly", txn_version=3, tag="backfill")
    assert done.already_applied and goods.read("id = 7").num_rows == 1
    assert goods.history()[0].tag == "backfill"
    calls: list[int] = []
    again = goods.run(lambda tx: calls.append(1), txn_app_id="nightly", txn_version=3)
    assert (again.already_applied, again.value, calls) == (True, None, [])


def test_a_function_that_loses_a_conflict_is_called_again_with_what_is_there_then(goods: lakelock.Table) -> None:
    other, calls = lakelock.open(goods.path, settings=QUICK), list[str]()

    def raise_price(tx: lakelock.TableTransaction) -> Decimal:
        price: Decimal = tx.read("id = 1", columns=["price"]).column("price")[0].as_py()
        if not calls:
            faster = threading.Thread(target=other.update, args=({"price": Decimal("10.00")}, "id = 1"))
            faster.start()
            faster.join()
        calls.append(tx.instant)
        tx.update({"price": price + 1}, "id = 1")
        tx.insert([{**TEA, "id": 5}])
        return price

    done = goods.run(raise_price, tag="raise")
    assert (done.value, done.attempts, len(calls)) == (Decimal("10.00"), 2, 2)
    assert (done.rows_updated, done.rows_inserted) == (1, 1)
    assert goods.read("id = 1").column("price").to_pylist() == [Decimal("11.00")]
    assert goods.history()[0].tag == "raise"


def test_an_error_of_the_function_rolls_back_and_passes_through(goods: lakelock.Table) -> None:
    def fails(tx: lakelock.TableTransaction) -> None:
        tx.delete()
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        goods.run(fails)
    assert rows(goods) == [TEA, JAM]


def test_a_block_that_loses_a_conflict_is_rejected_whole(goods: lakelock.Table) -> None:
    other = lakelock.open(goods.path, settings=QUICK)
    with pytest.raises(ConflictError) as caught, goods.transaction() as tx:  # noqa: PT012
        tx.read("id = 1")
        other.update({"name": "'theirs'"}, "id = 1")
        tx.insert([{**TEA, "id": 9}])
    assert caught.value.conflict.other.operation == "UPDATE"
    assert [row["name"] for row in rows(goods)] == ["theirs", "jam"]


def test_writes_of_a_block_see_those_before_them(goods: lakelock.Table) -> None:
    with goods.transaction() as tx:
        tx.upsert([{**TEA, "id": 4}])
        tx.update({"name": "'four'"}, "id = 4")
        tx.delete(pc.field("id") == 2)
        assert tx.read().num_rows == 2
    assert [row["name"] for row in rows(goods)] == ["tea", "four"]


def test_an_update_takes_texts_expressions_and_values(goods: lakelock.Table) -> None:
    goods.update({"price": pc.field("id"), "NAME": None})
    assert [(row["price"], row["name"]) for row in rows(goods)] == [(Decimal("1.00"), None), (Decimal("2.00"), None)]
    goods.update({"price": "price * 1.005", "name": "'x'"}, "id = 1")
    assert rows(goods)[0]["price"] == Decimal("1.01"), "rounded as SQL rounds"


def test_an_update_changes_rows_of_tables_without_a_key_and_whatever_the_order_says(tmp_path: Path) -> None:
    events = lakelock.create(tmp_path / "events", schema="at timestamp, v int")
    events.insert([{"at": datetime(2026, 1, 1, tzinfo=timezone.utc), "v": v} for v in range(100)])
    assert events.update({"v": "v + 1000"}, "v >= 90").rows_updated == 10
    assert sorted(events.read(columns=["v"]).column("v").to_pylist()) == [*range(90), *range(1090, 1100)]
    ordered = lakelock.create(tmp_path / "ordered", schema="id int, v int", key="id", order_by="v")
    ordered.insert([{"id": 1, "v": 5}])
    ordered.update({"v": 1})
    assert ordered.read().to_pylist() == [{"id": 1, "v": 1}]


WIDE = (
    "id bigint, n int, place struct<street: string, zip: int>, tags array<struct<a: int>>, local timestamp_ntz, at timestamp, "
    "day date, days array<date>"
)
NOON = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"n": 1.5}, "n: 1.5 does not fit int32"),
        ({"n": Decimal("2.5")}, "n: Decimal('2.5') does not fit int32"),
        ({"n": float("nan")}, "n: nan does not fit int32"),
        ({"place": {"street": "Allee", "zip": 1.5}}, "place: 1.5 does not fit int32"),
        ({"place": {"street": "Allee"}}, "place.zip"),
        ({"place": {"street": "Allee", "zip": 1, "town": "x"}}, "place.town: not a field of the table's column"),
        ({"tags": [{"a": 1, "b": 2}]}, "tags[].b: not a field of the table's column"),
        ({"tags": [{"a": 1}, {"a": 0.5}]}, "tags: 0.5 does not fit int32"),
        ({"local": NOON}, "local: datetime.datetime(2026, 1, 1, 12, 0"),
        ({"day": NOON.replace(tzinfo=None)}, "day: datetime.datetime(2026, 1, 1, 12, 0) does not fit date32"),
        ({"day": NOON.replace(hour=0)}, "day: datetime.datetime(2026, 1, 1, 0, 0, tzinfo"),
        ({"day": pd.NaT}, "day: NaT does not fit date32"),
        ({"days": [NOON.date(), NOON.replace(tzinfo=None)]}, "days: datetime.datetime(2026, 1, 1, 12, 0) does not fit date32"),
        ({"at": pd.Timestamp("2026-01-01 12:00:00.000000001", tz="UTC")}, "at: Timestamp('2026-01-01 12:00:00.000000001+0000'"),
    ],
)
def test_a_dict_is_refused_where_the_table_would_not_keep_what_it_holds(
    tmp_path: Path, row: dict[str, object], says: str
) -> None:  # fmt: skip
    table = lakelock.create(tmp_path / "t", schema=WIDE, key="id", settings=QUICK)
    whole = {"id": 1, "n": 1, "place": {"zip": 5, "street": "Ring"}, "tags": [{"a": 1}, {}], "local": None, "at": NOON}
    whole |= {"day": datetime(2026, 1, 1), "days": []}
    table.upsert([whole])
    stored = rows(table)
    kept = {
        **whole,
        "place": {"street": "Ring", "zip": 5},
        "tags": [{"a": 1}, {"a": None}],
        "at": NOON,
        "day": date(2026, 1, 1),
    }
    assert stored == [kept]
    with pytest.raises(SchemaError, match=re.escape(says)):
        table.upsert([{**whole, **row}])
    with pytest.raises(SchemaError, match=says.split(".")[0].split(":")[0].split("[")[0]):
        table.update(row)
    assert rows(table) == stored


def test_a_partial_update_by_dicts_keeps_the_fields_that_they_lack(tmp_path: Path) -> None:
    table = lakelock.create(tmp_path / "t", schema=WIDE, key="id", settings=QUICK)
    table.insert([{"id": 1, "n": 1.0, "place": {"street": "Ring", "zip": 5}}, {"id": 2, "n": 2, "place": None}])
    table.upsert([{"id": 1, "place": {"STREET": "Allee"}}], missing_columns="keep")
    assert [(row["n"], row["place"]) for row in rows(table)] == [(1, {"street": "Allee", "zip": 5}), (2, None)]
    with pytest.raises(SchemaError, match="some structs have the field '.*', and others have not"):
        table.upsert([{"id": 1, "place": {"street": "x"}}, {"id": 2, "place": {"zip": 1}}], missing_columns="keep")


def test_a_table_is_made_once_and_opened_if_it_is_the_same(tmp_path: Path) -> None:
    made = lakelock.create(tmp_path / "t", schema=pa.schema([("id", pa.int64())]), key="id")
    assert lakelock.exists(tmp_path / "t") and not lakelock.exists(tmp_path / "u")
    assert (made.key, made.partition_by, repr(made)) == (("id",), (), f"Table('file://{tmp_path}/t')")
    again = lakelock.create(tmp_path / "t", schema="id bigint", key="id", if_not_exists=True)
    assert again.schema == made.schema
    with pytest.raises(TableError, match="is a table already") as caught:
        lakelock.create(tmp_path / "t", schema="id bigint", key="id")
    assert "lakelock.open(path)" in caught.value.hint
    with pytest.raises(TableError, match="key: none was given"):
        lakelock.create(tmp_path / "t", schema="id bigint", if_not_exists=True)


def test_a_schema_in_a_text_has_the_types_that_spark_means(tmp_path: Path) -> None:
    text = (
        "a boolean, b int, c long, d float, e double, f decimal(9,3), g string, h binary, i date, j timestamp, "
        "k timestamp_ntz, l array<int>, m map<string, double>, n struct<`x`: int, z: array<struct<q: string>>>"
    )
    kinds = [str(field.type) for field in lakelock.create(tmp_path / "t", schema=text).schema]
    assert kinds[:11] == [
        "bool", "int32", "int64", "float", "double", "decimal128(9, 3)", "string", "binary", "date32[day]",
        "timestamp[us, tz=UTC]", "timestamp[us]",
    ]  # fmt: skip
    assert kinds[13].startswith("struct<x: int32, z: list<")


def test_settings_come_from_the_call_and_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text('[concurrency]\nmode = "SINGLE_WRITER"\n')
    seen: list[Any] = []
    table = lakelock.create(
        tmp_path / "t", schema="id int", config=tmp_path / "settings.toml", application="job 7", listeners=[seen.append]
    )
    table.insert([{"id": 1}])
    assert "job 7" in table.history()[0].writer
    assert seen
    with pytest.raises(SettingsError, match=re.escape("lock.wait_s")):
        lakelock.open(tmp_path / "t", settings={"lock.wait": 5})


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda t: t.insert(5), InputError, "rows are given as int"),
        (lambda t: t.insert({"id": 1}), InputError, "rows are given as dict"),
        (lambda t: t.insert([TEA, {"id": 1}]), InputError, "row 1 has other columns than row 0: day, name, price"),
        (lambda t: t.insert([{**TEA, "id": "x"}]), SchemaError, "id: "),
        (lambda t: t.upsert([TEA, TEA]), DuplicateKeyError, "1"),
        (lambda t: t.upsert([{"id": 1, "day": TEA["day"]}]), SchemaError, "name"),
        (lambda t: t.delete(None), InputError, "delete was given None"),
        (lambda t: t.delete(""), InputError, "is an empty text"),
        (lambda t: t.delete([{"id": 1}]), SchemaError, "add it to the rows, which have id"),
        (lambda t: t.upsert([{**TEA, "price": "x"}]), SchemaError, "give values of decimal128(10, 2)"),
        (lambda t: t.read("nme = 'x'"), InputError, "has no column 'nme'"),
        (lambda t: t.read("name = 1"), InputError, "compares name"),
        (lambda t: t.read(where=5), InputError, "where is 5"),
        (lambda t: t.read(columns=["nme"]), InputError, "has no column 'nme'"),
        (lambda t: t.read(columns=[]), InputError, "columns is"),
        (lambda t: t.read(version=3), InputError, "no argument 'version'"),
        (lambda t: t.read(as_of=t.history()[0]), InputError, "here perhaps as_of='2"),
        (lambda t: t.read("name ilike 'T%'"), InputError, "cannot be read at \"ilike 'T%'\""),
        (lambda t: t.read("id = (select max(id) from t)"), InputError, "cannot be read at 'select max ( id'"),
        (lambda t: t.read(as_of=0), InputError, "as_of is 0"),
        (lambda t: t.read(as_of="soon"), InputError, "neither an instant time"),
        (lambda t: lakelock.open(t.path, options={"lock.wait_s": 5}), InputError, "settings={"),
        (lambda t: t.read(as_of="2999-01-01"), InputError, "as_of is 29990101000000000, which is still to come"),
        (lambda t: t.changes("2999-01-01"), InputError, "since is 29990101000000000, which is still to come"),
        (lambda t: t.changes("2020-01-02", until="2020-01-01"), InputError, "is before since"),
        (lambda t: t.update({}), InputError, "set is {}"),
        (lambda t: t.update({"id": 3}), SchemaError, "id is a record key column"),
        (lambda t: t.update({"day": "null"}), SchemaError, "day is a partition column"),
        (lambda t: t.update({"name": "open"}), InputError, "has no column 'open'"),
        (lambda t: t.update({"name": "id"}), SchemaError, "does not fit"),
        (lambda t: t.update({"price": 1.5}), SchemaError, "cannot be the value of price"),
        (lambda t: t.update({"price": "id * 100000000"}), SchemaError, "does not fit"),
        (lambda t: t.update({"price": "price / 0"}), InputError, "cannot be computed"),
        (lambda t: t.insert([TEA], txn_app_id="a"), InputError, "only both together"),
        (lambda t: t.insert([TEA], partition="day=2026-11-21"), InputError, "has rows for day=2026-11-20"),
        (lambda t: t.run(5), InputError, "5"),
        (lambda t: lakelock.transaction(), InputError, "needs tables"),
        (lambda t: lakelock.transaction(t, t.path), InputError, "is not a table"),
        (lambda t: lakelock.transaction(t)[t], TransactionStateError, "has not begun"),
        (lambda t: t.transaction().insert([TEA]), TransactionStateError, "with table.transaction() as tx:"),
        (lambda t: lakelock.open(t.path + "x"), TableError, "not a Hudi table"),
        (lambda t: lakelock.create(t.path + "x", schema="id itn"), InputError, "cannot be read at 'itn'"),
        (lambda t: lakelock.create(t.path + "x", schema="id int not null"), InputError, "a pyarrow.Schema says more"),
        (lambda t: lakelock.create(t.path + "x", schema=""), InputError, "give the columns"),
        (lambda t: lakelock.create(t.path + "x", schema=5), InputError, "schema is of the type int"),
        (lambda t: lakelock.create(t.path + "x", schema="id int", key=[]), InputError, "key is an empty list"),
        (lambda t: lakelock.create(t.path + "x", schema="id int", keys="id"), InputError, "no argument 'keys'"),
    ],
)
def test_a_wrong_call_is_an_error_before_any_work_that_says_what_to_type(
    goods: lakelock.Table, call: Callable[[lakelock.Table], object], error: type[Exception], says: str
) -> None:
    before = rows(goods)
    with pytest.raises(error, match=re.escape(says)) as caught:
        call(goods)
    assert isinstance(caught.value, lakelock.LakelockError)
    assert caught.value.hint or error is DuplicateKeyError
    assert rows(goods) == before and len(goods.history()) == 1


def test_names_of_other_libraries_say_what_to_type_and_that_works(goods: lakelock.Table) -> None:
    for name, rows in {"to_arrow": 2, "to_pandas": 2, "count": 2, "num_rows": 2, "scan": 2, "df": 2, "columns": 4}.items():
        with pytest.raises(AttributeError, match="next: ") as caught:
            getattr(goods, name)
        typed = str(caught.value).partition("next: ")[2]
        found = eval(typed, {"table": goods})
        assert (found if isinstance(found, int) else len(found)) == rows, name
    with pytest.raises(AttributeError, match=r"Table has no 'vacuum'; next: nothing: .*lakelock clean PATH"):
        goods.vacuum()  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"^Table has no 'frobnicate'$"):
        goods.frobnicate()  # type: ignore[attr-defined]
    assert not hasattr(goods, "to_pandas")
