"""Names, types and values that a table cannot keep are refused in words, on a local disk and in an object store.

Whatever is not refused is there afterwards, as it was given, and can be changed and deleted.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.api import ArrowEngine, LocalStorage, Storage, TableProperties, TableSchema, create_table
from tests.behaviour.foreign import Peer
from tests.behaviour.tables import leftovers, writer
from tests.sizes import in_ci

from lakelock.errors import InputError, LakelockError, SchemaError, StorageError
from lakelock.settings import Settings
from lakelock.table.schema import Alteration
from lakelock.testing import ManualRuntime

COLUMNS = pa.schema([("id", pa.int64()), ("p", pa.string())])


@pytest.fixture(params=["local", "s3"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Storage]:
    """Makes storage without a table."""
    if request.param == "s3":
        return request.getfixturevalue("s3_table")  # type: ignore[no-any-return]
    numbers = itertools.count()
    return lambda: LocalStorage(tmp_path / str(next(numbers)))


def engine_of(
    storage: Storage,
    columns: pa.Schema = COLUMNS,
    key: str = "id",
    partition: str = "p",
    order: str | None = None,
    **style: bool,
) -> ArrowEngine:
    schema = TableSchema.from_arrow(columns).to_avro_json("t")
    fields = (partition,) if partition else ()
    properties = TableProperties.new("t", (key,), fields, order, create_schema=schema, **style)  # type: ignore[arg-type]
    create_table(storage, properties, ManualRuntime())
    return ArrowEngine(writer(storage, Settings()))


def rows(*values: tuple[int, str | None]) -> pa.Table:
    return pa.table([[id_ for id_, _ in values], pa.array([p for _, p in values], pa.string())], schema=COLUMNS)


ODD = ["\t", "\n", "\x7f", "\x00", "/", "..", ".", "%41", "x" * 300, "é", "😀", "a", " ", "\\", "#?*", "\u2028"]
PIECES = st.sampled_from(ODD)


@given(st.lists(PIECES, max_size=2).map("".join), st.booleans(), st.booleans())
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example("\t", True, False)
@example("\x7f", False, False)
@example("x" * 300, True, True)
@example("", True, True)
@example("__HIVE_DEFAULT_PARTITION__", True, False)
def test_a_partition_value_is_kept_or_refused_by_name(
    make: Callable[[], Storage], value: str, hive_style: bool, url_encode: bool
) -> None:
    engine = engine_of(make(), hive_style=hive_style, url_encode=url_encode)
    engine.insert(rows((1, "plain"), (2, None)))
    refused: LakelockError | None = None
    try:
        engine.upsert(rows((3, value)))
    except (SchemaError, StorageError) as error:
        refused = error
    if refused is not None:
        assert value[:20] in str(refused) or repr(value[:20])[1:-1] in str(refused)
        assert refused.hint
        assert engine.read().num_rows == 2
        return
    engine.upsert(rows((3, value)))
    assert sorted(engine.read().column("p").to_pylist(), key=str) == sorted(["plain", None, value], key=str)
    assert engine.delete_where(pc.field("p") == value).rows_deleted == 1


@pytest.mark.parametrize("value", ["", "__HIVE_DEFAULT_PARTITION__"])
def test_a_text_that_has_the_folder_of_null_is_refused_by_every_write(storage: LocalStorage, value: str) -> None:
    engine = engine_of(LocalStorage(f"{storage.root}-2"))
    engine.insert(rows((1, None)))
    for write in (engine.insert, engine.upsert, engine.overwrite_partitions, engine.delete_keys):
        with pytest.raises(SchemaError, match=f"the partition column p holds '{value}'"):
            write(rows((1, value)))
    with pytest.raises(InputError, match=f"the partition column p holds '{value}'"):
        engine.insert(rows((1, None)), partition={"p": value})
    assert engine.insert(rows((2, None)), partition="p=__HIVE_DEFAULT_PARTITION__").rows_inserted == 1
    assert engine.read(where=pc.field("p") == value).num_rows == 0
    assert engine.read().column("p").to_pylist() == [None, None]


@pytest.mark.parametrize("value", ["a\tb", "a\x7f"])
def test_a_control_character_is_refused_by_every_write_before_a_file_is_announced(
    make: Callable[[], Storage], value: str
) -> None:
    storage = make()
    engine = engine_of(storage, url_encode=False)
    engine.insert(rows((1, "plain")))
    for write in (engine.insert, engine.upsert, engine.overwrite_partitions, engine.delete_keys):
        with pytest.raises(SchemaError, match="the partition column p holds"):
            write(rows((1, value)))
    assert leftovers(storage) == []
    assert engine_of(make(), url_encode=True).insert(rows((1, value))).rows_inserted == 1


@pytest.mark.parametrize(
    "name", ["_lakelock_file", "_LAKELOCK_x", "_hoodie_operation", "_HOODIE_RECORD_KEY", "a b", "ä", "", "1a"]
)
def test_a_name_that_no_column_can_have_is_refused(storage: LocalStorage, name: str) -> None:
    empty = LocalStorage(f"{storage.root}-2")
    with pytest.raises(SchemaError, match="cannot be"):
        engine_of(empty, pa.schema([("id", pa.int64()), ("p", pa.string()), (name, pa.string())]))
    assert list(empty.list(".hoodie")) == []
    engine = ArrowEngine(writer(storage, Settings()))
    with pytest.raises(SchemaError, match="cannot be"):
        engine.alter(Alteration(add={name: pa.string()}))


@pytest.mark.parametrize("name", ["__row", "__path", "_metadata", "_change_type", "_hoodie_is_deleted", "select", "number"])
def test_any_other_name_is_that_of_a_column_like_any_other(storage: LocalStorage, name: str) -> None:
    columns = pa.schema([("id", pa.int64()), ("p", pa.string()), (name, pa.string())])
    engine = engine_of(LocalStorage(f"{storage.root}-2"), columns)
    engine.upsert(pa.table([[1, 2, 3], ["a", "a", "b"], ["x", "y", "z"]], schema=columns))
    engine.upsert(pa.table([[1], ["a"], ["new"]], schema=columns))
    assert engine.delete(pc.field(name) == "y").rows_deleted == 1
    engine.optimize(pc.field("p") == "a")
    assert sorted(engine.read().column(name).to_pylist()) == ["new", "z"]


NESTED = [pa.list_(pa.int32()), pa.struct([("x", pa.int32())]), pa.map_(pa.string(), pa.int32())]


@pytest.mark.parametrize("role", ["key", "partition", "order"])
@pytest.mark.parametrize("kind", [pa.float32(), pa.float64(), pa.binary(), *NESTED], ids=str)
def test_a_type_that_its_role_cannot_have_is_refused_before_the_table_is_made(
    storage: LocalStorage, role: str, kind: pa.DataType
) -> None:
    empty, columns = LocalStorage(f"{storage.root}-2"), pa.schema([("id", pa.int64()), ("p", pa.string()), ("c", kind)])
    if role == "order" and kind not in NESTED:
        engine_of(empty, columns, **{role: "c"})
        return
    with pytest.raises(SchemaError, match="column c of type .* cannot"):
        engine_of(empty, columns, **{role: "c"})
    assert list(empty.list(".hoodie")) == []


NOT_STORED = [pa.null(), pa.time64("us"), pa.duration("s"), pa.decimal256(50, 2), pa.uint64(), pa.struct([])]


@pytest.mark.parametrize("kind", NOT_STORED, ids=str)
def test_a_type_that_no_column_can_have_is_refused(storage: LocalStorage, kind: pa.DataType) -> None:
    with pytest.raises(SchemaError, match="column c: .* cannot be stored"):
        engine_of(LocalStorage(f"{storage.root}-2"), pa.schema([("id", pa.int64()), ("p", pa.string()), ("c", kind)]))


def test_rows_of_others_whose_keys_read_as_several_are_kept_and_no_write_by_key_takes_one_for_another(
    storage: LocalStorage,
) -> None:
    columns = pa.schema([("a", pa.string()), ("b", pa.string()), ("v", pa.int64())])
    stored = pa.table([["x,b:y", None, "__null__"], ["z", "q", "r"], [1, 2, 3]], schema=columns)
    made = LocalStorage(f"{storage.root}-2")
    properties = TableProperties.new("t", ("a", "b"), create_schema=TableSchema.from_arrow(columns).to_avro_json("t"))
    create_table(made, properties, ManualRuntime())
    Peer(made).insert(stored, "", keys=["a:x,b:y,b:z", "a:__null__,b:q", "a:__null__,b:r"])
    engine = ArrowEngine(writer(made, Settings()))
    assert engine.read().to_pylist() == stored.to_pylist()
    for other in (("x", "y,b:z"), ("x,b:y", "z"), ("__null__", "q")):
        rows = pa.table([[other[0]], [other[1]], [9]], schema=columns)
        for write in (engine.insert, engine.upsert, engine.delete_keys):
            with pytest.raises(SchemaError, match="which would be taken for another key"):
                write(rows)
    assert engine.read().to_pylist() == stored.to_pylist()
    engine.upsert(pa.table([["new"], ["row"], [4]], schema=columns))
    engine.optimize()
    assert engine.delete(pc.field("a") == "x,b:y").rows_deleted == 1
    assert sorted(engine.read().column("v").to_pylist()) == [2, 3, 4]


def test_rows_of_others_with_an_empty_partition_value_are_read_and_deleted(storage: LocalStorage) -> None:
    made = LocalStorage(f"{storage.root}-2")
    engine = engine_of(made)
    Peer(made).insert(rows((1, ""), (2, None)), "p=__HIVE_DEFAULT_PARTITION__")
    engine.upsert(rows((3, None)))
    engine.optimize()
    assert sorted(engine.read(where=pc.field("p") == "").column("id").to_pylist()) == [1]
    assert engine.delete(pc.field("p") == "").rows_deleted == 1
    assert sorted(engine.read().column("id").to_pylist()) == [2, 3]


class TestConditionsAndRows:
    @pytest.fixture
    def engine(self, storage: LocalStorage) -> ArrowEngine:
        made = engine_of(LocalStorage(f"{storage.root}-2"))
        made.insert(rows((1, "a"), (2, "b")))
        return made

    @pytest.mark.parametrize(
        ("condition", "problem"),
        [
            (pc.field("x") == 1, "No match for FieldRef"),
            (pc.field("id") == "a", "no kernel matching input types"),
            (pc.field("id") + 1, "must evaluate to bool"),
            ("id = 1", "of the type str"),
            ([1], "of the type list"),
        ],
    )
    def test_what_is_no_condition_is_refused(self, engine: ArrowEngine, condition: pc.Expression, problem: str) -> None:
        for ask in (engine.delete, lambda c: engine.read(where=c), lambda c: engine.run(lambda tx: engine.read_in(tx, c))):
            with pytest.raises(InputError, match=problem):
                ask(condition)
        of_partitions = "does not choose partitions" if isinstance(condition, pc.Expression) else problem
        with pytest.raises(InputError, match=of_partitions):
            engine.optimize(condition)
        assert engine.read().num_rows == 2

    def test_a_delete_without_a_condition_deletes_nothing(self, engine: ArrowEngine) -> None:
        with pytest.raises(InputError, match="None is of the type NoneType"):
            engine.delete(None)  # type: ignore[arg-type]
        assert engine.read().num_rows == 2

    @pytest.mark.parametrize("given_rows", [[{"id": 1, "p": "a"}], {"id": [1]}, None])
    def test_rows_that_are_no_table_are_refused(self, engine: ArrowEngine, given_rows: object) -> None:
        for write in (engine.insert, engine.upsert, engine.delete_keys, engine.overwrite_partitions):
            with pytest.raises(InputError, match=r"but must be a pyarrow\.Table"):
                write(given_rows)  # type: ignore[arg-type]

    def test_a_condition_cannot_choose_partitions_where_there_are_none(self, storage: LocalStorage) -> None:
        engine = engine_of(LocalStorage(f"{storage.root}-2"), partition="")
        with pytest.raises(InputError, match="the table has no partitions to choose from"):
            engine.optimize(pc.field("id") == 1)


@pytest.mark.parametrize("key", ["a\tb", "a\x7f", *in_ci("a\nb", "\ud800")])
def test_a_key_that_no_store_takes_is_an_error_of_the_storage(make: Callable[[], Storage], key: str) -> None:
    storage = make()
    calls: list[Callable[[], object]] = [
        lambda: storage.get(key), lambda: storage.put(key, b"x"), lambda: storage.put_if_absent(key, b"x"),
        lambda: storage.open_input(key), lambda: list(storage.list(key)), lambda: storage.delete([key]),
    ]  # fmt: skip
    for call in calls:
        with suppress(StorageError):
            call()
