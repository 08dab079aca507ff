"""Conditions in SQL choose the rows that DuckDB chooses, with the same nulls and the same NaN."""

from __future__ import annotations

from contextlib import suppress
from datetime import date, datetime, timezone
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakelock.engine.sql_texts import evaluated, parsed_condition, parsed_schema, parsed_value
from lakelock.errors import InputError

SCHEMA = parsed_schema("i int, j bigint, x double, y double, s string, d date, ok boolean, p decimal(8, 2)")
ROWS = pa.table(
    [
        [1, 2, None, -3, 0, 7, None, 2],
        [1, None, 3, 4, -5, 2**40, None, 2],
        [0.5, float("nan"), None, -1.0, float("inf"), 2.0, float("nan"), 0.0],
        [0.5, 1.0, float("nan"), None, float("-inf"), float("nan"), float("nan"), -0.0],
        ["a", "b%", None, "", "it's", "ab", "A", "a_b"],
        [date(2026, 1, 1), None, date(1999, 12, 31), date(2026, 2, 1), None, date(2026, 1, 2), date(1, 1, 1), date(2026, 1, 1)],
        [True, False, None, True, None, False, True, False],
        [Decimal("1.50"), None, Decimal("-2.00"), Decimal("0.01"), Decimal("7.00"), None, Decimal("99.99"), Decimal("2.00")],
    ],
    schema=SCHEMA,
)

OPERATORS = st.sampled_from(["=", "!=", "<>", "<", "<=", ">", ">="])
NUMBERS = st.sampled_from(["i", "j", "x", "y", "p", "1", "-3", "2.5", "0", "i + 1", "j * 2", "-i", "(i - j)", "1099511627776"])
TEXTS = st.sampled_from(["s", "'a'", "''", "'it''s'", "'b%'"])
DAYS = st.sampled_from(["d", "date '2026-01-01'", "d"])
LEAVES = st.one_of(
    st.tuples(NUMBERS, OPERATORS, NUMBERS).map(" ".join),
    st.tuples(TEXTS, OPERATORS, TEXTS).map(" ".join),
    st.tuples(DAYS, OPERATORS, DAYS).map(" ".join),
    st.tuples(OPERATORS, st.sampled_from(["'2026-01-01'", "'1999-12-31'"])).map(lambda two: f"d {two[0]} {two[1]}"),
    st.sampled_from(
        [
            "ok", "not ok", "ok = true", "s like 'a%'", "s not like '%b%'", "s like '_'", "s is null", "x is not null", "true",
            "i in (1, 2)", "i not in (1, -3)", "s in ('a', 'it''s')", "j between 1 and 3", "x not between 0 and 1",
            "x in (2.0, 0)", "d in ('2026-01-01')", "p in (1.5, 2)", "false", "d between '2026-01-01' and '2026-01-31'",
        ]
    ),
)  # fmt: skip
CONDITIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or", "OR", "AND"]), inner).map(lambda three: "({} {} {})".format(*three)),
        inner.map(lambda one: f"not ({one})"),
    ),
    max_leaves=6,
)


