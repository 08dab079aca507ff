"""Tables with Hudi's metadata table are written, and it stays true: whatever is committed or cleaned, and whoever is killed.

Whether it is true is judged by `lakelock doctor`, which reads it as Java does; `tests/interop` asks Java itself.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.api import ArrowEngine, CommitMetadata, Coordinator, Event, EventKind, StorageLocation, SystemRuntime, read_timeline
from tests.behaviour.cli.command_line import run
from tests.behaviour.foreign import Peer
from tests.golden_tables import unpack
from tests.over_engines import transaction
from tests.sizes import in_ci

from lakelock.engine.group_commit import fingerprint
from lakelock.errors import TableError
from lakelock.events import Step, at_each_step
from lakelock.markers.heartbeat import HeartbeatRecord
from lakelock.occ.begin import requested_key
from lakelock.occ.commit_keys import Member
from lakelock.occ.metadata_table import KeptMetadata
from lakelock.occ.offers import Offer, put_offer
from lakelock.settings import CleanSettings, Settings
from lakelock.table import layout
from lakelock.table.instants import Action, format_instant
from lakelock.table.metadata_table import read_metadata_timeline
from lakelock.table.rewriting import ARROW

ALONE = ("--set", "concurrency.mode=SINGLE_WRITER")
METADATA = "hoodie.table.metadata.partitions"


class Killed(BaseException):
    """The process is gone: nothing that it would do on its way out happens."""


@pytest.fixture(params=["java12_metadata", *in_ci("java10_metadata"), "java12_mor_metadata", *in_ci("java10_mor_metadata")])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A table of Java Hudi 1.2 in version 9, and of 1.0.2 in version 8; copy-on-write, and merge-on-read with log files."""
    return unpack(request.param, tmp_path)


@pytest.fixture(autouse=True)
def nobody_is_killed() -> Iterator[None]:
    yield
    at_each_step(lambda step: None)


def killed_at(step: Step, act: Callable[[], object]) -> None:
    """Let it die where it reaches this step."""

    def strike(at: Step) -> None:
        if at is step:
            raise Killed

    at_each_step(strike)
    with pytest.raises(Killed):
        act()
    at_each_step(lambda at: None)


ONE_WRITER, SEVERAL = {"concurrency.mode": "SINGLE_WRITER"}, {"lock.provider": "storage:"}


def engine(table: Path, told: list[Event] | None = None, options: Mapping[str, str] = ONE_WRITER) -> ArrowEngine:
    settings = Settings.resolve({"upkeep.auto": "false", "transaction.allow_foreign": "true", **options}).settings
    return ArrowEngine(
        Coordinator.open(StorageLocation.of(table), settings, listeners=(told.append,) if told is not None else ())
    )


def is_true(table: Path, without: str = "") -> None:
    found = [check for check in run("doctor", str(table), "--json", *ALONE).json["checks"] if check["name"] == "metadata"]
    assert [check["status"] for check in found] == ["ok"], found
    assert "not compared" not in found[0]["found"]
    there = sorted(path.name for path in (table / ".hoodie/metadata").iterdir())
    index = [] if without else ["record_index"]
    assert there == [".hoodie", "column_stats", "files", "partition_stats", *index]


def changed(table: Path, *keys: str, v: int = 1) -> pa.Table:
    """The rows of these keys with another value; a key that is not there gets the row of another."""
    rows = engine(table).read()
    found = {row["id"]: row for row in rows.to_pylist()}
    some = next(iter(found.values()))
    return pa.Table.from_pylist([{**found.get(key, some), "id": key, "v": v} for key in keys], rows.schema)


def values(table: Path) -> dict[str, int]:
    rows = engine(table).read()
    return dict(zip(rows.column("id").to_pylist(), rows.column("v").to_pylist(), strict=True))


def test_whatever_changes_the_table_is_in_its_metadata_table(table: Path) -> None:
    at = engine(table)
    first = at.upsert(changed(table, "k2", "new", v=700)).instant
    is_true(table)
    at.delete(pc.field("id") == "k7")
    at.insert(changed(table, "k50", v=5))
    is_true(table)
    at.overwrite_partitions(changed(table, "k20", v=20).slice(0, 1))
    is_true(table)
    at.optimize()
    is_true(table)
    at.restore(first)
    is_true(table)
    assert values(table)["new"] == 700 and "k50" not in values(table)
    cleaned = run("clean", str(table), "--keep-versions", "1", "--set", "clean.readers_s=0", *ALONE)
    current = engine(table).coordinator.table.shown_now()[0].files
    assert cleaned.code == 0 and len(list(table.glob("region=*/*.parquet"))) == len(current)
    is_true(table)


