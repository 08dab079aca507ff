"""Which task writes what: the plan of an upsert keeps together what must be together, and balances the rest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakelock.spark_plugin.write_stages import FileTarget, plan_routes, slot_of, spark_hash, values_for

partitions = st.sampled_from(["", "a", "b=1", "c/d", "é"])


def test_our_hash_of_an_int_is_sparks(spark: SparkSession) -> None:
    numbers = [0, 1, 2, 41, 65_535, 2**31 - 1]
    rows = spark.createDataFrame([(n,) for n in numbers], "n int").select(F.hash("n")).collect()
    assert [row[0] for row in rows] == [spark_hash(n) for n in numbers]


def test_rows_shuffled_by_a_pack_value_land_in_the_task_of_that_pack(spark: SparkSession) -> None:
    values = values_for(7)
    frame = spark.createDataFrame([(v,) for v in values], "v int").repartition(7, "v")
    landed = {row.v: row.p for row in frame.select("v", F.spark_partition_id().alias("p")).collect()}
    assert landed == {value: pack for pack, value in enumerate(values)}


@st.composite
def upserts(draw: st.DrawFn) -> tuple[dict[tuple[str, int], int], list[FileTarget]]:
    files = draw(st.lists(st.builds(FileTarget, partitions, st.integers(0, 10**9), st.integers(0, 2000)), max_size=8))
    counts: dict[tuple[str, int], int] = {}
    for route, file in enumerate(files):
        if draw(st.booleans()):
            counts[file.partition, route] = draw(st.integers(1, 3000))
    for partition, key, rows in draw(st.lists(st.tuples(partitions, st.text(max_size=3), st.integers(1, 3000)), max_size=20)):
        counts[partition, len(files) + slot_of(partition, key)] = rows
    return counts, files


@given(upserts(), st.integers(1, 5), st.integers(1, 2000), st.integers(1, 5000))
def test_all_rows_of_one_file_group_meet_in_one_task(
    upsert: tuple[dict[tuple[str, int], int], list[FileTarget]], tasks: int, target_rows: int, task_rows: int
) -> None:
    counts, files = upsert
    routes = plan_routes(counts, files, tasks=tasks, target_rows=target_rows, task_rows=task_rows)
    tasks_of: dict[object, set[int]] = {}
    for partition, route in counts:
        target = route if route < len(files) else routes.target_of(partition, route - len(files))
        tasks_of.setdefault(target, set()).add(routes.pack_values[route])
    assert all(len(found) == 1 for found in tasks_of.values())
    assert routes.rewritten == {route for _, route in counts if route < len(files)}
    assert all(routes.adopted[p] in routes.rewritten and files[routes.adopted[p]].partition == p for p in routes.adopted)
    assert set(routes.pack_values) <= set(values_for(routes.packs))


def test_equal_groups_are_spread_evenly_over_the_tasks() -> None:
    files = [FileTarget("", 1000, 100) for _ in range(16)]
    routes = plan_routes({("", n): 10 for n in range(16)}, files, tasks=4, target_rows=1000, task_rows=10**6)
    assert routes.packs == 4
    assert sorted([routes.pack_values[:16].count(v) for v in values_for(4)]) == [4, 4, 4, 4]


def test_new_keys_join_the_smallest_file_that_is_rewritten_anyhow() -> None:
    files = [FileTarget("p", 10, 500), FileTarget("p", 10, 300), FileTarget("p", 10, 1)]
    counts = {("p", 0): 1, ("p", 1): 1, ("p", 3 + slot_of("p", "new")): 100}
    routes = plan_routes(counts, files, tasks=2, target_rows=1000, task_rows=10**6)
    assert routes.adopted == {"p": 1}
    full = plan_routes(counts, files, tasks=2, target_rows=350, task_rows=10**6)
    assert full.adopted == {}


def test_new_keys_do_not_join_a_file_that_they_would_make_too_big() -> None:
    files = [FileTarget("p", 90_000, 300)]
    counts = {("p", 0): 1, ("p", 1 + slot_of("p", "new")): 100}
    assert plan_routes(counts, files, tasks=2, target_rows=1000, target_bytes=120_000).adopted == {"p": 0}
    assert plan_routes(counts, files, tasks=2, target_rows=1000, target_bytes=119_000).adopted == {}


def test_wide_rows_go_to_more_tasks_and_groups() -> None:
    counts = {("p", slot_of("p", str(key))): 10_000 for key in range(500)}
    rows_of_a_kilobyte = plan_routes(counts, [], tasks=2, target_rows=10**6, row_bytes=1 << 10)
    assert (rows_of_a_kilobyte.packs, len({rows_of_a_kilobyte.target_of("p", route) for _, route in counts})) == (1, 1)
    rows_of_sixteen = plan_routes(counts, [], tasks=2, target_rows=10**6, row_bytes=16 << 10)
    assert (rows_of_sixteen.packs, len({rows_of_sixteen.target_of("p", route) for _, route in counts})) == (10, 10)


def test_many_new_keys_of_one_partition_go_to_several_groups_and_tasks() -> None:
    counts = {("p", slot_of("p", str(key))): 1000 for key in range(500)}
    routes = plan_routes(counts, [], tasks=2, target_rows=8000, task_rows=10**6)
    groups = {routes.target_of("p", route) for _, route in counts}
    assert len(groups) == 4
    assert routes.packs == 2
