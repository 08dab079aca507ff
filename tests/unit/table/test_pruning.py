"""A file is left out only if none of its rows can satisfy the condition."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timezone
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.api import DataFile, TableProperties

from lakelock.table.commit_metadata import ColumnRange, FileStatistics, Value
from lakelock.table.partitions import PartitionValues, partition_paths
from lakelock.table.pruning import And, Anything, BeginsWith, Comparison, Constant, IsNull, Not, Or, Predicate, Pruning

Row = Mapping[str, Value | None]
NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"


def reader(kind: pa.DataType, *, hive_style: bool = True, url_encode: bool = True) -> PartitionValues:
    return PartitionValues({"p": kind}, hive_style, url_encode)


@pytest.mark.parametrize(
    ("kind", "text", "values"),
    [
        (pa.string(), "a%2Fb%3D", ("a/b=",)),
        (pa.string(), "%41", None),  # an A is never written like that
        (pa.string(), NULL_FOLDER, (None, "", NULL_FOLDER)),
        (pa.int32(), "-7", (-7,)),
        (pa.int32(), "07", None),
        (pa.int32(), "2147483648", None),
        (pa.int64(), "2147483648", (2147483648,)),
        (pa.int32(), NULL_FOLDER, (None,)),
        (pa.bool_(), "true", (True,)),
        (pa.bool_(), "TRUE", None),
        (pa.date32(), "2026-02-03", (date(2026, 2, 3),)),
        (pa.date32(), "20260203", None),
        (pa.date32(), "20487", None),
        (pa.timestamp("us", "UTC"), "1767243967000001", (datetime(2026, 1, 1, 5, 6, 7, 1, tzinfo=timezone.utc),)),
        (pa.timestamp("ms"), "1767243967000", (datetime(2026, 1, 1, 5, 6, 7),)),
        (pa.timestamp("us"), "2026-01-01 05%3A06%3A07.0", None),
        (pa.timestamp("us"), "9" * 19, None),
        (pa.decimal128(10, 2), "1.50", (Decimal("1.50"),)),
        (pa.decimal128(10, 2), "1.5", None),
        (pa.float64(), "1.5", None),
    ],
)
def test_a_folder_tells_a_value_only_if_that_value_has_exactly_this_folder(
    kind: pa.DataType, text: str, values: tuple[Value | None, ...] | None
) -> None:
    assert reader(kind).possible(f"p={text}").get("p") == values
    assert reader(kind, hive_style=False).possible(text).get("p") == values
    assert reader(kind).possible(f"q={text}") == {}
    assert reader(kind).possible(f"p={text}/x") == {}


def test_the_folder_of_nulls_tells_no_text_for_certain() -> None:
    values = PartitionValues({"month": pa.int32(), "who": pa.string()}, hive_style=False, url_encode=False)
    assert values.exact("7/a%2F") == {"month": 7, "who": "a%2F"}
    assert values.exact(f"{NULL_FOLDER}/a") == {"month": None, "who": "a"}
    assert values.exact(f"7/{NULL_FOLDER}") == {"month": 7}
    assert values.exact("7/a/b") == {}


def test_nothing_is_read_from_folders_of_a_key_generator_with_formats_of_its_own() -> None:
    schema = pa.schema([("p", pa.string())])
    plain = TableProperties.new("t", ["id"], ["p"])
    own = TableProperties({**plain.values, "hoodie.table.keygenerator.type": "TIMESTAMP"})
    assert PartitionValues.of(plain, schema).possible("p=2026") == {"p": ("2026",)}
    assert PartitionValues.of(own, schema).possible("p=2026") == {}
    assert PartitionValues.of(plain, pa.schema([("q", pa.string())])).readable == ()


TYPES = {
    "s": (pa.string(), st.sampled_from([None, "", "a", "a/b", "a%2Fb", "é=", NULL_FOLDER, "b c", "1"])),
    "n": (pa.int32(), st.sampled_from([None, -1, 0, 1, 2])),
    "d": (pa.date32(), st.sampled_from([None, date(2026, 1, 1), date(1, 1, 1), date(2026, 12, 31)])),
    "v": (pa.int64(), st.one_of(st.none(), st.integers(-3, 3))),
    "t": (pa.string(), st.one_of(st.none(), st.text("ab\U0010ffff", max_size=3), st.just("ab" * 30))),
}
COLUMNS = st.sampled_from(list(TYPES))


@st.composite
def leaves(draw: st.DrawFn) -> Predicate:
    column = draw(COLUMNS)
    value = draw(TYPES[column][1])
    if draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from([Anything(), Constant(True), Constant(None)]))
    if value is None:
        return IsNull(column)
    if isinstance(value, str) and draw(st.booleans()):
        return BeginsWith(column, value[:1])
    return Comparison(column, draw(st.sampled_from(["=", "<", "<=", ">", ">="])), value)


PREDICATES = st.recursive(
    leaves(),
    lambda inner: st.one_of(
        inner.map(Not),
        st.lists(inner, max_size=3).map(lambda parts: And(tuple(parts))),
        st.lists(inner, max_size=3).map(lambda parts: Or(tuple(parts))),
    ),
    max_leaves=6,
)


def asked(predicate: Predicate, row: Row, anything: bool | None) -> bool | None:
    """SQL's answer, written down a second time and as plainly as can be."""
    match predicate:
        case Anything():
            return anything
        case Constant(value):
            return value
        case IsNull(column):
            return row[column] is None
        case BeginsWith(column, prefix):
            return None if row[column] is None else str(row[column]).startswith(prefix)
        case Comparison(column, op, value):
            mine = row[column]
            if mine is None:
                return None
            return {"=": mine == value, "<": mine < value, ">": mine > value, "<=": mine <= value, ">=": mine >= value}[op]  # type: ignore[operator]
        case Not(part):
            answer = asked(part, row, anything)
            return None if answer is None else not answer
        case And(parts):
            answers = [asked(part, row, anything) for part in parts]
            return False if False in answers else None if None in answers else True
        case Or(parts):
            answers = [asked(part, row, anything) for part in parts]
            return True if True in answers else None if None in answers else False
    raise AssertionError(predicate)


