"""How a part of a table is named, and when a condition says by itself which part it is about."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.api import Resource, TableProperties

from lakelock.errors import InputError
from lakelock.occ.request import resources_of, target_of_condition, target_of_expression, within


def table(*fields: str, hive_style: bool = True, url_encode: bool = True) -> TableProperties:
    return TableProperties.new("t", ("id",), fields, hive_style=hive_style, url_encode=url_encode)


NESTED = table("month", "day")
SCHEMA = pa.schema([("id", pa.string()), ("month", pa.string()), ("day", pa.int32())])


@pytest.mark.parametrize(
    ("properties", "target", "paths"),
    [
        (NESTED, None, ()),
        (NESTED, "month=1", ("month=1",)),
        (NESTED, "month=1/day=2/", ("month=1/day=2",)),
        (NESTED, {"day": 2, "month": "1"}, ("month=1/day=2",)),
        (NESTED, [{"month": 1}, "month=2", {"month": "1"}], ("month=1", "month=2")),
        (NESTED, {"month": None}, ("month=__HIVE_DEFAULT_PARTITION__",)),
        (NESTED, "month=10:00", ("month=10%3A00",)),
        (NESTED, "month=10%3A00", ("month=10%3A00",)),
        (table("month", hive_style=False), "month=1", ("1",)),
        (table("month", hive_style=False), "1", ("1",)),
        (table("month", "day", hive_style=False), {"month": 1, "day": 2}, ("1/2",)),
        (table("day", url_encode=False), {"day": "2024/01"}, ("day=2024/01",)),
    ],
)
def test_a_target_becomes_the_path_that_the_table_has(
    properties: TableProperties, target: object, paths: tuple[str, ...]
) -> None:
    assert resources_of(target, properties) == tuple(map(Resource.of, paths))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("properties", "target", "match"),
    [
        (NESTED, "day=2", "leaves out a partition column before it"),
        (NESTED, {"mnth": 1}, 'did you mean "month"'),
        (NESTED, "mnth=1", 'did you mean "month"'),
        (NESTED, "1", "is not a partition"),
        (NESTED, "month=1/day=2/hour=3", "'hour' is not a partition column"),
        (NESTED, "", "is not a partition"),
        (NESTED, "../x", "is not a partition path"),
        (NESTED, [], "is empty"),
        (table(), "month=1", "the table has none"),
        (table("a", "b", hive_style=False), "1/2/3", "deeper"),
    ],
)
def test_a_target_that_the_table_cannot_have_is_refused(properties: TableProperties, target: object, match: str) -> None:
    with pytest.raises(InputError, match=match):
        resources_of(target, properties)  # type: ignore[arg-type]


def test_a_partition_is_within_itself_and_its_prefixes_and_not_within_a_namesake() -> None:
    month = [Resource.of("month=1")]
    assert within("month=1", month) and within("month=1/day=2", month) and within("month=1", [Resource()])
    assert not within("month=10", month) and not within("", month)


@pytest.mark.parametrize(
    ("condition", "path"),
    [
        ("month = '1'", "month=1"),
        ("id = 'a' AND MONTH == \"1\" and day = 2", "month=1/day=2"),
        ("day=2 AND `month`='1'", "month=1/day=2"),
        ("month = 'x AND y' AND day > 2", "month=x AND y"),
        ("day = 2", None),
        ("month = 1", None),
        ("month = '1' OR id = 'a'", None),
        ("NOT month = '1'", None),
        ("id BETWEEN 'a' AND month = '1'", None),
        ("(month = '1')", None),
        ("month = '1' AND (id = 'a')", None),
        ("CASE WHEN id = 'a' AND month = '1' AND id = 'b' THEN true END", None),
        ("month = '1' AND month = '2'", None),
        ("month = 'it''s'", None),
        ("month = '1\\'' AND day = 2", None),
        ("month = '1' -- AND day = 2", None),
        ("month <=> '1'", None),
        ("month != '1'", None),
        ("id = 'a' || 'b' AND month = '1'", None),
        ("month = '1", None),
    ],
)
def test_a_condition_narrows_the_lock_only_where_it_says_so_plainly(condition: str, path: str | None) -> None:
    assert target_of_condition(condition, SCHEMA, NESTED) == (() if path is None else (Resource.of(path),))


MONTH, DAY, ID = pc.field("month"), pc.field("day"), pc.field("id")


@pytest.mark.parametrize(
    ("condition", "path"),
    [
        (MONTH == "1", "month=1"),
        ((ID == "a") & (MONTH == "1") & (DAY == 2), "month=1/day=2"),
        ((MONTH == "a) and (b") & (DAY > 1), "month=a) and (b"),
        ((MONTH == "1") & ((ID == "a") | (ID == "b")), "month=1"),
        (~(MONTH == "1"), None),
        ((MONTH == "1") | (DAY == 2), None),
        (DAY == 2, None),
        ((MONTH == "1") & (MONTH == "2"), None),
        (MONTH == 'say "1"', None),
        (pc.utf8_lower(MONTH) == "1", None),
        (pc.if_else((MONTH == "1") & (DAY == 1), ID == "a", ID == "b"), None),
    ],
    ids=str,
)
def test_an_arrow_expression_narrows_the_lock_where_it_is_a_conjunction(condition: pc.Expression, path: str | None) -> None:
    assert target_of_expression(str(condition), SCHEMA, NESTED) == (() if path is None else (Resource.of(path),))
