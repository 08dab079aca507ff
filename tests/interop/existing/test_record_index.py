"""Hudi's record index: Java's writers that look keys up in it and lakelock write one table, and no key gets a second row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc
import pytest
from tests.api import ArrowEngine, Coordinator, Event, EventKind, StorageLocation
from tests.behaviour.beside_java.test_record_index import by_files, forgotten, index
from tests.behaviour.cli.command_line import run
from tests.faulty_storage import CountingStorage
from tests.interop.conftest import FULL
from tests.interop.existing.test_metadata_merge_on_read import LOGS
from tests.interop.shared import HIVE_STYLE, INDEXED, Layout, Shared
from tests.over_engines import transaction
from tests.sizes import examples, in_ci
from tests.tuning import settings_of

from lakelock.errors import RolledBackError
from lakelock.settings import OptimizeSettings

Share = Callable[..., Shared]
ENABLED = {"hoodie__metadata__global__record__level__index__enable": "true", "hoodie__index__type": "RECORD_INDEX"}
MOVES = {"hoodie__record__index__update__partition__path": "true"}
OFTEN = {"hoodie__metadata__compact__max__delta__commits": "2"}
FLAT = replace(HIVE_STYLE, name="flat", partitions=())
MERGED = replace(HIVE_STYLE, name="merged", table_type="MERGE_ON_READ")


class Indexed:
    """A table that Java makes with a record index, and the checks that it is true."""

    def __init__(self, share: Share, layout: Layout = HIVE_STYLE) -> None:
        self.table = share(layout, create=False)
        self.java("bulk_insert", *((f"k{n}", n, ("eu", "us")[n % 2]) for n in range(8)),
                  hoodie__table__timeline__timezone="UTC")  # fmt: skip
        assert self.is_there

    @property
    def path(self) -> Path:
        return Path(self.table.path)

    @property
    def is_there(self) -> bool:
        return (self.path / ".hoodie/metadata/record_index").exists()

    def java(self, operation: str, *rows: tuple[object, ...], **options: str) -> None:
        self.table.java_changes(operation, *rows, **{**ENABLED, **LOGS, **options})

    def agrees(self) -> None:
        """All readers see the model's rows; Java finds each by the index, which has each key where its row is."""
        table = self.table
        table.agree()
        self.is_true()
        rows = list(table.model.values())
        asked = {f"id = '{row[0]}'": [row[0]] for row in (rows[0], rows[-1])} | {"id = 'never'": []}
        for skipping in (True, False):
            assert table.java.matches(table.path, "id", [*asked], skipping=skipping) == asked
        checks = run("doctor", table.path, "--json", "--config", str(table.hudi_file)).json["checks"]
        assert [each["found"] for each in checks if each["name"] == "metadata" and each["status"] != "ok"] == []

    def is_true(self) -> None:
        assert self.is_there
        assert index(self.path) == by_files(self.path)

    def is_still_true(self) -> None:
        """The same between two looks of all readers; with FULL=1 they look each time."""
        self.agrees() if FULL else self.is_true()


