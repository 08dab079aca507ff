"""`lakelock markers`, on real tables on local disk: who is at work, who is dead, and what a reap removes."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from tests.api import Coordinator, LocalStorage, StorageLocation, layout
from tests.behaviour.cli.command_line import everything, left_by_a_dead_writer, run, writer
from tests.behaviour.foreign import Peer
from tests.behaviour.tables import insert, leftovers, put_file

from lakelock.cli.output import Exit
from lakelock.settings import HeartbeatSettings, Settings


class TestMarkers:
    def test_a_quiet_table_has_none(self, storage: LocalStorage, path: str) -> None:
        insert(writer(storage), storage, "month=1", "a")
        assert run("markers", "ls", path, "--json").json["writers"] == []
        assert "no writer is active" in run("markers", "ls", path).out

    def test_live_and_dead_writers_are_told_apart(self, storage: LocalStorage, path: str) -> None:
        dead = left_by_a_dead_writer(storage)
        with writer(storage, name="live").begin("UPSERT") as tx:
            put_file(tx, storage, "month=1", "a")
            # Beginning reaps, so a second one dies meanwhile.
            second = left_by_a_dead_writer(storage)
            rows = {row["instant"]: row for row in run("markers", "ls", path, "--json").json["writers"]}
            text = run("markers", "ls", path).out
        assert dead.instant not in rows
        assert (rows[tx.instant]["liveness"], rows[tx.instant]["markers"], rows[tx.instant]["state"]) == (
            "alive",
            1,
            "inflight",
        )
        assert rows[second.instant]["liveness"] == "dead"
        assert rows[second.instant]["heartbeat_age_s"] > 500
        assert f"lakelock markers reap {path}" in text

    def test_a_dry_run_shows_what_would_go_and_changes_nothing(self, storage: LocalStorage, path: str) -> None:
        tx = left_by_a_dead_writer(storage)
        before = everything(storage)
        ended = run("markers", "reap", path, "--dry-run", "--json")
        assert ended.code == Exit.OK
        (dead,) = ended.json["dead"]
        assert (dead["instant"], dead["writer"].split()[0]) == (tx.instant, "gone")
        assert dead["data_files"] == [f"month=9/dead_0-1-0_{tx.instant}.parquet"]
        assert everything(storage) == before
        assert "nothing was changed" in run("markers", "reap", path, "--dry-run").out

    def test_reaping_removes_every_trace(self, storage: LocalStorage, path: str) -> None:
        insert(writer(storage), storage, "month=1", "a")
        began_s = time.time()
        tx = left_by_a_dead_writer(storage)
        ended = run("markers", "reap", path, "--json")
        (reaped,) = ended.json["reaped"]
        assert (reaped["instant"], reaped["outcome"]) == (tx.instant, "rolled back")
        told = re.search(r"its heartbeat is (\d+) s old", reaped["evidence"])
        assert told and 600 <= int(told[1]) <= 600 + time.time() - began_s + 1
        assert leftovers(storage) == []
        assert "no dead writer left anything" in run("markers", "reap", path).out

    def test_whoever_is_dead_by_its_own_limit_is_reaped_by_hand(self, storage: LocalStorage, path: str) -> None:
        hasty = HeartbeatSettings(interval_s=1, tolerable_misses=1)
        tx = Coordinator.open(StorageLocation(storage.uri), Settings(heartbeat=hasty), storage=storage).begin("INSERT")
        tx.detach()
        ten_s_ago = (Path(storage.root) / layout.heartbeat(tx.instant)).stat().st_mtime - 10
        os.utime(Path(storage.root) / layout.heartbeat(tx.instant), (ten_s_ago, ten_s_ago))
        assert "1 dead" in run("markers", "ls", path).out
        assert tx.instant in run("markers", "reap", path, "--dry-run").out
        assert tx.instant in run("markers", "reap", path).out
        assert run("markers", "ls", path, "--json").json["writers"] == []

    def test_the_dead_of_another_engine_are_left_to_it_for_a_while(self, storage: LocalStorage, path: str) -> None:
        theirs = Peer(storage).begin()
        for file in Path(storage.root, layout.TIMELINE).glob(f"{theirs}*"):
            os.utime(file, (file.stat().st_mtime - 400,) * 2)
        (row,) = run("markers", "ls", path, "--json").json["writers"]
        assert row["liveness"] == "dead" and row["left_to_its_engine_s"] > 0
        told = r"but leaves 1 of another engine to that engine for another \d+ s; to do it now: lakelock markers reap"
        assert re.search(told, run("markers", "ls", path).out) and re.search(told, run("doctor", path).out)
        assert theirs in run("markers", "reap", path).out

    def test_what_cannot_be_reaped_is_a_problem_on_stderr(self, storage: LocalStorage, path: str) -> None:
        insert(writer(storage), storage, "month=1", "a")
        tx = left_by_a_dead_writer(storage)
        storage.put(layout.decision(1), b"{")
        ended = run("markers", "reap", path)
        assert (ended.code, ended.out) == (Exit.ERROR, "")
        assert f"problem: {tx.instant}: " in ended.err
        as_json = run("markers", "reap", path, "--json")
        assert (as_json.code, as_json.json["reaped"], len(as_json.json["problems"])) == (Exit.ERROR, [], 1)

    def test_a_live_writer_is_left_alone(self, storage: LocalStorage, path: str) -> None:
        with writer(storage).begin("INSERT") as tx:
            stat = put_file(tx, storage, "month=1", "a")
            assert run("markers", "reap", path, "--json").json["reaped"] == []
            tx.commit([stat])

    def test_a_table_that_must_not_be_written_is_not_reaped(self, storage: LocalStorage, path: str) -> None:
        found = storage.get(layout.PROPERTIES)
        assert found is not None
        storage.put(layout.PROPERTIES, found.data + b"hoodie.table.metadata.partitions=bloom_filters\n")
        ended = run("markers", "reap", path)
        assert ended.code == Exit.ERROR
        assert "next: " in ended.err
