"""A falsy argument is not an absent one: every parameter of the public calls is given 0, empty values, False and a date."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakelock.errors import LakelockError
from lakelock.spark_plugin import LakeTable, sql
from lakelock.spark_plugin.merge_builder import MergeBuilder
from lakelock.spark_plugin.table_upkeep import OptimizeBuilder

COLUMNS = "id long, p string, v long"
VALUES = (0, "", [], {}, False, date(2026, 11, 20))
NOTHING: dict[str, tuple[object, ...]] = {"options": ({},), "args": ({},), "listeners": ([],), "sort_by": ([],)}
"""Parameters of which an empty collection says that there is none of it."""
ZERO = {"changes": ("since", "until"), "upsert_batch": ("batch_id",), "insert_batch": ("batch_id",)}
"""Calls that know what 0 is."""
FREE = {"application", "tag"}
"""Texts that may be empty."""
NUMBERS = {"keep_hours", "keep_commits", "keep_versions", "limit", "txn_version", "small_file_bytes", "target_file_bytes"}
ALIASES = {"forPath", "forName", "toDF"}


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeTable]:
    path = str(tmp_path_factory.mktemp("falsy") / "table")
    with LakeTable.create(spark, path, schema=COLUMNS, key="id", partition_by="p") as made:
        made.insert(spark.createDataFrame([(1, "a", 1), (2, "b", 2)], COLUMNS).coalesce(1))
        yield made


def needed(table: LakeTable, spark: SparkSession, folder: str) -> dict[str, object]:
    """An argument for each parameter that has no default."""
    frame = spark.createDataFrame([(1, "a", 9)], COLUMNS)
    return {
        "spark": spark, "path": f"{folder}/new", "schema": COLUMNS, "folder": f"{folder}/parquet", "df": frame, "source": frame,
        "set": {"v": "0"}, "on": "id", "as_of": table.history().head()[0], "since": 0, "statement": "DELETE FROM `table`",
        "function": lambda tx: None, "operation": "INSERT", "mine": "DELETE", "other": "UPSERT", "batch_id": 1, "name": "a",
        "columns": ["v"] , "what": "id = 1", "condition": "id = 1", "values": {"id": "0"},
    }  # fmt: skip


def means_something(call: str, parameter: inspect.Parameter, value: object) -> bool:
    """Whether the value is one of those that the parameter takes."""
    name, kind = parameter.name, str(parameter.annotation)
    if value is parameter.default or value == parameter.default:
        return type(value) is type(parameter.default)
    return (
        (value is False and "bool" in kind)
        or (value == "" and name in FREE)
        or (value == 0 and type(value) is int and (name in NUMBERS or name in ZERO.get(call, ())))
        or (type(value) in (list, dict) and value in NOTHING.get(name, ()))
        or (value == [] and name == "partition_by")
    )


def run_to_the_end(found: object) -> None:
    """A call that only describes something, or is a block, has not done anything yet."""
    if isinstance(found, MergeBuilder):
        found.when_matched_delete().execute()
    elif isinstance(found, OptimizeBuilder):
        found.execute()
    elif isinstance(found, AbstractContextManager) and not isinstance(found, LakeTable):
        with found:
            pass


def calls(table: LakeTable) -> Iterator[tuple[str, Callable[..., object]]]:
    for name in dir(LakeTable):
        found = inspect.getattr_static(LakeTable, name)
        if not name.startswith("_") and name not in ALIASES and (inspect.isfunction(found) or isinstance(found, classmethod)):
            yield name, getattr(table, name)
    yield "sql of the session", sql
    for group in (table.columns, table.upkeep, table.locks):
        yield from methods(type(group).__name__, lambda group=group: group)  # type: ignore[misc]
    yield from methods("optimize", table.optimize)
    yield from methods("merge", lambda: table.merge(table.read(), "id"))


def methods(label: str, made: Callable[[], object]) -> Iterator[tuple[str, Callable[..., object]]]:
    """The methods of what is made, each on one that is new."""
    first = made()
    for name in dir(type(first)):
        found = inspect.getattr_static(type(first), name)
        if name.startswith("_") or not inspect.isfunction(found) or not inspect.signature(found).parameters.keys() - {"self"}:
            continue

        def call(*args: object, _name: str = name, **kwargs: object) -> object:
            return getattr(made(), _name)(*args, **kwargs)

        call.__signature__ = inspect.signature(getattr(first, name))  # type: ignore[attr-defined]
        yield f"{label}.{name}", call


def test_every_parameter_refuses_a_falsy_value_of_another_kind_before_any_work(
    table: LakeTable, spark: SparkSession, tmp_path: Path
) -> None:
    given, before, wrong = needed(table, spark, str(tmp_path)), table.history().count(), []
    tried = 0
    for name, call in calls(table):
        parameters = inspect.signature(call).parameters
        required = {each: given[each] for each, found in parameters.items() if found.default is found.empty and each in given}
        for parameter in parameters.values():
            for value in VALUES:
                if means_something(name, parameter, value):
                    continue
                tried += 1
                try:
                    every = parameter.kind is parameter.VAR_POSITIONAL
                    run_to_the_end(call(value) if every else call(**{**required, parameter.name: value}))
                    wrong.append(f"{name}({parameter.name}={value!r}) is taken")
                except LakelockError as error:
                    if not error.hint:
                        wrong.append(f"{name}({parameter.name}={value!r}) has no hint: {error}")
                except Exception as error:  # noqa: BLE001 - of every origin: ours, Spark's, Python's
                    wrong.append(f"{name}({parameter.name}={value!r}): {type(error).__name__}: {str(error)[:90]}")
    assert wrong == [], "\n".join(wrong)
    assert tried > 500
    assert table.history().count() == before
    assert [path.name for path in tmp_path.iterdir()] == []
