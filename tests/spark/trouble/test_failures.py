"""Tasks that fail, are retried or run twice, and executors that lack the package."""

from __future__ import annotations

import os
import pkgutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark import TaskContext, cloudpickle
from pyspark.sql import DataFrame, SparkSession
from tests.sizes import in_ci
from tests.spark.sparks import since_spark_4

from lakelock.errors import StorageUnavailable, WriteFailed
from lakelock.spark_plugin import LakeTable, changing, inserting, lookup

pytestmark = pytest.mark.usefixtures("on_executors")

cloudpickle.register_pickle_by_value(sys.modules[__name__])

COLUMNS = "id long, p string, v long"
STAGES = [
    (inserting, "insert_stage"),
    *((lookup, name) for name in ("pack_stage", "look_stage", "tag_stage")),
    (changing, "rewrite_stage"),
    (changing, "change_stage"),
]


def rows(spark: SparkSession, *values: tuple[object, ...]) -> DataFrame:
    return spark.createDataFrame(list(values), COLUMNS)


def content(table: LakeTable) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in table.read().collect())


@pytest.fixture
def table(spark: SparkSession, path: str) -> LakeTable:
    made = LakeTable.create(spark, path, schema=rows(spark), key="id", partition_by="p", options={"retry.attempts": 1})
    made.insert(rows(spark, (1, "a", 10), (2, "a", 20), (3, "b", 30)))
    return made


def every_write(spark: SparkSession, table: LakeTable) -> None:
    table.insert(rows(spark, (4, "a", 40), (5, "c", 50)))
    table.upsert(rows(spark, (1, "a", 11), (6, "b", 60), (7, "d", 70)))
    table.delete("id = 2 or id = 5")
    table.delete(rows(spark, (3, "b", 0)))


AFTER = [(1, "a", 11), (4, "a", 40), (6, "b", 60), (7, "d", 70)]


def assert_one_file_per_group_and_instant(path: str) -> None:
    names = [file.name for file in Path(path).glob("p=*/*.parquet")]
    slices = [(name.split("_")[0], name.split("_")[2]) for name in names]
    assert len(set(slices)) == len(slices)


def dying(stage: Callable[..., Iterator[object]]) -> Callable[..., Iterator[object]]:
    """The stage, but every first attempt of a task does all its work and dies before it can tell."""

    def run(plan: object, batches: Iterator[object]) -> Iterator[object]:
        done = list(stage(plan, batches))
        if TaskContext.get().attemptNumber() == 0:
            raise RuntimeError("the executor was lost")
        yield from done

    return run


def doubled(stage: Callable[..., Iterator[object]]) -> Callable[..., Iterator[object]]:
    """The stage, but as if a speculative twin had written everything as well, and lost the race."""

    def run(plan: object, batches: Iterator[object]) -> Iterator[object]:
        received = list(batches)
        list(stage(plan, iter(received)))
        import lakelock.spark_plugin.write_stages as reports

        twin, original = reports.this_task(), reports.this_task
        for module in [sys.modules[stage.__module__]]:
            module.this_task = lambda: type(twin)(twin.partition, twin.stage, twin.attempt + 1000)  # type: ignore[attr-defined]
        try:
            yield from stage(plan, iter(received))
        finally:
            sys.modules[stage.__module__].this_task = original  # type: ignore[attr-defined]

    return run


@pytest.mark.parametrize("trouble", [doubled, *in_ci(dying)])
def test_failed_and_speculative_tasks_leave_one_file_per_group_and_instant(
    spark: SparkSession, table: LakeTable, path: str, monkeypatch: pytest.MonkeyPatch, trouble: Callable[..., object]
) -> None:
    for module, name in STAGES:
        monkeypatch.setattr(module, name, trouble(getattr(module, name)))
    every_write(spark, table)
    assert content(table) == AFTER
    assert_one_file_per_group_and_instant(path)
    assert list(Path(path).glob(".hoodie/.temp/*/*")) == []


def outage(stage: Callable[..., Iterator[object]]) -> Callable[..., Iterator[object]]:
    """The stage, but the storage does not answer each first attempt."""

    def run(plan: object, batches: Iterator[object]) -> Iterator[object]:
        if TaskContext.get().attemptNumber() == 0:
            raise StorageUnavailable("no answer", hint="wait")
        yield from stage(plan, batches)

    return run


def down(stage: Callable[..., Iterator[object]]) -> Callable[..., Iterator[object]]:
    """The stage, but the storage never answers."""

    def run(plan: object, batches: Iterator[object]) -> Iterator[object]:
        raise StorageUnavailable("no answer at all", hint="wait")
        yield from stage(plan, batches)

    return run


def test_an_outage_is_what_task_retries_are_for(spark: SparkSession, table: LakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in STAGES:
        monkeypatch.setattr(module, name, outage(getattr(module, name)))
    every_write(spark, table)
    assert content(table) == AFTER


@pytest.mark.parametrize("stage", [2, *in_ci(1)])
def test_an_outage_that_lasts_is_a_typed_error(
    spark: SparkSession, table: LakeTable, monkeypatch: pytest.MonkeyPatch, stage: int
) -> None:
    monkeypatch.setattr(*STAGES[stage], down(getattr(*STAGES[stage])))
    with pytest.raises(StorageUnavailable, match="no answer at all") as caught:
        table.upsert(rows(spark, (1, "a", 11)))
    assert caught.value.hint == "wait"
    assert len(content(table)) == 3


@pytest.mark.in_ci
def test_executors_without_the_package_are_told_of(
    spark: SparkSession, table: LakeTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocker = tmp_path / "without"
    blocker.mkdir()
    (blocker / "sitecustomize.py").write_text(
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'lakelock':\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
    )
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{blocker}:$PYTHONPATH" exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(python))
    with pytest.raises(WriteFailed, match="executors cannot import 'lakelock") as caught:
        table.insert(rows(spark, (4, "a", 1)))
    assert "`lakelock package`" in caught.value.hint
    assert "PYSPARK_PYTHON" in caught.value.hint
    monkeypatch.undo()
    assert len(content(table)) == 3


@pytest.mark.in_ci
@since_spark_4
@pytest.mark.skipif(
    "pyspark_lakelock" not in {module.name for module in pkgutil.iter_modules()},
    reason="Spark finds data sources of packages that are really there: wheels and strict editables",
)
def test_an_installed_package_registers_its_data_source_by_itself(table: LakeTable, path: str) -> None:
    program = (
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false').getOrCreate()\n"
        f"print('rows', spark.read.format('lakelock').load({path!r}).count())"
    )
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=env)
    assert "rows 3" in done.stdout, done.stderr[-2000:]
