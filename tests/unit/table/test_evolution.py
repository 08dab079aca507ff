"""Two changes of one table's columns, and what they give together."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.api import TableSchema

from lakelock.table.schema import merged_schema

INT, TEXT = pa.int64(), pa.string()
Columns = list[pa.Field]


def column(name: str, arrow: pa.DataType = TEXT, nullable: bool = True) -> pa.Field:
    return pa.field(name, arrow, nullable)


def struct(*fields: pa.Field) -> pa.DataType:
    return pa.struct(list(fields))


A, B, X, Y = (column(name) for name in "abxy")
PLACE = struct(X)
NUMBER_A, REQUIRED_X = column("a", INT), column("x", TEXT, False)


@pytest.mark.parametrize(
    ("base", "theirs", "mine", "together"),
    [
        ([A], [A], [A], [A]),
        ([A], [A, X], [A], [A, X]),
        ([A], [A], [A, X], [A, X]),
        ([A, B], [A, X, B], [A, B], [A, X, B]),
        ([A, B], [B, X, A], [A, B, Y], [B, X, A, Y]),
        ([A, B], [A, B, X], [B, A], [B, A, X]),
        ([A, B], [B, A], [B, Y, A], [B, A, Y]),
        (
            [column("p", struct(A, B))],
            [column("p", struct(A, B, X))],
            [column("p", struct(B, A))],
            [column("p", struct(B, A, X))],
        ),
        ([A], [A, X], [A, Y], [A, X, Y]),
        ([A], [A, X], [A, X], [A, X]),
        ([A], [A, X], [A, Y, X], [A, X, Y]),
        ([column("p", PLACE)], [column("p", struct(X, A))], [column("p", struct(X, B))], [column("p", struct(X, A, B))]),
        (
            [column("l", pa.list_(PLACE))],
            [column("l", pa.list_(struct(A, X)))],
            [column("l", pa.list_(struct(X, B)))],
            [column("l", pa.list_(struct(A, X, B)))],
        ),
        (
            [column("m", pa.map_(TEXT, PLACE))],
            [column("m", pa.map_(TEXT, struct(X, A)))],
            [column("m", pa.map_(TEXT, PLACE)), Y],
            [column("m", pa.map_(TEXT, struct(X, A))), Y],
        ),
    ],
)
def test_added_columns_go_together(base: Columns, theirs: Columns, mine: Columns, together: Columns) -> None:
    found, problems = merged_schema(*(TableSchema(pa.schema(fields)) for fields in (base, theirs, mine)))
    assert problems == [] and found.arrow.equals(pa.schema(together))


WHOLE, LONG, REAL = (column("n", arrow) for arrow in (pa.int32(), pa.int64(), pa.float64()))
CENTS, MILLS, MANY = (column("p", pa.decimal128(*digits)) for digits in ((5, 2), (7, 3), (12, 2)))
STRICT = column("n", pa.int32(), False)


@pytest.mark.parametrize(
    ("base", "theirs", "mine", "together"),
    [
        ([WHOLE], [LONG], [WHOLE], [LONG]),
        ([WHOLE], [WHOLE, X], [LONG], [LONG, X]),
        ([WHOLE], [LONG, X], [WHOLE, Y], [LONG, X, Y]),
        ([WHOLE], [LONG], [LONG], [LONG]),
        ([CENTS], [MANY], [MILLS], [column("p", pa.decimal128(13, 3))]),
        (
            [column("s", struct(WHOLE))],
            [column("s", struct(LONG))],
            [column("s", struct(WHOLE, X))],
            [column("s", struct(LONG, X))],
        ),
        (
            [column("l", pa.list_(WHOLE))],
            [column("l", pa.list_(WHOLE)), X],
            [column("l", pa.list_(LONG))],
            [column("l", pa.list_(LONG)), X],
        ),
        ([STRICT], [WHOLE], [STRICT, X], [WHOLE, X]),
        ([STRICT], [STRICT, X], [LONG], [LONG, X]),
        ([], [WHOLE], [LONG], [LONG]),
    ],
)
def test_wider_types_and_columns_that_may_be_null_go_together(
    base: Columns, theirs: Columns, mine: Columns, together: Columns
) -> None:
    found, problems = merged_schema(*(TableSchema(pa.schema(fields)) for fields in (base, theirs, mine)))
    assert problems == [] and found.arrow.equals(pa.schema(together))


@pytest.mark.parametrize(
    ("base", "theirs", "mine", "problem"),
    [
        ([A, B, X], [B, A, X], [X, A, B], "the order of the columns: both have changed it"),
        (
            [column("p", struct(A, B, X))],
            [column("p", struct(B, A, X))],
            [column("p", struct(X, A, B))],
            "the order of the fields of p: both have changed it",
        ),
        ([A, B], [A], [A, B], "b: removed by the other"),
        ([A], [NUMBER_A], [A], "a: int64 there, string here"),
        ([WHOLE], [LONG], [REAL], "n: int64 there, double here"),
        ([LONG], [WHOLE], [LONG], "n: int32 there, int64 here"),
        ([A, B], [A, B, X], [A], "b: removed here"),
        ([A], [column("a", TEXT, False)], [A], "a: string not null there, string here"),
        ([A], [A, X], [A, column("x", INT)], "x: string there, int64 here"),
        ([A], [A, REQUIRED_X], [A], "x: added by the other as not null"),
        ([A], [A, Y], [A, REQUIRED_X], "x: added as not null"),
        ([A], [A, X], [A, column("X")], "X: Spark cannot tell it from x"),
        ([column("p", PLACE)], [column("p", struct(X, REQUIRED_X.with_name("z")))], [column("p", PLACE)], "p.z: added by the"),
        ([column("p", PLACE)], [column("p", struct(A))], [column("p", PLACE)], "p.x: removed by the other"),
        ([column("l", pa.list_(A))], [column("l", pa.list_(NUMBER_A))], [column("l", pa.list_(A)), X], r"l[]: int64 there"),
    ],
)
def test_any_other_change_is_named(base: Columns, theirs: Columns, mine: Columns, problem: str) -> None:
    _, problems = merged_schema(*(TableSchema(pa.schema(fields)) for fields in (base, theirs, mine)))
    assert any(found.startswith(problem) for found in problems), problems


def test_what_one_side_found_or_said_is_said_again_as_it_was() -> None:
    text = TableSchema(pa.schema([A, X])).to_avro_json("t").replace('"name":"x"', '"name":"x","doc":"where"')
    base, theirs = TableSchema(pa.schema([A])), TableSchema.of_commit(text)
    assert merged_schema(base, theirs, base)[0].to_avro_json("t") == text
    assert merged_schema(base, base, theirs)[0].to_avro_json("t") == text
    together, _ = merged_schema(base, theirs, TableSchema(pa.schema([A, Y])))
    assert TableSchema.of_commit(together.to_avro_json("t")).arrow.equals(pa.schema([A, X, Y]))