@pytest.mark.in_ci
@pytest.mark.sampled(promise=INDEXED)
@pytest.mark.parametrize(
    "layout", [HIVE_STYLE, FLAT, replace(HIVE_STYLE, name="version_8", version=8)], ids=lambda layout: layout.name
)
def test_upserts_of_java_by_its_record_index_between_those_of_lakelock_make_no_second_row(share: Share, layout: Layout) -> None:
    both = Indexed(share, layout)
    table = both.table
    engine = table.engine(**{"upkeep.auto": False})
    new = [("k1", 700, "us"), ("n1", 50, "us"), ("n2", 60, "zz")]
    engine.upsert(table.rows(*new))
    table.put(*new)
    both.agrees()
    both.java("upsert", ("n1", 51, "us"), ("n2", 61, "zz"), ("j1", 1, "eu"))
    both.is_still_true()
    for turn in range(examples(2, 3)):
        rows = [("j1", 100 + turn, "eu"), (f"m{turn}", turn, "eu"), ("n2", 200 + turn, "zz")]
        engine.upsert(table.rows(*rows))
        table.put(*rows)
        both.java("upsert", (f"m{turn}", 300 + turn, "eu"), ("k3", turn, "us"), **OFTEN)
        both.is_still_true()
    both.agrees()
    engine.delete(pc.field("id") == "m1")
    table.drop(table.key(("m1", 0, "eu")))
    both.is_still_true()
    both.java("upsert", ("m1", 400, "us"))  # deleted by lakelock, inserted again elsewhere by Java
    both.agrees()
    engine.delete(pc.field("id") == "m1")
    table.drop(table.key(("m1", 0, "us")))
    engine.insert(table.rows(("m1", 401, "zz")))
    table.put(("m1", 401, "zz"))
    both.is_still_true()
    both.java("upsert", ("m1", 402, "zz"))
    both.agrees()
    engine.optimize()
    both.is_still_true()
    both.java("upsert", *((row[0], 1000 + n, row[2]) for n, row in enumerate(list(table.model.values()))))
    both.agrees()


class Merged(Indexed):
    """Such a merge-on-read table: both write log files."""

    def __init__(self, share: Share, layout: Layout) -> None:
        super().__init__(share, layout)
        self.engine = self.table.engine(**{"upkeep.auto": False})

    def ours(self, *rows: tuple[object, ...]) -> str:
        self.table.put(*rows)
        return self.engine.upsert(self.table.rows(*rows)).instant

    def deletes(self, *rows: tuple[object, ...]) -> None:
        self.engine.delete(pc.field("id").isin([row[0] for row in rows]))
        self.table.drop(*map(self.table.key, rows))

    @property
    def logs(self) -> int:
        return sum(len(each.logs) for each in self.table.coordinator().shown().logged)

    def compact(self) -> None:
        told = {"hoodie.compact.inline.max.delta.commits": "1", "hoodie.write.table.version": str(self.table.layout.version)}
        told |= {"hoodie.write.auto.upgrade": "false", **{name.replace("__", "."): value for name, value in ENABLED.items()}}
        options = ",".join(f"{name}={value}" for name, value in (told | dict(self.table.statistics)).items())
        self.table.java.sql(f"CALL run_compaction(op => 'run', path => '{self.path}', options => '{options}')")


MERGE_ON_READ = pytest.mark.parametrize("layout", [MERGED, replace(MERGED, name="version_8", version=8)], ids=lambda e: e.name)


@pytest.mark.in_ci
@pytest.mark.sampled(promise=INDEXED)
@MERGE_ON_READ
def test_log_files_and_compactions_of_both_leave_each_key_where_its_row_is(share: Share, layout: Layout) -> None:
    both = Merged(share, layout)
    both.ours(("k1", 700, "us"), ("n1", 50, "us"), ("n2", 60, "zz"))
    both.java("upsert", ("n1", 51, "us"), ("n2", 61, "zz"), ("j1", 1, "eu"))
    both.is_true()
    both.deletes(("k3", 0, "us"))
    both.java("delete", ("k5", 0, "us"))
    assert both.logs >= 3
    assert not {"k3", "k5"} & index(both.path).keys()
    both.java("upsert", ("k3", 1, "us"), ("k1", 2, "us"))  # deleted by the other, and inserted again
    both.ours(("k5", 3, "us"))
    both.agrees()
    both.compact()  # of the file group that had both before
    both.is_true()
    both.deletes(("k3", 1, "us"), ("k0", 0, "eu"))
    both.java("upsert", ("k0", 4, "zz"))
    assert both.engine.optimize(sizes=OptimizeSettings(small_file_bytes=1)).compacted >= 1
    both.is_true()
    both.java("delete", ("k1", 2, "us"))
    both.ours(("k7", 5, "us"), ("k3", 6, "us"))
    both.agrees()


