"""The command line, on real tables on local disk: what people see, what programs parse, and how each command ends."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lakelock.cli.checks import broken_neighbours, examine
from lakelock.cli.main import app
from lakelock.cli.output import Exit, exit_of, size
from lakelock.cli.patient import Check, Patient
from lakelock.conflict import Conflict, ConflictRule, Party
from lakelock.errors import (
    CommitOutcomeUnknown,
    ConflictError,
    CorruptTableError,
    EarlyConflictError,
    InputError,
    LakelockError,
    LeaseLost,
    LockError,
    LockTimeout,
    RolledBackError,
    SettingsError,
    TableError,
)
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.transaction import Transaction
from lakelock.settings import Settings
from lakelock.storage import Storage
from lakelock.storage_faulty import Fault, FaultyStorage, Rule, Wrapped
from lakelock.storage_local import LocalStorage
from lakelock.storage_memory import MemoryStorage
from lakelock.table import layout
from lakelock.testing import ManualRuntime
from tests.behaviour import tables
from tests.behaviour.tables import insert, leftovers, new_table, put_file


@dataclass
class Ended:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def run(*arguments: str, stdin: str | None = None) -> Ended:
    result = CliRunner().invoke(app, [*arguments], input=stdin, env={"NO_COLOR": "1"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ended(result.exit_code, result.stdout, result.stderr)


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    made = LocalStorage(tmp_path / "t")
    new_table(made)
    return made


@pytest.fixture
def path(storage: LocalStorage) -> str:
    return storage.root


def everything(storage: Storage) -> set[str]:
    return {entry.key for prefix in ("", ".hoodie") for entry in storage.list(prefix)}


def writer(storage: Storage, *, name: str = "w") -> Coordinator:
    """A writer that a busy machine cannot take for dead."""
    return tables.writer(storage, Settings(), name=name)


def left_by_a_dead_writer(storage: LocalStorage) -> Transaction:
    """A transaction whose process died ten minutes ago, after it had written a file."""
    tx = writer(storage, name="gone").begin("INSERT")
    put_file(tx, storage, "month=9", "dead")
    tx._heartbeat.stop(delete=False)
    beat = Path(storage.root) / layout.heartbeat(tx.instant)
    long_ago = beat.stat().st_mtime - 600
    os.utime(beat, (long_ago, long_ago))
    return tx


class TestDoctor:
    def test_all_is_well(self, storage: LocalStorage, path: str) -> None:
        insert(writer(storage), storage, "month=1", "a")
        ended = run("doctor", path)
        assert ended.code == Exit.OK
        assert "refuses a second create" in ended.out
        assert "1 commits in the timeline" in ended.out
        names = [check["name"] for check in run("doctor", path, "--json").json["checks"]]
        assert names == ["settings", "table", "storage", "clock", "lock", "writers", "decisions", "contents", "packages"]

    def test_it_leaves_nothing_behind_but_the_locks_own_files(self, storage: LocalStorage, path: str) -> None:
        insert(writer(storage), storage, "month=1", "a")
        run("doctor", path)
        before = everything(storage)
        run("doctor", path)
        assert everything(storage) == before
        assert not [key for key in before if "probe" in key]

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
        assert "redis://elsewhere" in lock["hint"]

    def test_a_held_lock_is_a_warning_that_names_the_holder(self, storage: LocalStorage, path: str) -> None:
        holder = writer(storage, name="backfill").table.provider
        assert holder is not None
        lease = holder.acquire(wait_s=1)
        ended = run("doctor", path, "--set", "lock.wait_s=0.1")
        holder.release(lease)
        assert ended.code == Exit.OK
        assert "backfill" in ended.out
        assert "lakelock locks ls" in ended.out

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

    def test_a_torn_commit_a_lost_file_and_a_short_one_fail_and_are_named(self, storage: LocalStorage, path: str) -> None:
        torn, lost, short = (insert(writer(storage), storage, "month=1", name) for name in ("torn", "lost", "short"))
        assert "3 commits can be read, and their 3 files are there" in run("doctor", path).out
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

    def test_a_table_that_is_only_read_is_a_warning_that_says_why(self, storage: LocalStorage, path: str) -> None:
        found = storage.get(layout.PROPERTIES)
        assert found is not None
        storage.put(layout.PROPERTIES, found.data + b"hoodie.table.metadata.partitions=files\n")
        ended = run("doctor", path, "--json")
        (table,) = [check for check in ended.json["checks"] if check["name"] == "table"]
        assert table["status"] == "warning"
        assert "not written" in table["found"]
        assert "hoodie.metadata.enable" in table["hint"]

    def test_storage_that_ignores_conditions_fails(self) -> None:
        (found,) = [check for check in self._examined(_Careless(self._table())) if check.name == "storage"]
        assert found.status == "failed"
        assert "ignores create-if-absent" in found.found

    def test_one_broken_thing_does_not_hide_the_others(self) -> None:
        broken = FaultyStorage(self._table(), [Rule(op="list", nth=None, fault=Fault.FAIL)])
        checks = self._examined(broken)
        assert {check.name for check in checks if check.status == "failed"} == {"clock", "writers", "decisions", "contents"}
        assert {check.name for check in checks} >= {"settings", "table", "storage", "lock", "packages"}

    @pytest.mark.parametrize(("skew_ms", "word"), [(3_600_000, "ahead of"), (-3_600_000, "behind")])
    def test_a_wrong_clock_is_a_warning(self, skew_ms: int, word: str) -> None:
        runtime = ManualRuntime()
        storage = MemoryStorage(runtime.now_ms)
        new_table(storage)
        storage._now_ms = lambda: runtime.now_ms() - skew_ms
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
        return list(examine(Patient("t", Settings.resolve(), storage, runtime or ManualRuntime())))


class _Careless(Wrapped):
    """Storage as some S3-compatible services are: conditions are accepted and ignored."""

    def put_if_absent(self, key: str, data: bytes, *, durable: bool = True) -> str | None:
        self.inner.put(key, data)
        found = self.inner.get(key)
        return found.etag if found else None


class TestConfig:
    def test_each_value_comes_with_its_origin(self, path: str, tmp_path: Path) -> None:
        file = tmp_path / "my.toml"
        file.write_text("[lock]\nwait_s = 7\nlease_s = 20\n")
        ended = run("config", "explain", path, "--config", str(file), "--set", "lock.wait_s=9", "--json")
        assert ended.code == Exit.OK
        rows = {row["key"]: row for row in ended.json["settings"]}
        assert (rows["lock.wait_s"]["value"], rows["lock.wait_s"]["origin"]) == ("9.0", "option")
        assert rows["lock.lease_s"]["value"] == "20.0"
        assert "my.toml" in rows["lock.lease_s"]["origin"]
        assert rows["lock.renew_s"]["origin"] == "default"
        text = run("config", "explain", path).out
        assert "How long a commit waits for the lock" in text

    def test_secrets_are_not_shown(self, path: str) -> None:
        given = ["--set", "storage.aws_secret_access_key=hush", "--set", "lock.provider=storage:?password=hush"]
        for arguments in (["config", "explain", path, *given], ["config", "explain", path, *given, "--json"]):
            ended = run(*arguments)
            assert "hush" not in ended.out + ended.err

    @pytest.mark.parametrize("given", ["lock.wiat_s=3", "lock.wait_s", "=3", "lock.wait_s=-1", "lock.wait_s=soon"])
    def test_what_is_no_setting_is_a_usage_error(self, path: str, given: str) -> None:
        ended = run("config", "explain", path, "--set", given)
        assert (ended.code, ended.out) == (Exit.USAGE, "")
        assert ended.err.startswith("error: ")

    def test_it_tells_which_lock_guards_the_table(self, storage: LocalStorage, path: str) -> None:
        assert "no lakelock writer has written" in run("config", "explain", path).out
        insert(writer(storage), storage, "month=1", "a")
        assert run("config", "explain", path, "--json").json["recorded_lock"].startswith("storage:")


class TestCommits:
    def test_the_newest_come_first_and_only_as_many_as_asked_for(self, storage: LocalStorage, path: str) -> None:
        done = [insert(writer(storage, name="stream"), storage, "month=1", file_id) for file_id in "abc"]
        ended = run("commits", "ls", path, "--limit", "2", "--json")
        assert [entry["instant"] for entry in ended.json["commits"]] == [done[2].instant, done[1].instant]
        assert set(ended.json["commits"][0]) >= {
            "instant",
            "completion",
            "decision",
            "operation",
            "writer",
            "rows_inserted",
            "files",
        }
        text = run("commits", "ls", path).out
        assert [line.split()[0] for line in text.splitlines()[1:]] == [d.instant for d in reversed(done)]
        assert "stream (" in text

    def test_an_empty_table_says_so(self, path: str) -> None:
        assert run("commits", "ls", path).out == "nothing was committed yet\n"
        assert run("commits", "ls", path, "--json").json["commits"] == []

    def test_a_committed_instant_ends_with_0(self, storage: LocalStorage, path: str) -> None:
        done = insert(writer(storage), storage, "month=1", "a")
        ended = run("commits", "show", path, done.instant, "--json")
        assert ended.code == Exit.OK
        assert ended.json["outcome"] == "committed"
        assert (ended.json["file_groups"], ended.json["rewritten"], ended.json["decision"]) == (["month=1/a"], [], 1)
        assert "month=1/a" in run("commits", "show", path, done.instant).out

    def test_a_pending_instant_ends_with_5_and_says_that_its_writer_lives(self, storage: LocalStorage, path: str) -> None:
        with writer(storage, name="slow").begin("UPSERT") as tx:
            ended = run("commits", "show", path, tx.instant, "--json")
        assert ended.code == Exit.OUTCOME_UNKNOWN
        assert (ended.json["outcome"], ended.json["liveness"], ended.json["operation"]) == ("pending", "alive", "UPSERT")
        assert ended.json["writer"].startswith("slow (")

    def test_a_rolled_back_instant_ends_with_4_and_says_by_whom(self, storage: LocalStorage, path: str) -> None:
        tx = left_by_a_dead_writer(storage)
        run("markers", "reap", path)
        ended = run("commits", "show", path, tx.instant, "--json")
        assert (ended.code, ended.json["outcome"]) == (Exit.CONFLICT, "rejected")
        assert "lakelock command line" in ended.json["rolled_back_by"]

    def test_an_instant_that_never_was_ends_with_4(self, path: str) -> None:
        ended = run("commits", "show", path, "20200101000000000")
        assert ended.code == Exit.CONFLICT
        assert "never was" in ended.out

    def test_what_was_decided_becomes_visible_by_asking(self, storage: LocalStorage, path: str) -> None:
        done = insert(writer(storage), storage, "month=1", "a")
        storage.delete([layout.timeline(f"{done.instant}_{done.completion}.commit")])
        assert run("commits", "show", path, done.instant).code == Exit.OK
        assert run("commits", "ls", path, "--json").json["commits"][0]["instant"] == done.instant

    def test_what_is_no_instant_is_a_usage_error(self, path: str) -> None:
        ended = run("commits", "show", path, "yesterday")
        assert ended.code == Exit.USAGE
        assert f"next: lakelock commits ls {path}" in ended.err


class TestLocks:
    @pytest.fixture
    def held(self, storage: LocalStorage) -> Iterator[int]:
        provider = writer(storage, name="backfill").table.provider
        assert provider is not None
        lease = provider.acquire(wait_s=1)
        yield lease.token
        provider.release(lease)

    def test_a_free_lock_says_so(self, path: str) -> None:
        ended = run("locks", "ls", path)
        assert ended.code == Exit.OK
        assert "free" in ended.out
        assert run("locks", "ls", path, "--json").json["state"] == "free"

    def test_a_held_lock_shows_its_holder_and_how_to_break_it(self, path: str, held: int) -> None:
        ended = run("locks", "ls", path)
        assert "backfill" in ended.out
        assert f"lakelock locks break {path} --token {held}" in ended.out
        found = run("locks", "ls", path, "--json").json
        assert (found["state"], found["token"], found["holder"]["writer"]["application"]) == ("held", held, "backfill")
        assert found["holder"]["renewed"].endswith("Z")

    def test_a_live_holder_is_not_robbed_by_mistake(self, path: str, held: int) -> None:
        ended = run("locks", "break", path, "--token", str(held), "--yes")
        assert ended.code == Exit.LOCK_HELD
        assert "backfill" in ended.err
        assert run("locks", "ls", path, "--json").json["state"] == "held"

    def test_another_grant_is_not_broken(self, path: str, held: int) -> None:
        ended = run("locks", "break", path, "--token", str(held - 1), "--yes", "--force")
        assert ended.code == Exit.LOCK_HELD
        assert "another grant has followed" in ended.err

    def test_it_asks_first_and_no_means_no(self, path: str, held: int) -> None:
        ended = run("locks", "break", path, "--token", str(held), "--force", stdin="n\n")
        assert ended.code == Exit.ERROR
        assert "Break the lock that backfill" in ended.err
        assert run("locks", "ls", path, "--json").json["state"] == "held"

    def test_yes_with_force_breaks_it(self, path: str, held: int) -> None:
        ended = run("locks", "break", path, "--token", str(held), "--force", "--json", "--yes")
        assert (ended.code, ended.json["broken"]) == (Exit.OK, True)
        assert run("locks", "ls", path, "--json").json["state"] == "free"

    def test_a_lock_that_cannot_be_read_is_broken_by_force_only(self, storage: LocalStorage, path: str, held: int) -> None:
        storage.put(layout.LOCK, b"torn")
        assert run("locks", "break", path, "--token", str(held), "--yes").code == Exit.ERROR
        ended = run("locks", "break", path, "--token", str(held), "--force", "--yes")
        assert (ended.code, ended.out.strip()) == (Exit.OK, "broken: somebody unknown no longer holds the lock")
        assert run("locks", "ls", path, "--json").json["state"] == "free"

    def test_programs_must_say_yes(self, path: str, held: int) -> None:
        ended = run("locks", "break", path, "--token", str(held), "--force", "--json")
        assert ended.code == Exit.USAGE
        assert json.loads(ended.err)["error"]["code"] == "settings"

    def test_without_a_lock_there_is_nothing_to_show(self, path: str) -> None:
        ended = run("locks", "ls", path, "--set", "concurrency.mode=SINGLE_WRITER")
        assert ended.code == Exit.USAGE
        assert "there is no lock" in ended.err


class TestMarkers:
    def test_a_quiet_table_has_none(self, storage: LocalStorage, path: str) -> None:
        insert(writer(storage), storage, "month=1", "a")
        assert run("markers", "ls", path, "--json").json["writers"] == []
        assert "no writer is at it" in run("markers", "ls", path).out

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
        tx = left_by_a_dead_writer(storage)
        ended = run("markers", "reap", path, "--json")
        (reaped,) = ended.json["reaped"]
        assert (reaped["instant"], reaped["outcome"]) == (tx.instant, "rolled back")
        assert "600 s old" in reaped["evidence"]
        assert leftovers(storage) == []
        assert "no dead writer left anything" in run("markers", "reap", path).out

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
        storage.put(layout.PROPERTIES, found.data + b"hoodie.table.metadata.partitions=files\n")
        ended = run("markers", "reap", path)
        assert ended.code == Exit.ERROR
        assert "next: " in ended.err


class TestEveryCommand:
    @pytest.mark.parametrize(
        "command", [["commits", "ls"], ["locks", "ls"], ["markers", "ls"], ["markers", "reap"], ["doctor"]]
    )
    def test_no_table_is_an_error_on_stderr_with_a_next_step(self, tmp_path: Path, command: list[str]) -> None:
        ended = run(*command, str(tmp_path / "nothing"))
        assert (ended.code, ended.out) == (Exit.ERROR, "")
        assert "next: " in ended.err
        as_json = run(*command, str(tmp_path / "nothing"), "--json")
        assert json.loads(as_json.err)["error"]["code"] == "table"
        assert not (tmp_path / "nothing").exists()

    @pytest.mark.parametrize(
        "arguments", [["commits", "ls"], ["nonsense"], ["locks", "break", "x"], ["commits", "ls", "x", "-n", "0"]]
    )
    def test_a_wrong_call_is_a_usage_error(self, arguments: list[str]) -> None:
        assert run(*arguments).code == Exit.USAGE

    def test_the_version_is_told(self) -> None:
        assert run("--version").out.startswith("lakelock ")

    def test_text_of_a_pipe_is_not_cut(self, storage: LocalStorage, path: str) -> None:
        name = "a-rather-long-application-name-of-a-nightly-backfill"
        insert(writer(storage, name=name), storage, "month=1", "a")
        assert name in run("commits", "ls", path).out


CONFLICT = Conflict(ConflictRule.KEY, Party("1", "UPSERT"), Party("2", "UPSERT"))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (LakelockError("x"), 1), (TableError("x"), 1), (CorruptTableError("x"), 1), (LeaseLost("x"), 1), (InputError("x"), 2),
        (SettingsError("x"), 2), (LockTimeout("x"), 3), (LockError("x"), 3), (ConflictError(CONFLICT), 4),
        (EarlyConflictError(CONFLICT), 4), (RolledBackError("x"), 4), (CommitOutcomeUnknown("x"), 5),
    ],
)  # fmt: skip
def test_each_kind_of_error_has_its_exit_code(error: LakelockError, code: int) -> None:
    assert exit_of(error) == code


@pytest.mark.parametrize(
    ("size_bytes", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 << 30, "5.0 GiB"), (3 << 40, "3.0 TiB")]
)
def test_sizes_are_readable(size_bytes: int, text: str) -> None:
    assert size(size_bytes) == text
