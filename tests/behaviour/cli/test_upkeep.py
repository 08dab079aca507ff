"""`lakelock upkeep`, `clean`, `archive` and `savepoint` on real tables on local disk."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.api import LocalStorage, layout
from tests.behaviour.cli.command_line import left_by_a_dead_writer, run, writer
from tests.behaviour.tables import put_file

from lakelock.cli.output import Exit

NOW = ["--set", "clean.policy=KEEP_LATEST_COMMITS", "--set", "clean.keep_commits=1", "--set", "clean.readers_s=0"]
SHORT = ["--set", "archive.min_commits=2", "--set", "archive.max_commits=2", "--set", "archive.min_age_s=0"]


@pytest.fixture
def aged(storage: LocalStorage, path: str) -> str:
    """Six commits, each of which rewrites the only file."""
    for _ in range(6):
        with writer(storage).begin("UPSERT") as tx:
            tx.commit([put_file(tx, storage, "month=1", "a")])
    return path


def files(path: str) -> int:
    return len(list(Path(path).glob("month=1/*.parquet")))


def test_a_dry_run_tells_and_the_run_does_it(aged: str) -> None:
    would = run("upkeep", aged, *NOW, *SHORT, "--dry-run")
    assert (would.code, files(aged)) == (Exit.OK, 6)
    assert "would delete 4 old files" in would.out and "would archive 4 instants" in would.out
    done = run("upkeep", aged, *NOW, *SHORT)
    assert done.code == Exit.OK and "deleted 4 old files, 16 B" in done.out and "archived 4 instants" in done.out
    assert re.search(r"the table is readable as of \d{17} and later", done.out) and files(aged) == 2
    listed = run("commits", "ls", aged, "--json")
    assert len(listed.json["commits"]) == 6
    as_json = run("upkeep", aged, *NOW, *SHORT, "--json").json
    assert as_json["cleaned"]["files"] == 0 and as_json["problems"] == [] and as_json["dry_run"] is False


def test_upkeep_that_cannot_finish_a_dead_writer_says_so_and_ends_with_1(aged: str, storage: LocalStorage) -> None:
    dead = left_by_a_dead_writer(storage)
    provider = writer(storage).table.provider
    assert provider is not None
    lease = provider.acquire(wait_s=10)
    ended = run("upkeep", aged, "--set", "lock.wait_s=0.1")
    provider.release(lease)
    assert ended.code == Exit.ERROR and "finished 0 dead writers" in ended.out
    assert f"problem: finish the dead: {dead.instant}: could not reap a dead writer: " in ended.err
    assert "finished 1 dead writer\n" in run("upkeep", aged).out


def test_decisions_that_nobody_can_read_are_a_problem_and_stay(aged: str, storage: LocalStorage) -> None:
    decisions = [item.key for item in storage.list(layout.DECISIONS)]
    for key in decisions:
        storage.put(key, b'{"a":')
    for options in (["--dry-run"], []):
        ended = run("upkeep", aged, *options)
        assert ended.code == Exit.ERROR and "collected 0" in ended.out.replace("would collect", "collected")
        assert f"problem: collect: {storage.uri}: decision {decisions[-1]} is not readable" in ended.err
    assert [item.key for item in storage.list(layout.DECISIONS)] == decisions


def test_each_step_alone(aged: str) -> None:
    assert "deleted 4 old files" in run("clean", aged, *NOW).out
    archived = run("archive", aged, *NOW, *SHORT, "--json").json
    assert archived["instants"] == 4 and archived["first"] < archived["last"]
    assert "deleted 0 old files" in run("clean", aged, *NOW, "--budget", "5").out


def test_what_keeps_more_is_named(aged: str, storage: LocalStorage) -> None:
    ended = run("clean", aged, *NOW[:4])
    first = run("commits", "ls", aged, "--json").json["commits"][-1]["instant"]
    assert "deleted 0 old files" in ended.out
    assert f"what was replaced at {first} or later stays for clean.readers_s" in ended.out
    tx = writer(storage).begin("INSERT")
    assert tx.instant in run("archive", aged, *NOW, *SHORT).out + run("clean", aged, *NOW).out
    tx.abort()


def test_a_retention_in_the_call_is_refused_if_it_would_take_what_somebody_needs(aged: str, storage: LocalStorage) -> None:
    at_once = ["--set", "clean.readers_s=0"]
    saved = run("savepoint", "create", aged, "release 7", "--json").json["instant"]
    for _ in range(2):
        with writer(storage).begin("UPSERT") as tx:
            tx.commit([put_file(tx, storage, "month=1", "a")])
    refused = run("clean", aged, "--keep-versions", "1", *at_once)
    assert refused.code == Exit.USAGE and files(aged) == 8
    assert f"'release 7' of {saved}" in refused.err and f"lakelock savepoint rm {storage.uri} {saved}" in refused.err
    assert run("savepoint", "rm", aged, saved).code == Exit.OK
    refused = run("clean", aged, "--keep-hours", "0", "--dry-run")
    assert refused.code == Exit.USAGE and "clean.readers_s" in refused.err
    assert run("clean", aged, "--keep-hours", "1", "--keep-commits", "1").code == Exit.USAGE
    assert "deleted 6 old files" in run("clean", aged, "--keep-commits", "1", *at_once).out
    assert "deleted 1 old file," in run("clean", aged, "--keep-versions", "1", *at_once).out and files(aged) == 1


def test_savepoints_are_taken_listed_and_removed(aged: str) -> None:
    assert run("savepoint", "ls", aged).out.strip() == "there is no savepoint"
    made = run("savepoint", "create", aged, "release 7", "--json")
    assert made.code == Exit.OK and made.json["name"] == "release 7" and made.json["files"] == 1
    twice = run("savepoint", "create", aged, "release 7")
    assert twice.code == Exit.USAGE and "there is already a savepoint 'release 7'" in twice.err
    assert "release 7" in run("savepoint", "ls", aged).out
    assert run("savepoint", "rm", aged, "release 7").code == Exit.OK
    assert run("savepoint", "ls", aged, "--json").json["savepoints"] == []
    assert run("savepoint", "rm", aged, "release 7").code == Exit.USAGE
