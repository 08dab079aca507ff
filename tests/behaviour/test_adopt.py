"""`lakelock adopt` changes properties and the metadata table of a table that Java Hudi made, and nothing else."""

from __future__ import annotations

import os
import shutil
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from tests.api import ArrowEngine, Coordinator, LocalStorage, Resource, StorageLocation, lock_request
from tests.behaviour.cli.command_line import run
from tests.golden_tables import unpack

from lakelock.admin.adopt import Wishes, adopt, plan_adoption
from lakelock.admin.java_writers import java_options
from lakelock.admin.manual_changes import read_audit
from lakelock.errors import LockError, TableError
from lakelock.events import Event, EventKind
from lakelock.settings import Settings
from lakelock.table.properties import read_properties

ZONE, METADATA = "hoodie.table.timeline.timezone", "hoodie.table.metadata.partitions"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of Java Hudi as its defaults leave it: its files are as old as their names say, and a metadata table is on."""
    root = unpack("java12_ops", tmp_path)
    properties = root / ".hoodie" / "hoodie.properties"
    lines = [line for line in properties.read_text().splitlines() if not line.startswith((ZONE, METADATA))]
    properties.write_text("\n".join([*lines, f"{METADATA}=files", f"{METADATA}.inflight="]) + "\n")
    metadata = root / ".hoodie" / "metadata" / "files"
    metadata.mkdir(parents=True)
    for name in ("files-0000-0_0-0-0_00000000000000000.hfile", ".files-0000-0_20261101000000000.log.1_0-0-0", ".x.crc"):
        (metadata / name).write_bytes(b"x")
    stamp(root)
    return root


def stamp(root: Path, *, ahead_s: float = 0) -> None:
    """Give each file of a completed instant the time in its name."""
    for file in (root / ".hoodie" / "timeline").glob("*_*.*"):
        digits = file.name.partition("_")[2][:17]
        when = datetime.strptime(digits + "000", "%Y%m%d%H%M%S%f").replace(tzinfo=timezone.utc).timestamp() - ahead_s
        os.utime(file, (when, when))


def coordinator(table: Path) -> Coordinator:
    return Coordinator.open(StorageLocation.of(table))


def files(table: Path) -> dict[str, bytes]:
    """Everything but properties, the metadata table and what lakelock keeps for itself."""
    left_out = (".hoodie/hoodie.properties", ".hoodie/metadata", ".hoodie/.lakelock", ".hoodie/.locks", ".hoodie/.hoodie.prop")
    found = {str(file.relative_to(table)): file.read_bytes() for file in table.rglob("*") if file.is_file()}
    return {name: data for name, data in found.items() if not name.startswith(left_out)}


def test_a_dry_run_says_what_would_change_and_changes_nothing(table: Path) -> None:
    before, properties = files(table), (table / ".hoodie/hoodie.properties").read_bytes()
    told = run("adopt", str(table), "--drop-metadata-table", "--dry-run")
    assert told.code == 0
    for text in (
        f"would set {METADATA}=",
        f"would set {ZONE}=UTC",
        "would delete .hoodie/metadata, of Hudi's",
        "proven to be in UTC",
    ):
        assert text in told.out
    assert all(option in told.out for option in java_options(read_properties(LocalStorage(str(table))), Settings()))
    assert "Java Hudi has no such lock on a local disk; next: lakelock locks migrate file://" in told.out
    assert files(table) == before and (table / ".hoodie/hoodie.properties").read_bytes() == properties
    assert (table / ".hoodie/metadata").exists()


def test_the_file_for_java_names_the_lock_and_is_one_that_a_writer_here_reads(table: Path, tmp_path: Path) -> None:
    file, zookeeper = tmp_path / "java.properties", "zookeeper://zk:2181/locks/orders"
    told = run("adopt", str(table), "--dry-run", "--java-properties", str(file))
    assert told.code == 0 and str(file) in told.out
    assert (
        "hoodie.write.lock.provider=org.apache.hudi.client.transaction.lock.StorageBasedLockProvider" in told.out.splitlines()
    )
    assert Settings.resolve(file=str(file)).settings.lock.provider == "storage:"
    assert java_options(read_properties(LocalStorage(str(table))), Settings.resolve({"lock.provider": zookeeper}).settings)[
        -2
    ] == ("hoodie.write.lock.zookeeper.lock_key=orders")


def test_an_adopted_table_is_written_and_only_its_properties_and_metadata_changed(table: Path) -> None:
    before, values = files(table), dict(read_properties(LocalStorage(str(table))).values)
    assert run("adopt", str(table), "--yes", "--drop-metadata-table", "--reason", "shared from today").code == 0
    assert files(table) == before and not (table / ".hoodie/metadata").exists()
    after = read_properties(LocalStorage(str(table))).values
    assert {key for key in {*values, *after} if values.get(key) != after.get(key)} == {ZONE, METADATA}
    assert (after[ZONE], after[METADATA]) == ("UTC", "")
    with coordinator(table) as found:
        rows = ArrowEngine(found).read()
        ArrowEngine(found).upsert(rows.slice(0, 1))
        assert ArrowEngine(found).read().num_rows == rows.num_rows
    again = run("adopt", str(table))
    assert "nothing to do" in again.out and again.code == 0
    assert [(act.action, act.reason, act.outcome) for act in read_audit(LocalStorage(str(table)))] == [
        ("adopt", "shared from today", "done")
    ]


def test_it_can_be_undone_until_the_first_commit(table: Path) -> None:
    assert run("adopt", str(table), "--yes", "--drop-metadata-table").code == 0
    assert run("adopt", str(table), "--undo").code == 0
    values = read_properties(LocalStorage(str(table))).values
    assert ZONE not in values and values[METADATA] == ""
    assert "was not adopted" in run("adopt", str(table), "--undo").err
    assert run("adopt", str(table), "--yes").code == 0
    with coordinator(table) as found:
        ArrowEngine(found).upsert(ArrowEngine(found).read().slice(0, 1))
    refused = run("adopt", str(table), "--undo")
    assert refused.code == 1 and "a commit has come since" in " ".join(refused.err.split())
    assert read_properties(LocalStorage(str(table))).timezone == "UTC"


def test_a_file_for_java_that_cannot_be_written_is_refused_before_the_table_changes(table: Path) -> None:
    before = (table / ".hoodie/hoodie.properties").read_bytes()
    told = run("adopt", str(table), "--yes", "--java-properties", str(table / "no folder" / "java.properties"))
    assert told.code == 2 and "cannot write" in told.err
    assert (table / ".hoodie/hoodie.properties").read_bytes() == before
    assert read_audit(LocalStorage(str(table))) == []


@pytest.mark.parametrize(
    "option", ["--dry-run", "--drop-metadata-table", "--remove-indexes", "--assume-utc", "--java-properties=x"]
)
def test_undo_is_refused_beside_an_option_that_it_would_not_heed(table: Path, option: str) -> None:
    assert run("adopt", str(table), "--yes").code == 0
    told = run("adopt", str(table), "--undo", option)
    assert told.code == 2 and "--undo takes no other wish" in told.err
    assert read_properties(LocalStorage(str(table))).timezone == "UTC"


def copied(table: Path) -> Path:
    """The table with neither metadata table nor zone."""
    properties = table / ".hoodie/hoodie.properties"
    properties.write_text("".join(line for line in properties.open() if not line.startswith(METADATA)))
    shutil.rmtree(table / ".hoodie/metadata")
    return table


@pytest.mark.parametrize("mode", ["OPTIMISTIC", "SINGLE_WRITER"])
def test_the_first_write_records_the_zone_that_the_instants_prove(table: Path, mode: str) -> None:
    events: list[Event] = []
    settings = Settings.resolve({"concurrency.mode": mode}).settings
    with Coordinator.open(StorageLocation.of(copied(table)), settings, listeners=(events.append,)) as found:
        engine = ArrowEngine(found)
        rows = engine.read()
        assert read_properties(found.table.storage).timezone == "LOCAL"
        engine.upsert(rows.slice(0, 1))
        engine.upsert(rows.slice(1, 1))
        assert read_properties(found.table.storage).timezone == found.properties.timezone == "UTC"
        assert sorted(engine.read()["id"].to_pylist()) == sorted(rows["id"].to_pylist())
    told = [event.facts for event in events if event.kind is EventKind.ZONE_RECORDED]
    assert len(told) == 1 and told[0]["zone"] == "UTC" and int(str(told[0]["proven"])) > 1


def test_a_service_that_comes_first_records_the_zone_and_a_dry_run_changes_nothing(table: Path) -> None:
    path = str(copied(table))
    for service in ("upkeep", "clean", "archive", "optimize"):
        assert run(service, path, "--dry-run").code == 0
        assert read_properties(LocalStorage(path)).timezone == "LOCAL"
    assert run("savepoint", "create", path, "first").code == 0
    assert read_properties(LocalStorage(path)).timezone == "UTC"


@pytest.mark.parametrize("state", ["completed", "under way"])
def test_a_write_to_a_table_of_another_zone_is_refused_and_changes_nothing(table: Path, state: str) -> None:
    root = copied(table)
    if state == "completed":
        stamp(root, ahead_s=3600)
    else:
        requested = root / ".hoodie/timeline/20991231235959999.commit.requested"
        requested.touch()
    before = (root / ".hoodie/hoodie.properties").read_bytes()
    with coordinator(root) as found, pytest.raises(TableError, match="are not proven to be in UTC") as caught:
        ArrowEngine(found).upsert(ArrowEngine(found).read().slice(0, 1))
    assert "--assume-utc" in caught.value.hint and "can be read meanwhile" in caught.value.hint
    assert (root / ".hoodie/hoodie.properties").read_bytes() == before
    assert not (root / ".hoodie/.lakelock").exists()


@pytest.mark.parametrize("hours", [-9, -1, 1, 5.5, 12])
def test_instants_of_another_zone_are_not_taken_for_utc(table: Path, hours: float) -> None:
    stamp(table, ahead_s=hours * 3600)
    with coordinator(table) as found:
        with pytest.raises(TableError, match=f"not proven to be in UTC.*{abs(hours) * 60:.0f} minutes") as caught:
            plan_adoption(found)
        assert "--assume-utc" in caught.value.hint
        assert plan_adoption(found, Wishes(assume_utc=True)).changes[ZONE] == "UTC"


def test_a_live_writer_keeps_the_table_from_being_changed(table: Path) -> None:
    other = table.parent / "beside"
    shutil.copytree(table, other)
    assert run("adopt", str(other), "--yes").code == 0
    shutil.copytree(other / ".hoodie/.lakelock", table / ".hoodie/.lakelock")
    live = f"{datetime.now(timezone.utc):%Y%m%d%H%M%S}999"
    (table / f".hoodie/timeline/{live}.commit.requested").touch()
    (table / ".hoodie/.heartbeat").mkdir(exist_ok=True)
    (table / f".hoodie/.heartbeat/{live}").touch()
    before = (table / ".hoodie/hoodie.properties").read_bytes()
    with coordinator(table) as found, pytest.raises(LockError, match="is being used, so it is not changed") as caught:
        adopt(found)
    assert live in caught.value.message
    told = run("adopt", str(table), "--dry-run")
    assert told.code != 0 and "in the way" in told.out
    assert (table / ".hoodie/hoodie.properties").read_bytes() == before


def test_data_locks_of_a_killed_writer_do_not_keep_the_table_from_being_changed(table: Path) -> None:
    short = Settings.resolve({"data_locks.lease_s": 1, "data_locks.renew_s": 0.3, "data_locks.sleep_s": 0.05}).settings
    killed = Coordinator.open(StorageLocation.of(table), short)
    killed.data.locks.acquire(lock_request(exclusive=[Resource.of("month=1")]))
    with coordinator(table) as found:
        assert adopt(found).done
    killed.close()


def test_what_else_keeps_lakelock_from_writing_is_said_and_nothing_is_changed(table: Path) -> None:
    properties = table / ".hoodie" / "hoodie.properties"
    properties.write_text(properties.read_text() + "hoodie.table.cdc.enabled=true\n")
    told = run("adopt", str(table), "--yes")
    assert told.code == 1 and "change logs" in " ".join(told.err.split())
    assert (table / ".hoodie/metadata").exists()


@pytest.mark.parametrize("zone", ["LOCAL", None])
def test_a_run_that_died_between_its_steps_is_finished_by_the_next(table: Path, zone: str | None) -> None:
    if zone is not None:
        with (table / ".hoodie/hoodie.properties").open("a") as properties:
            properties.write(f"{ZONE}={zone}\n")
    metadata = {file.name: file.read_bytes() for file in (table / ".hoodie/metadata/files").iterdir()}
    assert run("adopt", str(table), "--yes", "--drop-metadata-table").code == 0
    (table / ".hoodie/metadata/files").mkdir(parents=True)
    for name, data in metadata.items():
        (table / ".hoodie/metadata/files" / name).write_bytes(data)
    with coordinator(table) as found:
        assert adopt(found).done
    assert not (table / ".hoodie/metadata").exists()
    assert run("adopt", str(table), "--undo").code == 0
    assert read_properties(LocalStorage(str(table))).values.get(ZONE) == zone


def test_the_rows_are_the_same_before_and_after(table: Path) -> None:
    def rows() -> pa.Table:
        with coordinator(table) as found:
            return ArrowEngine(found).read()

    before = rows()
    assert run("adopt", str(table), "--yes").code == 0
    assert rows().equals(before)


def test_the_metadata_table_is_kept_unless_the_owner_wants_it_dropped(table: Path) -> None:
    before = sorted(path.name for path in (table / ".hoodie/metadata/files").iterdir())
    assert run("adopt", str(table), "--yes").code == 0
    values = read_properties(LocalStorage(str(table))).values
    assert (values[ZONE], values[METADATA]) == ("UTC", "files")
    assert sorted(path.name for path in (table / ".hoodie/metadata/files").iterdir()) == before


def test_indexes_that_are_not_kept_are_removed_on_demand(table: Path) -> None:
    properties = table / ".hoodie/hoodie.properties"
    properties.write_text(
        properties.read_text().replace("partitions=files", "partitions=files,secondary_index_v,bloom_filters")
    )
    for name in ("bloom_filters", "secondary_index_v"):
        (table / ".hoodie/metadata" / name).mkdir()
        (table / ".hoodie/metadata" / name / "x.hfile").write_bytes(b"x")
    refused = run("adopt", str(table), "--yes")
    assert refused.code == 1 and "does not keep: secondary_index_v, bloom_filters" in " ".join(refused.err.split())
    assert run("adopt", str(table), "--yes", "--remove-indexes").code == 0
    assert read_properties(LocalStorage(str(table))).values[METADATA] == "files"
    assert {path.name for path in (table / ".hoodie/metadata").iterdir()} == {"files"}


def test_a_metadata_table_that_a_dead_writer_was_building_is_dropped_on_demand(table: Path) -> None:
    properties = table / ".hoodie/hoodie.properties"
    properties.write_text(
        properties.read_text().replace(f"{METADATA}=files", f"{METADATA}=").replace("inflight=", "inflight=files")
    )
    with coordinator(table) as found, pytest.raises(TableError, match="is building files in its metadata table") as caught:
        ArrowEngine(found).upsert(ArrowEngine(found).read().slice(0, 1))
    assert "`lakelock adopt --drop-metadata-table` while no writer runs" in caught.value.hint
    assert run("adopt", str(table), "--yes", "--drop-metadata-table").code == 0
    assert not (table / ".hoodie/metadata").exists()
    with coordinator(table) as found:
        assert ArrowEngine(found).upsert(ArrowEngine(found).read().slice(0, 1)).instant