@pytest.mark.parametrize("step", [Step.DECIDED, Step.METADATA_LOGGED, Step.METADATA_KEPT])
def test_whoever_finishes_a_commit_finishes_its_part_of_the_metadata_table(table: Path, step: Step) -> None:
    rows = changed(table, "k2", "new", v=700)
    before = values(table)
    killed_at(step, lambda: engine(table).upsert(rows))
    assert values(table) == before
    told: list[Event] = []
    engine(table, told).upsert(changed(table, "k4", v=400))
    assert EventKind.FINISHED_FOR_ANOTHER in {event.kind for event in told}
    found = values(table)
    assert (found["k2"], found["new"], found["k4"]) == (700, 700, 400)
    is_true(table)


@pytest.mark.parametrize("step", [Step.METADATA_LOGGED, Step.METADATA_KEPT])
def test_a_commit_that_another_engine_rolls_back_before_it_is_visible_is_taken_out(table: Path, step: Step) -> None:
    before = values(table)
    rows = changed(table, "k2", "new", v=700)
    killed_at(step, lambda: engine(table, options=SEVERAL).upsert(rows))
    storage = engine(table).coordinator.table.storage
    peer, instant = Peer(storage), read_timeline(storage).pending[-1].requested
    rollback, plan = peer.plan_rollback(instant)
    engine(table, options=SEVERAL).insert(changed(table, "k60", v=6))
    assert values(table) == {**before, "k60": 6}
    assert not list(table.glob(f".hoodie/metadata/**/*{instant}*"))
    peer.carry_out_rollback(rollback, plan)
    is_true(table)


def test_what_a_dead_writer_of_another_engine_listed_is_taken_out_with_its_files(table: Path) -> None:
    coordinator = engine(table).coordinator
    peer = Peer(coordinator.table.storage)
    instant = peer.begin()
    stat = peer.write(instant, "region=eu", "dead-0")
    kept = KeptMetadata.look(coordinator.table, coordinator.properties)
    assert kept is not None
    kept.commit(instant, CommitMetadata({"region=eu": (stat,)}, "UPSERT", {}), coordinator.table.timeline())
    for path in table.rglob(f"*{instant}*"):
        os.utime(path, (path.stat().st_mtime - 3600,) * 2)
    (reaped,) = engine(table, options=SEVERAL).coordinator.reap()
    assert reaped.instant == instant
    assert not list(table.rglob(f"*{instant}*"))
    is_true(table, without="the record index, as its file has no keys that could be read")


def test_whoever_commits_for_others_lists_their_rows_too(table: Path) -> None:
    leader = engine(table, options=SEVERAL)
    leader.insert(changed(table, "k50", v=5))
    at = leader.coordinator.table
    member = Member(at.runtime.uuid(), at.writer, "", 1, ())
    rows = changed(table, "waits", "k51", v=5)
    put_offer(
        at, Offer(member, at.log.newest, fingerprint(leader.coordinator.schema()), ARROW.packed(rows.slice(0, 1)), "INSERT")
    )
    # As once what Java has committed is archived, and another process was met at the lock.
    at.observed.foreign_writers, at.observed.crowded_until_s = False, at.runtime.monotonic_s() + 60
    leader.insert(rows.slice(1))
    assert len(leader.coordinator.history(1)[0].members) == 2
    found = values(table)
    assert (found["waits"], found["k51"]) == (5, 5)
    is_true(table)


def test_a_clean_that_was_killed_is_finished_in_the_metadata_table_too(table: Path) -> None:
    for v in range(3):
        engine(table).upsert(changed(table, "k2", v=v))
    arguments = ("clean", str(table), "--keep-versions", "1", "--set", "clean.readers_s=0", *ALONE)
    killed_at(Step.METADATA_LOGGED, lambda: run(*arguments))
    assert run(*arguments).code == 0
    is_true(table)
    engine(table).upsert(changed(table, "k2", v=9))
    is_true(table)


@pytest.mark.parametrize("left", ["heartbeat", "heartbeat and request"])
def test_who_rolls_back_a_writer_that_took_the_time_of_a_clean_leaves_what_that_has_listed(table: Path, left: str) -> None:
    for v in range(3):
        engine(table).upsert(changed(table, "k2", v=v))
    with Coordinator.open(StorageLocation.of(table)) as reaper:
        storage, writer = reaper.table.storage, reaper.table.writer
        assert reaper.clean(asked=CleanSettings(policy="KEEP_LATEST_FILE_VERSIONS", keep_versions=1, readers_s=0)).files
        clean = max(each.requested for each in reaper.table.timeline().cleanings)
        record = HeartbeatRecord(clean, writer, "UPSERT", first=0, interval_s=1, tolerable_misses=1)
        storage.put(layout.heartbeat(clean), record.to_bytes())
        if "request" in left:
            storage.put(requested_key(clean, Action.COMMIT), b"")
        for path in (table / ".hoodie").rglob(f"*{clean}*"):
            os.utime(path, (0, 0))
        reaper.table.observed.met_foreign()
        listed = read_metadata_timeline(storage).instants
        assert clean in [each.instant for each in reaper.reap()] and storage.get(layout.heartbeat(clean)) is None
        assert read_metadata_timeline(storage).instants == listed and any(each.requested == clean for each in listed)
    is_true(table)


