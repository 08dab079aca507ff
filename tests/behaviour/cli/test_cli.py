"""The command line, on real tables on local disk: what people see, what programs parse, and how each command ends."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.api import ConflictRule, LocalStorage, layout
from tests.behaviour.cli.command_line import left_by_a_dead_writer, run, writer
from tests.behaviour.tables import collided_writers, insert

from lakelock.cli.output import Exit, exit_of
from lakelock.conflict import Conflict, Party
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
from lakelock.occ.rejections import rejected_instants
from lakelock.texts import counted, size_text


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
        assert "stream " in text

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

    def test_an_instant_that_never_was_is_not_taken_for_rejected(self, path: str) -> None:
        ended = run("commits", "show", path, "20200101000000000")
        assert ended.code == Exit.ERROR
        assert "never existed" in ended.out and f"lakelock commits ls {path}" in ended.out
        told = run("commits", "show", path, "20200101000000000", "--json").json
        assert (told["known"], told["outcome"]) == (False, "no trace")

    def test_a_rejected_instant_says_whom_it_met_and_how_to_learn_more(self, storage: LocalStorage, path: str) -> None:
        collided_writers(storage)
        (instant,) = rejected_instants(storage)
        ended = run("commits", "show", path, instant)
        assert ended.code == Exit.CONFLICT
        assert "month=1/f" in ended.out and f"lakelock conflicts explain {path} {instant}" in ended.out
        told = run("commits", "show", path, instant, "--json").json
        assert (told["known"], told["outcome"]) == (True, "rejected")
        storage.put(layout.rejection(instant), b"{")
        damaged = run("commits", "show", path, instant)
        assert damaged.code == Exit.CONFLICT and "is not a record of a rejection" in damaged.out

    def test_a_rolled_back_instant_whose_decision_is_gone_is_known_by_its_rollback(
        self, storage: LocalStorage, path: str
    ) -> None:
        tx = left_by_a_dead_writer(storage)
        run("markers", "reap", path)
        for _ in range(3):
            insert(writer(storage), storage, "month=1", "a")
        assert writer(storage).collect() > 0
        told = run("commits", "show", path, tx.instant, "--json")
        assert (told.code, told.json["known"]) == (Exit.CONFLICT, True)

    def test_an_archived_commit_tells_as_much_as_an_active_one(self, storage: LocalStorage, path: str) -> None:
        done = [insert(writer(storage, name="stream"), storage, "month=1", file_id) for file_id in "abcdef"]
        before = run("commits", "show", path, done[0].instant, "--json").json
        short = ["clean.policy=KEEP_LATEST_COMMITS", "clean.keep_commits=1", "clean.readers_s=0"]
        short += ["archive.min_commits=2", "archive.max_commits=2", "archive.min_age_s=0"]
        assert run("archive", path, *[f"--set={each}" for each in short], "--json").json["instants"] >= 3
        after = run("commits", "show", path, done[0].instant, "--json").json
        assert after == before and after["writer"].startswith("stream (") and after["file_groups"] == ["month=1/a"]

    def test_what_was_decided_becomes_visible_by_asking(self, storage: LocalStorage, path: str) -> None:
        done = insert(writer(storage), storage, "month=1", "a")
        storage.delete([layout.timeline(f"{done.instant}_{done.completion}.commit")])
        assert run("commits", "show", path, done.instant).code == Exit.OK
        assert run("commits", "ls", path, "--json").json["commits"][0]["instant"] == done.instant

    def test_what_is_no_instant_is_a_usage_error(self, path: str) -> None:
        ended = run("commits", "show", path, "yesterday")
        assert ended.code == Exit.USAGE
        assert f"next: lakelock commits ls {path}" in ended.err


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
    assert size_text(size_bytes) == text


@pytest.mark.parametrize(("number", "text"), [(0, "0 files"), (1, "1 file"), (2, "2 files"), (2000, "2,000 files")])
def test_one_of_something_is_no_plural(number: int, text: str) -> None:
    assert counted(number, "file") == text


def test_a_table_of_one_commit_is_told_of_without_plurals(storage: LocalStorage, path: str, tmp_path: Path) -> None:
    insert(writer(storage), storage, "month=1", "a")
    page = str(tmp_path / "page.html")
    told = [run(*command, path, *rest).out for *command, rest in (
        ("doctor", []), ("audit", []), ("timeline", ["--html", page]), ("savepoint", "create", ["one"]), ("upkeep", []),
    )]  # fmt: skip
    for text in ("1 commit in the timeline", "1 decision,", "1 commit can be read", "missing of 1 file", "1 commit: none",
                 "1 transaction, none in conflict", "keeps 1 file as of", "finished 0 dead writers"):  # fmt: skip
        assert text in "".join(told)
    assert not re.search(r"(?<![\d.,])1 \w+s\b|\(s\)", re.sub(r"\b1 (is|ms)\b", "", "".join(told)))
