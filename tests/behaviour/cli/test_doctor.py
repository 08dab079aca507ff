"""`lakelock doctor`, on real tables on local disk: what it looks at, what it finds, and that it changes nothing."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from tests.api import ArrowEngine, LocalStorage, MemoryStorage, Storage, layout
from tests.behaviour.cli.command_line import left_by_a_dead_writer, run, writer
from tests.behaviour.tables import SCHEMA, insert, new_table
from tests.faulty_storage import Fault, FaultyStorage, Rule, Wrapped

from lakelock.cli.doctor import examine
from lakelock.cli.doctor_services import (
    Check,
    DoctorContext,
    broken_neighbours,
    check_spark,
    judge_connector,
    judge_pandas,
    judge_pyspark,
    judge_workers_python,
)
from lakelock.cli.output import Exit
from lakelock.settings import Settings
from lakelock.testing import ManualRuntime


def fill(storage: Storage, month: str, *keys: str) -> None:
    """One more file with a row for each key."""
    rows = pa.table([keys, [1] * len(keys), [month] * len(keys)], schema=SCHEMA)
    ArrowEngine(writer(storage)).insert(rows)


@pytest.fixture(autouse=True)
def own_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's workers run the Python of the tests."""
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)


class TestDoctor:
    def test_all_is_well(self, storage: LocalStorage, path: str) -> None:
        insert(writer(storage), storage, "month=1", "a")
        ended = run("doctor", path)
        assert ended.code == Exit.OK
        assert "refuses a second create" in ended.out
        assert "1 commit in the timeline" in ended.out
        names = dict.fromkeys(check["name"] for check in run("doctor", path, "--json").json["checks"])
        assert [*names] == [
            "settings", "table", "storage", "clock", "lock", "writers", "decisions", "rejections", "contents", "index",
            "packages", "spark",
        ]  # fmt: skip

    def test_it_names_the_keys_that_stand_twice_in_a_partition(self, storage: LocalStorage, path: str) -> None:
        for month, keys in (("1", "ab"), ("2", "ac"), ("1", "cd")):
            fill(storage, month, *keys)
        assert "keys" not in {check["name"] for check in run("doctor", path, "--json").json["checks"]}
        (found,) = [each for each in run("doctor", path, "--keys", "--json").json["checks"] if each["name"] == "keys"]
        assert (found["status"], found["found"]) == ("ok", "each of 6 rows has a key of its own in its partition")
        fill(storage, "1", "b", "d", "e")
        ended = run("doctor", path, "--keys", "--json")
        (found,) = [each for each in ended.json["checks"] if each["name"] == "keys"]
        assert ended.code == Exit.ERROR
        assert found["status"] == "failed"
        assert re.fullmatch(r"2 keys in several rows: '[bd]' in month=1/.*, month=1/.*; '[bd]' in month=1/.*", found["found"])
        assert "dropDuplicates" in found["hint"]

    def test_the_keys_of_a_partition_that_is_larger_than_memory_are_read_a_share_at_a_time(
        self, storage: LocalStorage, path: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        names = [f"k{number}" for number in range(50)]
        fill(storage, "1", *names)
        fill(storage, "1", *names[::7])
        monkeypatch.setattr("lakelock.cli.doctor_contents.PASS_BYTES", 1000)
        (found,) = [each for each in run("doctor", path, "--keys", "--json").json["checks"] if each["name"] == "keys"]
        assert found["found"].startswith("8 keys in several rows: ")
        assert found["found"].endswith("; and 3 more")

    def test_it_leaves_nothing_behind(self, storage: LocalStorage, path: str) -> None:
        insert(writer(storage), storage, "month=1", "a")
        before = files(path)
        assert run("doctor", path).code == Exit.OK
        assert files(path) == before
        assert not [file for file in before if "probe" in file]

    def test_of_a_table_that_nobody_has_written_only_the_locks_own_file_stays(self, storage: LocalStorage, path: str) -> None:
        before = files(path)
        assert run("doctor", path).code == Exit.OK
        left = {Path(file).name for file in files(path) - before if Path(file).is_file()}
        assert left == {"table_lock.json", ".table_lock.json.lock", "lock.token"}

    def test_a_path_without_a_table_is_refused_and_stays_as_it_was(self, tmp_path: Path) -> None:
        ended = run("doctor", str(tmp_path / "nothing"))
        assert (ended.code, ended.out) == (Exit.ERROR, "")
        assert "is not a table" in ended.err
        assert "next: check the path" in ended.err
        assert list(tmp_path.iterdir()) == []

    def test_another_lock_than_the_recorded_one_fails(self, storage: LocalStorage, path: str) -> None:
        storage.put(layout.LOCK_IDENTITY, json.dumps({"provider": "redis://elsewhere"}).encode())
        ended = run("doctor", path, "--json")
        assert ended.code == Exit.ERROR
        assert ended.json["ok"] is False
        (lock,) = [check for check in ended.json["checks"] if check["name"] == "lock"]
        assert lock["status"] == "failed"
        assert "redis://elsewhere" in lock["found"]
        assert "redis://elsewhere" in lock["hint"] and f"`lakelock locks migrate {storage.uri} --to URI`" in lock["hint"]

    def test_a_held_lock_is_a_warning_that_names_the_holder(self, storage: LocalStorage, path: str) -> None:
        holder = writer(storage, name="backfill").table.provider
        assert holder is not None
        lease = holder.acquire(wait_s=1)
        ended = run("doctor", path, "--set", "lock.wait_s=0.1")
        holder.release(lease)
        assert ended.code == Exit.OK
        assert "backfill" in ended.out
        assert "lakelock locks ls" in ended.out

    def test_waits_that_are_too_short_to_recognise_a_dead_holder_are_warnings_that_name_the_wait(self, path: str) -> None:
        short = ("--set", "lock.wait_s=5", "--set", "concurrency.mode=PESSIMISTIC", "--set", "data_locks.attempts=11")
        checks = run("doctor", path, "--json", *short).json["checks"]
        waits = [(check["status"], check["hint"]) for check in checks if "is only recognised" in check["found"]]
        assert waits == [
            ("warning", "set lock.wait_s to 7 or more, or make lock.lease_s shorter"),
            ("warning", "set data_locks.attempts to 64 or more, or make data_locks.lease_s shorter"),
        ]
        enough = run("doctor", path, "--set", "lock.wait_s=7", "--set", "concurrency.mode=PESSIMISTIC").out
        assert "is only recognised" not in enough

    @pytest.mark.parametrize(
        ("uri", "found"),
        [
            ("zookeeper://127.0.0.1:1/lakelock", "end lock.provider with /base?key=table"),
            ("redis://127.0.0.1:1/0?key=ours", "leave ?key= out of lock.provider"),
            ("hive_metastore://127.0.0.1:1/lakelock/locks", "leave database and table out"),
            ("zookeeper://127.0.0.1:1/lakelock?key=table", "every table that is named t has this lock"),
            ("zookeeper://127.0.0.1:1/locks/t", ""),
            ("redis://127.0.0.1:1/0", ""),
            ("hive_metastore://127.0.0.1:1", ""),
            ("storage:", ""),
        ],
    )
    def test_a_lock_that_does_not_depend_on_the_table_is_a_warning_with_the_setting_that_does(
        self, path: str, uri: str, found: str
    ) -> None:
        # Nothing listens there: which tables have one lock is told before it is tried.
        quick = ["--set", "lock.wait_s=0"] + ["--set", "lock.options.connect_timeout_s=0.2"] * uri.startswith("zookeeper")
        checks = run("doctor", path, "--json", "--set", f"lock.provider={uri}", *quick).json["checks"]
        told = [f"{check['found']}; {check['hint']}" for check in checks if "every table" in check["found"]]
        assert len(told) == bool(found) and all(found in each for each in told)

    def test_a_dead_writer_is_a_warning_with_the_command_to_run(self, storage: LocalStorage, path: str) -> None:
        left_by_a_dead_writer(storage)
        ended = run("doctor", path)
        assert ended.code == Exit.OK
        assert "1 dead" in ended.out
        assert f"lakelock markers reap {path}" in ended.out

    def test_a_torn_decision_fails_and_is_named(self, storage: LocalStorage, path: str) -> None:
        insert(writer(storage), storage, "month=1", "a")
        storage.put(layout.decision(1), b"{")
        ended = run("doctor", path)
        assert ended.code == Exit.ERROR
        assert layout.decision(1) in ended.out
        assert "next: restore the file from a backup" in ended.out and "lakelock doctor" not in ended.out

    def test_a_damaged_properties_file_is_named_with_its_table_and_what_to_restore(
        self, storage: LocalStorage, path: str
    ) -> None:
        for damaged in (b"", b"\\u12"):
            storage.put(layout.PROPERTIES, damaged)
            for command in (["commits", "ls"], ["doctor"]):
                said = run(*command, path)
                told = said.out + said.err
                assert said.code == Exit.ERROR and f"{storage.uri}: {layout.PROPERTIES}" in told
                assert f"next: restore {layout.PROPERTIES} from a backup" in told
                assert f"{layout.PROPERTIES_BACKUP} is not there" in told.replace("\n", " ")
        storage.put(layout.PROPERTIES_BACKUP, b"")
        assert f"{layout.PROPERTIES_BACKUP} is damaged, too" in run("doctor", path).out

    def test_a_torn_commit_is_named_with_its_table_and_folder_to_those_who_list_commits(
        self, storage: LocalStorage, path: str
    ) -> None:
        done = insert(writer(storage), storage, "month=1", "a")
        commit = layout.timeline(f"{done.instant}_{done.completion}.commit")
        storage.put(commit, b"garbage")
        ended = run("commits", "ls", path)
        assert f"{storage.uri}: {commit} is not an Avro container" in ended.err
        assert "restore the file from a backup or an older version" in ended.err
        storage.put(commit, b"")
        assert f"{storage.uri}: {commit} is empty" in run("commits", "ls", path).err

    def test_commits_that_are_too_old_to_be_read_are_counted(
        self, storage: LocalStorage, path: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("lakelock.cli.doctor_contents.NEWEST_COMMITS", 2)
        for name in "abc":
            insert(writer(storage), storage, "month=1", name)
        assert "2 commits can be read, and nothing is missing of 2 files; not read: 1 older commit" in run("doctor", path).out

    def test_a_torn_commit_a_lost_file_and_a_short_one_fail_and_are_named(self, storage: LocalStorage, path: str) -> None:
        torn, lost, short = (insert(writer(storage), storage, "month=1", name) for name in ("torn", "lost", "short"))
        assert "3 commits can be read, and nothing is missing of 3 files" in run("doctor", path).out
        commit = layout.timeline(f"{torn.instant}_{torn.completion}.commit")
        metadata = storage.get(commit)
        assert metadata is not None
        storage.put(commit, metadata.data[:-20])
        files = {entry.key for entry in storage.list("month=1")}
        (gone,) = (key for key in files if lost.instant in key)
        (cut,) = (key for key in files if short.instant in key)
        storage.delete([gone])
        storage.put(cut, b"P")
        ended = run("doctor", path)
        assert ended.code == Exit.ERROR
        assert f"{torn.instant}_{torn.completion}.commit is cut off" in ended.out
        assert f"{gone} is missing" in ended.out
        assert f"{cut} has 1 bytes, but its commit wrote" in ended.out

    def test_a_decided_commit_that_is_not_visible_is_a_warning(self, storage: LocalStorage, path: str) -> None:
        done = insert(writer(storage), storage, "month=1", "a")
        storage.delete([layout.timeline(f"{done.instant}_{done.completion}.commit")])
        ended = run("doctor", path)
        assert f"decision 1 commits {done.instant}, which is not visible yet" in ended.out

    def test_a_table_that_cannot_be_written_fails_with_every_reason_at_once(self, storage: LocalStorage, path: str) -> None:
        insert(writer(storage), storage, "month=1", "00000001-1347-4187-8af3-1c83a1831000-0")
        found = storage.get(layout.PROPERTIES)
        assert found is not None
        changes = b"hoodie.table.metadata.partitions=bloom_filters\nhoodie.table.timeline.timezone=LOCAL\n"
        storage.put(layout.PROPERTIES, found.data + changes)
        ended = run("doctor", path, "--json")
        assert (ended.code, ended.json["ok"]) == (Exit.ERROR, False)
        table = [check for check in ended.json["checks"] if check["name"] == "table"]
        assert [check["status"] for check in table] == ["ok", "failed", "failed", "failed"]
        reasons = ("its zone is LOCAL: the first write sets", "can be read, but not written", "metadata table", "buckets")
        for reason, check in zip(reasons, table, strict=True):
            assert reason in check["found"]
        assert [bool(check["hint"]) for check in table] == [False, False, False, True]
        assert table[-1]["hint"].endswith("it can be read meanwhile")
        assert "lock" in {check["name"] for check in ended.json["checks"]}

    def test_storage_that_ignores_conditions_fails(self) -> None:
        (found,) = [check for check in self._examined(_Careless(self._table())) if check.name == "storage"]
        assert found.status == "failed"
        assert "ignores create-if-absent" in found.found

    def test_one_broken_thing_does_not_hide_the_others(self) -> None:
        broken = FaultyStorage(self._table(), [Rule(op="list", nth=None, fault=Fault.FAIL)])
        checks = self._examined(broken)
        assert {check.name for check in checks if check.status == "failed"} == {
            "clock", "writers", "decisions", "rejections", "contents", "index",
        }  # fmt: skip
        assert {check.name for check in checks} >= {"settings", "table", "storage", "lock", "packages"}

    @pytest.mark.parametrize(("skew_ms", "word"), [(3_600_000, "ahead of"), (-3_600_000, "behind")])
    def test_a_wrong_clock_is_a_warning(self, skew_ms: int, word: str) -> None:
        runtime = ManualRuntime()
        storage = MemoryStorage(lambda: runtime.now_ms() - skew_ms)
        new_table(storage)
        (found, *_) = [check for check in self._examined(storage, runtime) if check.name == "clock"]
        assert (found.status, found.found) == ("warning", f"this machine's clock is 3600.0 s {word} the storage's")

    def test_a_timeline_from_the_future_is_a_warning(self, storage: LocalStorage, path: str) -> None:
        storage.put(layout.timeline("29990101000000000.commit.requested"), b"")
        ended = run("doctor", path)
        assert "the timeline has reached 29990101000000000" in ended.out

    def test_a_neighbour_that_switches_off_spark_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "pyspark_broken_neighbour.py").write_text("import nothing_of_that_name")
        monkeypatch.syspath_prepend(str(tmp_path))
        assert [name for name, _ in broken_neighbours()] == ["pyspark_broken_neighbour"]

    def _table(self) -> MemoryStorage:
        storage = MemoryStorage()
        new_table(storage)
        return storage

    def _examined(self, storage: Storage, runtime: ManualRuntime | None = None) -> list[Check]:
        return list(examine(DoctorContext("t", Settings.resolve(), storage, runtime or ManualRuntime())))


class TestSpark:
    """What the doctor says of Spark; it starts none."""

    def test_what_is_installed_here_is_fine(self, storage: LocalStorage, path: str) -> None:
        checks = [check for check in run("doctor", path, "--json").json["checks"] if check["name"] == "spark"]
        assert {check["status"] for check in checks} == {"ok"}, checks

    @pytest.mark.parametrize(("version", "status"), [("3.4.4", "failed"), ("3.5.9", "ok"), ("4.3.0.dev1", "ok")])
    def test_pyspark_before_3_5_fails(self, version: str, status: str) -> None:
        assert judge_pyspark(version).status == status

    @pytest.mark.parametrize(
        ("version", "status"), [(None, "failed"), ("2.1.4", "failed"), ("2.2.0", "ok"), ("2.3.3", "ok"), ("3.0.1", "warning")]
    )
    def test_pandas_must_be_there_and_in_the_range_of_pyspark(self, version: str | None, status: str) -> None:
        found = judge_pandas(version)
        assert found.status == status
        assert (found.hint == "pip install 'lakelock[spark]'") == (status != "ok")

    def test_workers_whose_python_lacks_lakelock_are_a_warning_with_what_to_export(self, tmp_path: Path) -> None:
        other = tmp_path / "python3"
        other.write_text("#!/bin/sh\nexit 1\n")
        other.chmod(0o755)
        (found,) = judge_workers_python(str(other))
        assert (found.status, sys.executable in found.hint) == ("warning", True)
        (found,) = judge_workers_python(str(tmp_path / "nothing"))
        assert "cannot import lakelock" in found.found
        assert list(judge_workers_python(sys.executable)) == []

    def test_what_to_export_is_one_word_of_a_shell(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "executable", "/two words/bin/python")
        (found,) = judge_workers_python("/no/python3")
        assert shlex.split(found.hint)[-1] == "PYSPARK_PYTHON=/two words/bin/python"

    def test_a_connector_that_spark_lacks_is_a_warning_with_the_artifact_of_its_hadoop(self) -> None:
        (found,) = judge_connector("s3", ["hadoop-client-api-3.5.0.jar", "zstd-jni-1.5.jar"])
        assert found.status == "warning"
        assert '"org.apache.hadoop:hadoop-aws:3.5.0"' in found.hint
        (found,) = judge_connector("gs", ["hadoop-client-api-3.5.0.jar"])
        assert '"org.apache.hadoop:hadoop-gcp:3.5.0"' in found.hint
        (found,) = judge_connector("gs", ["hadoop-client-api-3.4.2.jar"])
        assert "gcs-connector:hadoop3-2.2.26" in found.hint
        (found,) = judge_connector("gs", ["hadoop-client-api-3.5-vendor.jar"])
        assert '"org.apache.hadoop:hadoop-gcp:3.5-vendor"' in found.hint
        (found,) = judge_connector("gs", ["hadoop-client-api-3.5.0.jar", "gcs-connector-hadoop3-2.2.26-shaded.jar"])
        assert found.status == "ok"

    def test_a_connector_that_is_there_is_fine_and_a_disk_needs_none(self) -> None:
        (found,) = judge_connector("s3", ["hadoop-aws-3.5.0.jar", "hadoop-client-api-3.5.0.jar"])
        assert found.status == "ok"
        assert list(judge_connector("file", [])) == []

    def test_a_spark_that_is_not_found_is_said(self) -> None:
        (found,) = judge_connector("abfs", None)
        assert (found.status, "hadoop-azure" in found.found) == ("warning", True)

    def test_a_table_on_s3_asks_for_the_jar_of_the_spark_that_is_installed(self) -> None:
        class OnS3(MemoryStorage):
            uri = "s3://lake/t"  # type: ignore[assignment]

        (found,) = [
            c for c in check_spark(DoctorContext("t", Settings.resolve(), OnS3(), ManualRuntime())) if "jars" in c.found
        ]
        assert re.search(r"hadoop-aws:3\.\d+\.\d+", found.hint)


def files(path: str) -> set[str]:
    """Every file of a table, also those that no listing shows."""
    return {str(file) for file in Path(path).rglob("*")}


class _Careless(Wrapped):
    """Storage as some S3-compatible services are: conditions are accepted and ignored."""

    def put_if_absent(self, key: str, data: bytes, *, durable: bool = True) -> str | None:
        self.inner.put(key, data)
        found = self.inner.get(key)
        return found.etag if found else None