@pytest.mark.in_ci
@pytest.mark.sampled(promise=INDEXED)
@MERGE_ON_READ
def test_log_files_that_are_overwritten_or_restored_leave_each_key_where_its_row_is(share: Share, layout: Layout) -> None:
    both = Merged(share, layout)
    table, then = both.table, both.ours(("k1", 700, "us"), ("n2", 60, "zz"))
    kept = dict(table.model)
    both.deletes(("k3", 0, "us"))
    both.java("upsert", ("k3", 1, "zz"), ("k5", 2, "us"))
    both.engine.overwrite_partitions(table.rows(("o1", 6, "us"), ("k1", 7, "us")))
    table.replace_partition(("us",), ("o1", 6, "us"), ("k1", 7, "us"))
    both.is_true()
    both.java("upsert", *((row[0], 1000 + n, row[2]) for n, row in enumerate(table.model.values())), ("k7", 1, "eu"))
    both.agrees()
    both.engine.restore(then)
    table.model = kept
    both.is_true()
    both.java("upsert", ("k3", 8, "us"), ("k0", 9, "eu"), ("o1", 10, "zz"))
    both.agrees()


@pytest.mark.in_ci
@pytest.mark.sampled(promise=INDEXED)
def test_who_began_earlier_and_commits_later_hides_nothing_from_java(share: Share) -> None:
    """Java merges its metadata table in the order of instants, not in that of commits."""
    both = Indexed(share)
    table = both.table
    table.statistics = {}
    both.java("upsert", ("k0", 0, "eu"))
    first, second = (table.engine(**{"upkeep.auto": False}) for _ in range(2))
    new = [("k1", 10**6, "zz"), ("n9", 7, "zz")]
    with first.coordinator.begin("INSERT") as tx:
        second.delete(pc.field("id") == "k1")
        with pytest.raises(RolledBackError, match="record index"):
            first.insert_in(tx, table.rows(*new))
    with first.coordinator.begin("INSERT") as tx:
        second.insert(table.rows(("n0", 5, "zz")))
        first.insert_in(tx, table.rows(*new))
    table.drop(table.key(("k1", 1, "us")))
    table.put(("n0", 5, "zz"), *new)
    asked = {"id = 'k1'": ["k1"], "id = 'n0'": ["n0"], "id = 'n9'": ["n9"], "v = 1000000": ["k1"], "v = 5": ["k5", "n0"]}
    assert table.java.matches(table.path, "id", [*asked], skipping=True) == asked
    both.java("upsert", ("k1", 11, "zz"))
    both.agrees()


@pytest.mark.in_ci
@pytest.mark.sampled(promise=INDEXED)
def test_rows_that_either_side_moves_to_another_partition_are_found_there(share: Share) -> None:
    both = Indexed(share)
    table = both.table
    engine = table.engine(**{"upkeep.auto": False})
    both.table.java_write("upsert", ("k0", 10, "us"), ("k1", 11, "zz"), **ENABLED, **MOVES)
    for old, new in ((("k0", 0, "eu"), ("k0", 10, "us")), (("k1", 0, "us"), ("k1", 11, "zz"))):
        table.drop(table.key(old))
        table.put(new)
    both.agrees()
    with transaction(engine) as tx:
        tx[engine].delete(pc.field("id") == "k0")
        tx[engine].insert(table.rows(("k0", 20, "zz")))
    table.drop(table.key(("k0", 0, "us")))
    table.put(("k0", 20, "zz"))
    both.agrees()
    both.java("upsert", ("k0", 30, "zz"))
    both.agrees()
    engine.overwrite_partitions(table.rows(("z1", 1, "zz")))
    table.replace_partition(("zz",), ("z1", 1, "zz"))
    both.agrees()
    both.java("upsert", ("k0", 40, "eu"), ("k1", 41, "eu"), ("z1", 2, "zz"))
    both.agrees()