@pytest.mark.parametrize("by", ["commit", "clean"])
def test_a_commit_that_the_metadata_table_lacks_is_appended_by_the_next(table: Path, by: str) -> None:
    engine(table).upsert(changed(table, "k2", v=600))
    lost = engine(table).upsert(changed(table, "k2", v=700)).instant
    for path in (*table.glob(f".hoodie/metadata/.hoodie/timeline/{lost}*"), *table.glob(f".hoodie/metadata/files/.*{lost}*")):
        path.unlink()
    assert run("doctor", str(table), *ALONE).code == 1
    told: list[Event] = []
    if by == "clean":
        cleaned = run("clean", str(table), "--keep-versions", "1", "--set", "clean.readers_s=0", *ALONE)
        assert cleaned.code == 0 and "0 old files" not in cleaned.out
    else:
        engine(table, told).upsert(changed(table, "k4", v=400))
        assert any(lost in str(event.facts["problem"]) for event in told if event.kind is EventKind.ALERT)
    is_true(table)


def test_an_archived_table_without_a_checkpoint_is_listed_by_its_metadata_table_if_that_is_whole(table: Path) -> None:
    for v in range(6):
        engine(table).upsert(changed(table, "k2", v=v))
    early = {"archive.min_commits": "3", "archive.max_commits": "4", "archive.min_age_s": "0", "clean.readers_s": "0"}
    assert engine(table, options={**ONE_WRITER, **early}).coordinator.archive().instants
    shutil.rmtree(table / ".hoodie/.lakelock/checkpoints", ignore_errors=True)
    before = engine(table).read().num_rows
    file = max(table.glob("region=*/*.parquet"), key=lambda path: path.name.rpartition("_")[2])
    shutil.copy(file, file.with_name(f"{'0' * 8}{file.name[8:]}"))  # a listing shows it, and no commit names it
    assert engine(table).read().num_rows == before
    newest = read_timeline(engine(table).coordinator.table.storage).commits[-1].requested
    for path in table.glob(f".hoodie/metadata/.hoodie/timeline/{newest}*"):
        path.unlink()
    assert engine(table).read().num_rows > before


def test_a_delta_commit_is_completed_after_everything_on_the_timeline_of_the_metadata_table(table: Path) -> None:
    ahead = table / ".hoodie/metadata/.hoodie/timeline/20991231235959000.compaction.requested"
    ahead.write_bytes(b"plan")
    engine(table).upsert(changed(table, "k2", v=700))
    timeline = read_metadata_timeline(engine(table).coordinator.table.storage)
    assert timeline.newest_completion > "20991231235959000"


def test_times_that_upkeep_of_the_metadata_table_has_taken_cost_one_attempt_however_many_they_are(table: Path) -> None:
    """As where a clock was ahead: the next transactions take the times after its last commit, one by one."""
    ahead_ms = SystemRuntime().now_ms() + 3_600_000
    timeline = table / ".hoodie/metadata/.hoodie/timeline"
    for n in range(100, 140):
        (timeline / f"{format_instant(ahead_ms + n)}.compaction.requested").write_bytes(b"plan")
    (timeline / "20991231235959000.compaction.requested").write_bytes(b"plan")
    told = list[Event]()
    at = engine(table, told)
    at.coordinator.table.observed.time_seen(format_instant(ahead_ms + 99))
    done = at.insert(changed(table, "n1"))
    assert [event.kind for event in told].count(EventKind.RETRY) == 1
    assert format_instant(ahead_ms + 139) < done.instant < format_instant(ahead_ms + 200)
    is_true(table)


def test_a_transaction_over_two_tables_is_in_both_metadata_tables(tmp_path: Path) -> None:
    tables = [unpack(name, tmp_path) for name in ("java12_metadata", "java10_metadata")]
    new = [changed(table, "k2", v=700) for table in tables]
    engines = [engine(table) for table in tables]
    with transaction(*engines) as tx:
        for at, rows in zip(engines, new, strict=True):
            tx[at].upsert(rows)
    for table in tables:
        is_true(table)
        assert values(table)["k2"] == 700


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        (".hoodie/metadata/.hoodie/hoodie.properties", "hoodie.table.version=6", "metadata table has version 6"),
        (".hoodie/hoodie.properties", f"{METADATA}=files,bloom_filters", "does not keep: bloom_filters"),
        (".hoodie/hoodie.properties", f"{METADATA}.inflight=record_index", "is building record_index"),
    ],
)
def test_a_metadata_table_that_cannot_be_kept_true_is_refused_before_anything_is_decided(
    table: Path, name: str, text: str, why: str
) -> None:
    key, _, value = text.partition("=")
    lines = [line for line in (table / name).read_text().splitlines() if not line.startswith(f"{key}=")]
    rows = changed(table, "k2", v=700)
    (table / name).write_text("\n".join([*lines, f"{key}={value}"]) + "\n")
    before = values(table)
    with pytest.raises(TableError, match=why):
        engine(table).upsert(rows)
    assert values(table) == before
    assert not list(table.glob(".hoodie/.lakelock/decisions/*"))
