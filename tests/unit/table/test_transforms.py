"""Partition columns that are computed: what they are named, what they make of values, what conditions imply of them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timezone

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.api import TableProperties, TableSchema

from lakelock.errors import InputError, SchemaError
from lakelock.table.commit_metadata import Value
from lakelock.table.eligibility import why_not_readable, why_not_writable
from lakelock.table.partitions import PartitionValues, with_generated
from lakelock.table.properties import TRANSFORMS
from lakelock.table.pruning import (
    Answers,
    BeginsWith,
    Comparison,
    IsNull,
    Known,
    Not,
    Operator,
    Or,
    Predicate,
    Pruning,
    sharpened,
)
from lakelock.table.schema import require_same_text
from lakelock.table.transforms import parsed_transform, parsed_transforms, partition_columns, split_columns

UTC = timezone.utc
LATE = datetime(2026, 1, 31, 23, 59, 59, 999_999)
BEFORE_1970 = datetime(1969, 12, 31, 22, 30)
COLUMNS = pa.schema(
    [("id", pa.int64()), ("name", pa.string()), ("at", pa.timestamp("us", "UTC")), ("local", pa.timestamp("us")),
     ("day", pa.date32()), ("price", pa.decimal128(5, 2))]
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "values", "made"),
    [
        ("years(c)", [date(2026, 1, 1), None], [2026, None]),
        ("months(c)", [LATE, BEFORE_1970], ["2026-01", "1969-12"]),
        ("days(c)", [LATE, BEFORE_1970, None], [date(2026, 1, 31), date(1969, 12, 31), None]),
        ("days(c)", [date(2026, 1, 31)], [date(2026, 1, 31)]),
        ("hours(c)", [LATE, BEFORE_1970], ["2026-01-31-23", "1969-12-31-22"]),
        ("truncate(2, c)", ["añb", "x", "", None, "\U0001f600ab"], ["añ", "x", "", None, "\U0001f600a"]),
        ("bucket(16, c)", [5, 6, None, 5], [14, 4, None, 14]),
        ("bucket(16, c)", ["5", date(2026, 1, 31).isoformat()], [14, 10]),
        ("bucket(16, c)", [date(2026, 1, 31)], [10]),
    ],
)
def test_a_transform_computes_a_readable_column(text: str, values: list[Value | None], made: list[Value | None]) -> None:
    transform = parsed_transform(text)
    assert transform is not None
    array = pa.chunked_array([pa.array(values[:1]), pa.array(values[1:], pa.array(values).type)])
    assert transform.takes(array.type)
    assert transform.of(array).to_pylist() == made and transform.of(array).type == transform.type


def test_times_are_those_of_utc_or_of_the_wall_clock() -> None:
    zoned = pa.array([datetime(2026, 1, 31, 23, 30, tzinfo=UTC)]).cast(pa.timestamp("us", "Asia/Tokyo"))
    for text, made in (("days(c)", date(2026, 1, 31)), ("hours(c)", "2026-01-31-23")):
        transform = parsed_transform(text)
        assert transform is not None and transform.of(zoned).to_pylist() == [made]


@pytest.mark.parametrize(
    ("text", "name", "shown"),
    [
        ("days(at)", "at_day", "days(at)"),
        (" DATE ( at ) ", "at_day", "days(at)"),
        ("bucket(16,id)", "id_bucket", "bucket(16, id)"),
        ("bucket(id, 16)", "id_bucket", "bucket(16, id)"),
        ("truncate(3, `name`)", "name_prefix", "truncate(3, name)"),
    ],
)
def test_a_transform_is_written_as_in_iceberg_and_names_its_column(text: str, name: str, shown: str) -> None:
    transform = parsed_transform(text)
    assert transform is not None and (transform.name, str(transform)) == (name, shown)
    assert parsed_transform(shown) == transform


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("day_s(at)", "no partition transform 'day_s'; did you mean \"days\""),
        ("days(at, 3)", r"write days\(column\)"),
        ("bucket(0, id)", r"write bucket\(n, column\) with a number n above 0"),
        ("bucket(id)", r"write bucket\(n, column\)"),
        ("days(", "is no partition transform"),
        ("days()", r"write days\(column\)"),
    ],
)
def test_a_text_that_is_no_transform_is_refused_with_the_form(text: str, problem: str) -> None:
    with pytest.raises(InputError, match=f"(?s){problem}"):
        parsed_transform(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("days(when)", "there is no column 'when'"),
        ("days(name)", "name is string"),
        ("hours(day)", "day is date32"),
        ("bucket(4, price)", "price is decimal"),
        ("truncate(4, id)", "id is int64"),
    ],
)
def test_a_transform_of_a_column_that_it_does_not_take_is_refused(text: str, problem: str) -> None:
    with pytest.raises(SchemaError, match=problem):
        partition_columns(COLUMNS, [text])


def test_computed_columns_come_last_and_one_that_is_there_must_be_of_their_type() -> None:
    names, transforms, after = partition_columns(COLUMNS, ["day", "hours(AT)", "bucket(4, id)"])
    assert names == ("day", "at_hour", "id_bucket") and [str(each) for each in transforms] == ["hours(at)", "bucket(4, id)"]
    assert after.names == [*COLUMNS.names, "at_hour", "id_bucket"]
    there = COLUMNS.append(pa.field("at_day", pa.date32()))
    assert partition_columns(there, ["days(at)"])[2] == there
    with pytest.raises(SchemaError, match=r"makes at_day of date32\[day\], and there is a column of string"):
        partition_columns(COLUMNS.append(pa.field("at_day", pa.string())), ["days(at)"])


def test_a_list_is_split_outside_parentheses() -> None:
    assert split_columns("region, bucket(16, id),days(at)") == ["region", "bucket(16, id)", "days(at)"]
    assert [str(each) for each in parsed_transforms("days(at), bucket(16, id)")] == ["days(at)", "bucket(16, id)"]


def test_properties_keep_the_transforms_and_an_unknown_one_is_read_but_not_written() -> None:
    _, transforms, _ = partition_columns(COLUMNS, ["days(at)"])
    made = TableProperties.new("t", ["id"], ["name", "at_day"], transforms=transforms)
    again = TableProperties.parse(made.serialize(0))
    assert again.transforms == transforms and again.partition_by == ("name", "days(at)")
    later = again.changed({TRANSFORMS: "weeks(at)"})
    assert later.transforms == () and not why_not_readable(later)
    assert [str(each) for each in why_not_writable(later)] == [
        "its partitions are computed in a way that this version does not know (weeks(at))"
    ]


def test_rows_get_the_computed_column_whatever_they_bring_or_bring_it_where_they_lack_its_source() -> None:
    properties = TableProperties.new("t", ["id"], ["at_day"], transforms=parsed_transforms("days(at)"))
    moment = pa.array([datetime(2026, 1, 31, 5, tzinfo=UTC)])
    stale = pa.table({"AT": moment, "At_Day": [date(2020, 1, 1)]})
    assert with_generated(stale, properties).to_pydict()["At_Day"] == [date(2026, 1, 31)]
    assert with_generated(pa.table({"at": moment}), properties).to_pydict()["at_day"] == [date(2026, 1, 31)]
    assert with_generated(pa.table({"at_day": [date(2020, 1, 1)]}), properties).to_pydict() == {"at_day": [date(2020, 1, 1)]}
    with pytest.raises(SchemaError, match=r"no column 'at', of which their partition is computed: days\(at\)"):
        with_generated(pa.table({"id": [1]}), properties)


MOMENTS = st.none() | st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1))
TEXTS = st.none() | st.text("ab\U0001f600", max_size=4)
NUMBERS = st.none() | st.integers(-50, 50)
OPERATORS: list[Operator] = ["=", "<", "<=", ">", ">="]


def leaves(column: str, values: st.SearchStrategy[Value | None]) -> st.SearchStrategy[Predicate]:
    some = values.filter(lambda value: value is not None)
    compared = st.builds(Comparison, st.just(column), st.sampled_from(OPERATORS), some)
    return st.just(IsNull(column)) | compared


CASES = [("years(c)", MOMENTS), ("months(c)", MOMENTS), ("days(c)", MOMENTS), ("hours(c)", MOMENTS), ("truncate(2, c)", TEXTS),
         ("bucket(3, c)", NUMBERS)]  # fmt: skip


@given(st.data(), st.sampled_from(CASES))
def test_what_a_condition_implies_of_the_partition_never_rules_out_a_row_that_satisfies_it(
    data: st.DataObject, case: tuple[str, st.SearchStrategy[Value | None]]
) -> None:
    text, values = case
    transform = parsed_transform(text)
    assert transform is not None
    one, other = leaves("c", values), leaves("c", values)
    if text.startswith("truncate"):
        one = one | st.builds(BeginsWith, st.just("c"), st.text("ab\U0001f600", max_size=4))
    predicate = data.draw(one | one.map(Not) | st.tuples(one, other).map(Or))
    row = data.draw(values)
    source = pa.array([row], {MOMENTS: pa.timestamp("us"), TEXTS: pa.string(), NUMBERS: pa.int64()}[values])
    partition = transform.of(source)[0].as_py()

    def known(both: Mapping[str, Value | None]) -> Answers:
        return sharpened(predicate, [transform]).answers(lambda column: Known((both[column],)) if column in both else Known())

    exact = predicate.answers(lambda _: Known((row,)))
    assert known({"c": row, transform.name: partition}) == exact
    assert exact & known({transform.name: partition})


def test_a_condition_on_the_source_rules_partitions_out() -> None:
    [day] = parsed_transforms("days(at)")
    january, february = Known((date(2026, 1, 31),)), Known((date(2026, 2, 1),))
    late = sharpened(Comparison("at", ">", datetime(2026, 2, 1, 5, tzinfo=UTC)), [day])
    for known, possible in ((january, False), (february, True)):
        assert (Answers.TRUE in late.answers(lambda name, known=known: known if name == "at_day" else Known())) is possible


@pytest.mark.parametrize("text", ["months(at)", "hours(at)", "days(at)", "years(at)"])
def test_a_time_after_9999_is_late_though_its_folder_sorts_first(text: str) -> None:
    [transform] = parsed_transforms(text)
    far = pa.array([3_000_000 * 86_400_000_000, -800_000 * 86_400_000_000], pa.int64()).cast(pa.timestamp("us", "UTC"))
    values = PartitionValues({transform.name: transform.type}, True, True, transforms=(transform,))
    for folder, op in zip(transform.of(far).cast(pa.string()).to_pylist(), (">", "<"), strict=True):
        for predicate in (
            Comparison("at", op, datetime(2026, 1, 1, tzinfo=UTC)),
            Not(Not(Comparison("at", op, datetime(2026, 1, 1, tzinfo=UTC)))),
        ):
            assert Pruning(predicate, values).concerns(f"{transform.name}={folder}"), folder


def test_no_time_says_nothing_of_the_day_that_a_row_may_have_brought_with_it() -> None:
    assert sharpened(IsNull("at"), parsed_transforms("days(at)")) == IsNull("at")


@pytest.mark.parametrize(
    ("transform", "before", "after"),
    [("bucket(4, n)", pa.int32(), pa.float64()), ("years(n)", pa.date32(), pa.string())],
)
def test_the_source_of_a_partition_keeps_a_type_that_makes_the_same_partitions(
    transform: str, before: pa.DataType, after: pa.DataType
) -> None:
    made = parsed_transforms(transform)
    properties = TableProperties.new("t", ["id"], [made[0].name], transforms=made)
    old, new = (TableSchema.from_arrow(pa.schema([("id", pa.int64()), ("n", kind)])) for kind in (before, after))
    with pytest.raises(SchemaError, match="stored rows would not be found"):
        require_same_text(old, new, properties)
    require_same_text(old, old, properties)