@pytest.mark.in_ci
@pytest.mark.sampled(promise=INDEXED)
def test_a_commit_that_the_index_lacks_is_brought_in_late_or_the_index_is_removed_and_java_builds_it_anew(share: Share) -> None:
    both = Indexed(share)
    table = both.table
    engine = table.engine(**{"upkeep.auto": False})
    lost = engine.upsert(table.rows(("n1", 1, "eu"))).instant
    table.put(("n1", 1, "eu"))
    forgotten(both.path, lost)
    engine.upsert(table.rows(("n2", 2, "eu")))
    table.put(("n2", 2, "eu"))
    both.agrees()
    lost = engine.upsert(table.rows(("n3", 3, "zz"))).instant
    engine.upsert(table.rows(("n4", 4, "us")))
    table.put(("n3", 3, "zz"), ("n4", 4, "us"))
    forgotten(both.path, lost)
    engine.upsert(table.rows(("n5", 5, "us")))
    table.put(("n5", 5, "us"))
    assert not both.is_there
    table.agree()
    both.java("upsert", ("n3", 33, "zz"), ("n1", 11, "eu"), ("n5", 55, "us"))
    both.agrees()
    engine.upsert(table.rows(("n3", 34, "zz"), ("n6", 6, "eu")))
    table.put(("n3", 34, "zz"), ("n6", 6, "eu"))
    both.agrees()


@pytest.mark.sampled(promise=INDEXED)
@pytest.mark.parametrize(
    "layout", [FLAT, *in_ci(replace(FLAT, name="merged", table_type="MERGE_ON_READ"))], ids=lambda e: e.name
)
def test_lakelock_asks_the_index_where_keys_are_and_opens_no_other_file(share: Share, layout: Layout) -> None:
    both = Indexed(share, layout)
    table, told = both.table, list[Event]()
    storage = CountingStorage(table.storage)
    settings = settings_of({"upkeep.auto": False, "write.index": "global"}, file=table.hudi_file)
    location = StorageLocation(table.storage.uri)
    with Coordinator.open(location, settings, storage=storage, listeners=(told.append,)) as coordinator:
        engine = ArrowEngine(coordinator)
        for n in range(12):
            rows = [(f"a{n:02}", n, "eu"), (f"z{n:02}", n, "eu")]
            engine.insert(table.rows(*rows))
            table.put(*rows)

        def opened(act: Callable[[], object]) -> int:
            before = {str(path.relative_to(both.path)) for path in both.path.glob("*.parquet")}
            storage.reset()
            act()
            return len({key for op, key in storage.calls if op == "open_input" and key in before})

        new = [("a05", 700, "eu"), ("m1", 1, "eu"), ("k1", 701, "us")]
        assert opened(lambda: engine.upsert(table.rows(*new))) == 2
        table.put(*new)
        both.agrees()
        both.java("upsert", ("m1", 2, "eu"), ("j1", 3, "eu"), ("z07", 702, "eu"))
        both.agrees()
        new = [("j1", 4, "eu"), ("m1", 5, "eu"), ("m2", 6, "eu")]
        assert opened(lambda: engine.upsert(table.rows(*new))) <= 2
        table.put(*new)
        engine.delete_keys(table.rows(("a03", 0, "eu"), ("never", 0, "eu")))
        table.drop(table.key(("a03", 0, "eu")))
        both.agrees()
        engine.insert(table.rows(("a03", 8, "eu")))  # deleted, and inserted again
        table.put(("a03", 8, "eu"))
        engine.upsert(table.rows(("a03", 9, "eu")))
        table.put(("a03", 9, "eu"))
        both.agrees()
        assert not [event for event in told if event.kind is EventKind.ALERT]
        forgotten(both.path, engine.upsert(table.rows(("a04", 10, "eu"), ("m3", 11, "eu"))).instant)
        new = [("a04", 12, "eu"), ("m3", 13, "eu")]
        assert opened(lambda: engine.upsert(table.rows(*new))) > 8
        table.put(*new)
        assert any("could not be used" in str(e.facts.get("problem")) for e in told if e.kind is EventKind.ALERT)
        both.agrees()