ROWS = st.lists(st.fixed_dictionaries({name: values for name, (_, values) in TYPES.items()}), min_size=1, max_size=8)


@given(ROWS, PREDICATES, st.booleans(), st.booleans(), st.sampled_from([True, False, None]))
def test_no_file_with_a_row_that_satisfies_the_condition_is_left_out(
    rows: list[Row], predicate: Predicate, hive_style: bool, url_encode: bool, anything: bool | None
) -> None:
    schema = pa.schema([(name, kind) for name, (kind, _) in TYPES.items()])
    properties = TableProperties.new("t", ["v"], ["n", "s", "d"], hive_style=hive_style, url_encode=url_encode)
    assume(url_encode or not any("/" in (row["s"] or "") for row in rows))
    # Other writers keep the empty text, and the word for null, where null is.
    stored = [{**row, "s": None if row["s"] in ("", NULL_FOLDER) else row["s"]} for row in rows]
    paths = partition_paths(pa.Table.from_pylist(stored, schema=schema), properties).to_pylist()
    for path in set(paths):
        mine = [row for row, where in zip(rows, paths, strict=True) if where == path]
        file = DataFile(path, "f", "t", "20260101000000000", 1)
        pruning = Pruning(predicate, PartitionValues.of(properties, schema))
        found = any(asked(predicate, row, anything) is True for row in mine)
        for kept in (pruning.kept([file]), pruning.kept([file], lambda _, mine=mine: recorded(mine))):  # type: ignore[misc]
            assert kept or not found
        assert pruning.concerns(path) or not found


def recorded(rows: list[Row]) -> FileStatistics:
    ranges = {}
    for name in TYPES:
        values = [row[name] for row in rows if row[name] is not None]
        nulls = len(rows) - len(values)
        ranges[name] = ColumnRange(min(values), max(values), nulls) if values else ColumnRange(nulls=nulls)  # type: ignore[type-var]
    return FileStatistics(len(rows), None, None, ranges)


MONTHS = PartitionValues({"month": pa.int32()}, hive_style=True, url_encode=True)


def kept(predicate: Predicate, **columns: ColumnRange) -> list[str]:
    files = [DataFile(f"month={month}", "f", "t", "20260101000000000", 1) for month in (1, 2, NULL_FOLDER)]
    statistics = FileStatistics(10, None, None, columns)
    return [file.partition[6:] for file in Pruning(predicate, MONTHS).kept(files, lambda _: statistics)]


def test_what_is_surely_not_there_is_left_out() -> None:
    one, late = Comparison("month", "=", 1), Comparison("day", ">=", date(2026, 6, 1))
    assert kept(one) == ["1"]
    assert kept(Not(one)) == ["2"]
    assert kept(IsNull("month")) == [NULL_FOLDER]
    assert kept(Or((one, IsNull("month")))) == ["1", NULL_FOLDER]
    assert kept(And((one, Anything()))) == ["1"]
    assert kept(Or((one, Anything()))) == ["1", "2", NULL_FOLDER]
    assert kept(Constant(None)) == []
    assert kept(Comparison("month", "=", "1")) == ["1", "2"]  # of another type: who knows, but for nulls
    may = ColumnRange(date(2026, 5, 1), date(2026, 5, 31), 0)
    assert kept(late, day=may) == []
    assert kept(late) == ["1", "2", NULL_FOLDER]
    assert kept(Not(late), day=may) == ["1", "2", NULL_FOLDER]
    assert kept(IsNull("day"), day=may) == []
    assert kept(late, day=ColumnRange(nulls=10)) == []
    assert kept(BeginsWith("name", "ca"), name=ColumnRange("cb", "cc", 0)) == []
    assert kept(BeginsWith("name", "cb"), name=ColumnRange("cbx", "cc", 0)) == ["1", "2", NULL_FOLDER]
    assert kept(Comparison("x", "=", float("nan")), x=ColumnRange(0.0, 1.0, 0)) == ["1", "2", NULL_FOLDER]