@settings(deadline=None, max_examples=300)
@given(CONDITIONS)
def test_a_condition_chooses_the_rows_that_duckdb_chooses(text: str) -> None:
    duckdb = pytest.importorskip("duckdb")
    numbered = ROWS.append_column("row number", pa.array(range(ROWS.num_rows)))
    wanted = duckdb.sql(f'select "row number" from numbered where {text} order by 1').fetchall()
    found = numbered.filter(parsed_condition(text, SCHEMA)).column("row number").to_pylist()
    assert found == [row for (row,) in wanted], text


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("j = 2.5", []),
        ("j = 2.0", [2]),
        ("j > 2.5", [3, 2**40, 2**62]),
        ("2.5 < j", [3, 2**40, 2**62]),
        ("j >= 2.5", [3, 2**40, 2**62]),
        ("j < 2.5", [-3, 2]),
        ("j <= -2.5", [-3]),
        ("j != 2.5", [-3, 2, 3, 2**40, 2**62]),
        ("j in (2, 3.0, 4.5)", [2, 3]),
        ("j < 1e30", [-3, 2, 3, 2**40, 2**62]),
        ("j > 1e999", []),
        ("j > -1e30", [-3, 2, 3, 2**40, 2**62]),
        ("j = 99999999999999999999", []),
        ("j < 99999999999999999999", [-3, 2, 3, 2**40, 2**62]),
    ],
)
def test_whole_numbers_are_compared_with_any_number_and_none_is_rounded(text: str, rows: list[int]) -> None:
    numbers = pa.table({"j": pa.array([-3, 2, 3, 2**40, 2**62, None], pa.int64())})
    assert numbers.filter(parsed_condition(text, numbers.schema)).column("j").to_pylist() == rows


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("i + j * 2", [3, None, None, 5, -10, 7 + 2**41, None, 6]),
        ("i / 2", [0.5, 1.0, None, -1.5, 0.0, 3.5, None, 1.0]),
        ("s || '!'", ["a!", "b%!", None, "!", "it's!", "ab!", "A!", "a_b!"]),
        ("'open'", ["open"] * 8),
        ("null", [None] * 8),
        ("-i", [-1, -2, None, 3, 0, -7, None, -2]),
        ("not ok", [False, True, None, False, None, True, False, True]),
    ],
)
def test_a_value_is_computed_as_sql_computes_it(text: str, values: list[object]) -> None:
    assert evaluated({"v": parsed_value(text, SCHEMA)}, ROWS).column("v").to_pylist() == values


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("i in (1, 2)", [True, True, None, False, False, False, None, True]),
        ("not (i in (1, 2) or ok)", [False, False, None, False, None, True, False, False]),
        ("y in (0.0, -1)", [False, False, False, None, False, False, False, True]),
        ("p / 3", ["0.500000", None, "-0.666667", "0.003333", "2.333333", None, "33.330000", "0.666667"]),
        ("i / 3.0", ["0.333333", "0.666667", None, "-1.000000", "0.000000", "2.333333", None, "0.666667"]),
        ("j / p", ["0.666666667", None, "-1.500000000", "400.000000000", "-0.714285714", None, None, "1.000000000"]),
    ],
)  # fmt: skip
def test_a_value_is_null_and_has_digits_where_spark_has_them(text: str, values: list[object]) -> None:
    wanted = [Decimal(each) if isinstance(each, str) else each for each in values]
    assert evaluated({"v": parsed_value(text, SCHEMA)}, ROWS).column("v").to_pylist() == wanted


def test_whole_numbers_meet_floating_point_numbers_as_doubles() -> None:
    rows = pa.table(
        {
            "j": pa.array([2**53 + 1, 2**24 + 1, None]),
            "y": pa.array([1.0, 2.0**24, 0.1], pa.float32()),
            "x": [2.0**53, 1.0, 0.1],
        }
    )
    found = {text: rows.filter(parsed_condition(text, rows.schema)).num_rows for text in ("j = x", "j = y", "j > y", "x = y")}
    assert found == {"j = x": 1, "j = y": 0, "j > y": 2, "x = y": 0}
    assert evaluated({"v": parsed_value("y + j", rows.schema)}, rows).column("v").to_pylist() == [2.0**53, 2.0**25 + 1, None]
    assert evaluated({"v": parsed_value("j / x", rows.schema)}, rows).column("v").to_pylist() == [1.0, 2.0**24 + 1, None]


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        (r"s = 'a\nb'", ["a\nb"]),
        (r"s = 'a\\nb'", [r"a\nb"]),
        (r"s in ('it\'s', '\u0041\x', 'a\%b')", ["it's", "Ax", r"a\%b"]),
        (r"s = '\uD83D\uDE00' or s = '\U0001F600' or s = '\101x'", ["Ax", "😀"]),
        (r"s like 'a_b'", ["a\nb"]),
        (r"s like 'a\%b'", []),
        (r"s like 'a\\\\%b'", [r"a\nb", r"a\%b"]),
        (r"s like '%\\\\\\%b'", [r"a\%b"]),
        (r"s like 'a\\\\%'", [r"a\nb", r"a\%b"]),
    ],
)
def test_a_backslash_in_a_text_says_what_it_says_to_spark(text: str, chosen: list[str]) -> None:
    rows = pa.table({"s": ["a\nb", r"a\nb", "it's", "Ax", r"a\%b", "😀", None]})
    assert rows.filter(parsed_condition(text, rows.schema)).column("s").to_pylist() == chosen


