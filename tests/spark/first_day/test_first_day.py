"""What users of Delta and Hudi type works, or an error says in one line what to type instead."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.first_day.calls import CALLS, Day, Elsewhere, Told, Works
from tests.spark.first_day.first_calls import FIRST_CALLS
from tests.spark.without_jobs import content

from lakelock.errors import LakelockError
from lakelock.spark_plugin import register, unregister

WORKS = [call for call in (*CALLS, *FIRST_CALLS) if isinstance(call, Works)]
TOLD = [call for call in (*CALLS, *FIRST_CALLS) if isinstance(call, Told)]
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def shared(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of a table that no call changes."""
    return Day(spark, tmp_path_factory.mktemp("first_day")).path


@pytest.fixture
def day(spark: SparkSession, shared: str, tmp_path: Path) -> Day:
    register(spark)
    return Day(spark, tmp_path, shared)


@pytest.fixture
def own(spark: SparkSession, tmp_path: Path) -> Day:
    register(spark)
    return Day(spark, tmp_path)


@pytest.mark.in_ci
@pytest.mark.sampled(one_in=8)
@pytest.mark.parametrize("call", [c for c in WORKS if not c.writes], ids=lambda c: f"{c.number} {c.call}")
def test_a_read_that_users_of_delta_and_hudi_type_works(call: Works, day: Day) -> None:
    assert call.run(day) == call.result


@pytest.mark.in_ci
@pytest.mark.sampled(one_in=8)
@pytest.mark.parametrize("call", [c for c in WORKS if c.writes], ids=lambda c: f"{c.number} {c.call}")
def test_a_write_that_users_of_delta_and_hudi_type_works(call: Works, own: Day) -> None:
    assert call.run(own) == call.result


@pytest.mark.in_ci
@pytest.mark.sampled(one_in=8)
@pytest.mark.parametrize("call", TOLD, ids=lambda c: f"{c.number} {c.call}")
def test_a_call_that_does_not_work_says_in_one_line_what_to_type_and_changes_nothing(call: Told, day: Day) -> None:
    if not call.registers:
        unregister(day.spark)
    before, names = commits(day.path), {table.name for table in day.spark.catalog.listTables()}
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of every origin: ours, Spark's, Python's
        call.run(day)
    lines = str(caught.value).splitlines()
    assert any(re.search(call.answer, line) for line in lines), str(caught.value)
    assert ("did you mean" in str(caught.value)) == ("did you mean" in call.answer)
    if not call.sparks:
        own = isinstance(caught.value, LakelockError | AttributeError)
        assert own or "next: " in str(caught.value), str(caught.value)
    assert commits(day.path) == before
    assert {table.name for table in day.spark.catalog.listTables()} == names, "a call that fails leaves no name behind"
    assert len(content(day.table)) == 3


def commits(path: str) -> list[str]:
    return sorted(file.name for file in Path(path.removeprefix("file://"), ".hoodie", "timeline").glob("*_*.*commit"))


def test_every_call_of_the_list_is_there_and_those_tested_elsewhere_are_tested() -> None:
    assert {call.number for call in CALLS} == set(range(1, 57))
    assert {call.number for call in FIRST_CALLS} == set(range(1, 69))
    for call in (*CALLS, *FIRST_CALLS):
        if isinstance(call, Elsewhere):
            assert f"def {call.test}" in (ROOT / call.file).read_text(), call.call
