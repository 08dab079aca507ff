"""Table version 8 with Java Hudi 1.0.2, as EMR 7 and Glue 5.1 have it: both sides make tables, write, collide and tidy up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.api import TableProperties
from tests.interop.at_once.test_at_once import WITHIN_S, write_at_once
from tests.interop.existing.test_metadata_merge_on_read import MERGED, Both
from tests.interop.existing.test_metadata_statistics import row as typed
from tests.interop.existing.test_metadata_table import OFTEN
from tests.interop.shared import KEPT_METADATA, LOCKS, LOGGED, MADE_BY_EITHER, TIDIED, Layout, Shared
from tests.interop.witness import JavaError, Witness, witness
from tests.servers.fetched.hudi_jars import HUDI_SPARK_1_0
from tests.servers.fetched.java_hudi import java_hudi
from tests.sizes import but
from tests.waiting import eventually

from lakelock.errors import ConflictError, TableError
from lakelock.table.eligibility import check_writable
from lakelock.table.properties import read_properties
from lakelock.testing.service import Service

PLAIN = Layout("version_8", version=8)
ORDERED = Layout("ordered", ordering="v", version=8)
ONE_KEY_TWO_PARTITIONS = Layout("deep", partitions=("region", "day"), version=8, schema=pa.schema(
    [("id", pa.string()), ("v", pa.int64()), ("region", pa.string()), ("day", pa.string())]))  # fmt: skip
UNPARTITIONED = Layout("flat", partitions=(), version=8)
TIDY = {
    "clean.policy": "KEEP_LATEST_COMMITS", "clean.keep_commits": 1, "clean.readers_s": 0, "archive.min_commits": 3,
    "archive.max_commits": 4, "archive.min_age_s": 0,
}  # fmt: skip
Tables = Callable[..., Shared]


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Witness]:
    hudi = replace(java_hudi(), jars=tuple(HUDI_SPARK_1_0.fetch().glob("*.jar")))
    with witness(hudi, tmp_path_factory.mktemp("java-1.0")) as found:
        yield found


@pytest.fixture
def tables(java: Witness, zookeeper: Service, tmp_path: Path) -> Iterator[Tables]:
    made: list[Shared] = []

    def table(layout: Layout = PLAIN, *, create: bool = True) -> Shared:
        found = Shared(java, tmp_path, {}, layout)
        found.lock = LOCKS["zookeeper"](zookeeper, found.name)
        made.append(found)
        return found.create() if create else found

    yield table
    for each in made:
        each.close()


def row(layout: Layout, key: str, v: int) -> tuple[object, ...]:
    return (key, v, "eu" if key < "c" else "us", "monday")[: len(layout.schema)]


LAYOUTS = (PLAIN, ORDERED, ONE_KEY_TWO_PARTITIONS, UNPARTITIONED)
KEPT = (ONE_KEY_TWO_PARTITIONS, "java")
EITHER = [(layout, creates) for layout in LAYOUTS for creates in ("lakelock", "java")]


@pytest.mark.in_ci
@pytest.mark.sampled(promise=MADE_BY_EITHER)
@pytest.mark.parametrize(("layout", "creates"), but(EITHER, [KEPT, (ORDERED, "lakelock")]))
def test_both_write_a_table_that_either_has_made(tables: Tables, layout: Layout, creates: str) -> None:
    table = tables(layout, create=creates == "lakelock")

    def by_java(*values: tuple[object, ...]) -> None:
        table.java_write("upsert", *values, hoodie__table__timeline__timezone="UTC")
        table.put(*values)

    def by_lakelock(*values: tuple[object, ...]) -> None:
        table.engine().upsert(table.rows(*values))
        table.put(*values)

    if creates == "lakelock":
        by_lakelock(row(layout, "a", 1), row(layout, "d", 1))
        table.agree()
    by_java(row(layout, "a", 2), row(layout, "b", 2))
    by_lakelock(row(layout, "a", 3), row(layout, "e", 3))
    by_java(row(layout, "e", 4))
    table.agree()
    assert read_properties(table.storage).version == 8


@pytest.mark.in_ci
def test_what_lakelock_makes_says_of_itself_what_java_says(tables: Tables) -> None:
    for layout in (PLAIN, ORDERED, ONE_KEY_TWO_PARTITIONS):
        theirs = tables(layout, create=False)
        theirs.java_write("insert", row(layout, "a", 1), hoodie__table__timeline__timezone="UTC")
        found, ours = read_properties(theirs.storage), layout.properties(theirs.name)
        assert found.differences(ours) <= {"hoodie.table.create.schema", "hoodie.table.base.file.format"}


@pytest.mark.in_ci
def test_of_two_that_rewrite_one_file_group_one_loses_whoever_commits_first(tables: Tables, tmp_path: Path) -> None:
    table = tables()
    table.engine().insert(table.rows(("a", 1, "eu")))
    gate = tmp_path / "gate"
    slow = table.begin_java("upsert", ("a", 2, "eu"), gate=gate)
    eventually(table.pending)
    table.engine().upsert(table.rows(("a", 3, "eu")))
    gate.touch()
    with pytest.raises(JavaError) as lost:
        slow.result()
    assert "HoodieWriteConflictException" in lost.value.classes
    coordinator = table.coordinator()
    with coordinator.begin("UPSERT") as tx:
        table.java_write("upsert", ("a", 4, "eu"))
        with pytest.raises(ConflictError):
            table.engine().upsert_in(tx, table.rows(("a", 5, "eu")))
    table.put(("a", 4, "eu"))
    table.agree()


@pytest.mark.in_ci
@pytest.mark.sampled(promise=TIDIED)
def test_java_goes_on_after_lakelock_has_cleaned_and_archived(tables: Tables) -> None:
    table = tables()
    engine = table.engine(**TIDY)
    for number in range(8):
        engine.upsert(table.rows(("a", number, "eu")))
    tidied = engine.coordinator.upkeep()
    assert tidied.cleaned.files and tidied.archived.instants
    for number in range(3):
        table.java_write("upsert", ("b", number, "us"), hoodie__clean__commits__retained="1", hoodie__keep__min__commits="2",
                         hoodie__keep__max__commits="3")  # fmt: skip
    engine.upsert(table.rows(("a", 9, "eu")))
    assert engine.coordinator.upkeep().cleaned.files
    table.put(("a", 9, "eu"), ("b", 2, "us"))
    table.agree()


@pytest.mark.in_ci
@pytest.mark.sampled(promise=LOGGED)
@pytest.mark.timeout(WITHIN_S)
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_both_write_at_once_and_lose_no_update(tables: Tables, kind: str) -> None:
    write_at_once(tables(Layout("at_once", version=8, table_type=kind)))


@pytest.mark.in_ci
@pytest.mark.sampled(promise=LOGGED)
def test_both_write_a_merge_on_read_table_and_its_metadata_table(tables: Tables) -> None:
    both = Both(tables, replace(MERGED, version=8), *(typed(n, ("eu", "us")[n % 2]) for n in range(20)))
    both.ours(typed(0, "eu", v=-5, s="ours", d=-1.5), typed(1, "us", v=-6))
    both.deletes(typed(3, "us"))
    assert both.logged() == 3
    both.agree("v", "s", "d", "at", "small")
    both.theirs("upsert", typed(2, "eu", v=-7, s="theirs"), typed(30, "zz"))
    both.theirs("delete", typed(5, "us"))
    both.ours(typed(2, "eu", s="again"), typed(31, "zz"), typed(32, "us"))
    both.agree("v", "s")
    both.compact()
    both.ours(typed(2, "eu", v=-9))
    # Not a row with a null: of such a row Java 1.0 fails to make the statistics of its log file.
    both.theirs("upsert", typed(6, "eu", v=-10), **OFTEN)
    both.agree("v", "s")


@pytest.mark.in_ci
@pytest.mark.sampled(promise=KEPT_METADATA)
def test_java_reads_what_lakelock_has_compacted_of_its_metadata_table_and_goes_on(tables: Tables) -> None:
    table = tables(create=False)
    table.statistics = {}
    table.java_write("bulk_insert", row(PLAIN, "a", 1), row(PLAIN, "d", 1), hoodie__table__timeline__timezone="UTC")
    table.put(row(PLAIN, "a", 1), row(PLAIN, "d", 1))
    engine = table.engine(**{"upkeep.auto": False})
    for v in range(10):
        engine.upsert(table.rows(row(PLAIN, "a", v), row(PLAIN, f"b{v}", v)))
        table.put(row(PLAIN, "a", v), row(PLAIN, f"b{v}", v))
    assert engine.coordinator.upkeep().metadata.compacted
    table.agree()
    table.java_write("upsert", row(PLAIN, "d", 2), hoodie__metadata__compact__max__delta__commits="1")
    table.put(row(PLAIN, "d", 2))
    table.agree()


def test_a_table_that_was_upgraded_from_older_keys_is_not_written() -> None:
    made = ONE_KEY_TWO_PARTITIONS.properties("t")
    old = TableProperties({**made.values, "hoodie.table.initial.version": "6"})
    check_writable(made)
    with pytest.raises(TableError, match="upgraded from table version 6, and releases of Hudi differ in how they spell keys"):
        check_writable(old)