def test_a_time_between_two_that_a_column_can_hold_equals_neither() -> None:
    noon = datetime(2026, 1, 1, 12)
    early = datetime(1969, 12, 31, 23, 59, 59, 999000)
    for zone in ("UTC", None):
        rows = pa.table({"t": pa.array([noon, early], pa.timestamp("ms", zone))})
        found = {
            text: rows.filter(parsed_condition(text, rows.schema)).num_rows
            for text in (
                "t = '2026-01-01 12:00:00.0005'", "t < '2026-01-01 12:00:00.0005'", "t > '1969-12-31 23:59:59.998999'",
                "t in ('2026-01-01 12:00:00.0005', '2026-01-01 12:00')", "t > timestamp '1969-12-31 23:59:59.999001'",
            )
        }  # fmt: skip
        assert [*found.values()] == [0, 2, 2, 1, 1], found


def test_an_offset_does_not_move_what_a_clock_read() -> None:
    schema = parsed_schema("local timestamp_ntz")
    table = pa.table([[datetime(2026, 1, 1, 10), datetime(2026, 1, 1, 12)]], schema=schema)
    for text in ("local = '2026-01-01 12:00:00+02:00'", "local > '2026-01-01T11:00Z'", "local in ('2026-01-01 12:00-05:00')"):
        assert table.filter(parsed_condition(text, schema)).to_pylist() == [{"local": datetime(2026, 1, 1, 12)}], text


def test_a_time_without_an_offset_is_utc_where_the_column_holds_instants() -> None:
    schema = parsed_schema("at timestamp, local timestamp_ntz, place struct<x: int>")
    noon = datetime(2026, 1, 1, 12)
    table = pa.table([[noon.replace(tzinfo=timezone.utc)], [noon], [{"x": 3}]], schema=schema)
    for text in (
        "at = '2026-01-01 12:00:00'", "at = '2026-01-01T14:00:00+02:00'", "at = timestamp '2026-01-01 12:00'",
        "at >= date '2026-01-01'", "local = '2026-01-01 12:00:00'", "place.x = 3", "`place`.`x` in (3)", "AT is not null",
    ):  # fmt: skip
        assert table.filter(parsed_condition(text, schema)).num_rows == 1, text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("i =", "cannot be read to its end"),
        ("i = 1 j", "cannot be read at 'j'"),
        ('s = "a"', "single quotes"),
        ("s = null", "is null"),
        ("s = 1", "s = '1'"),
        ("d = 'yesterday'", "is not a date32"),
        ("lower(s) = 'a'", "pyarrow expression"),
        ("i", "neither true nor false"),
        ("i and ok", "neither true nor false"),
        ("ok = 1", "compares"),
        ("i in (null)", "cannot be read"),
        (r"s like 'a\\b'", "stands before %, _ or another one only"),
        (r"s = '\U00110000'", "no character"),
        ("i in (j)", "literals"),
        ("x like 'a'", "for texts"),
        ("Z = 1", "has no column 'Z'"),
        ("s rlike 'a'", "cannot be read at \"rlike 'a'\""),
        ("i <=> 1", "cannot be read at '<=> 1'"),
        ("case when ok then true else false end", "cannot be read at 'case when ok then'"),
        ("i = 1 /* and so on", "cannot be read"),
        ("(" * 200 + "ok" + ")" * 200, "nested too deeply"),
        ("not " * 2000 + "ok", "nested too deeply"),
        ("; drop table t", "cannot be read"),
    ],
)
def test_what_is_no_condition_is_an_error_that_says_what_to_type(text: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        parsed_condition(text, SCHEMA)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "text", ["i = 1 -- j", "-- which\ni = 1", "/* i = 2\n or */ i = 1 /**/", "i /* j */ = 1 --", "(i = 1 -- or j = 2)\n)"]
)
def test_a_comment_says_nothing(text: str) -> None:
    assert ROWS.filter(parsed_condition(text, SCHEMA)).column("i").to_pylist() == [1]
    assert ROWS.filter(parsed_condition("s = '--' or s = 'a/* b */'", SCHEMA)).num_rows == 0


@given(st.text(max_size=40))
def test_any_text_is_a_condition_or_an_input_error(text: str) -> None:
    for parse in (lambda: parsed_condition(text, SCHEMA), lambda: parsed_value(text, SCHEMA), lambda: parsed_schema(text)):
        with suppress(InputError):
            parse()
