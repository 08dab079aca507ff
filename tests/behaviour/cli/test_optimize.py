"""`lakelock optimize` and `lakelock restore`, on a real table on local disk."""

from __future__ import annotations

from tests.api import ArrowEngine, LocalStorage, layout
from tests.behaviour.cli.command_line import everything, run, writer
from tests.behaviour.upkeep.test_optimize import content, rows

from lakelock.cli.output import Exit, moment


def test_small_files_are_joined_and_a_dry_run_changes_nothing(storage: LocalStorage, path: str) -> None:
    engine = ArrowEngine(writer(storage))
    for number in range(3):
        engine.insert(rows((f"a{number}", number, "1"), (f"b{number}", number, "2")))
    before, found = everything(storage), content(engine.read())
    assert "6 files would become 2; nothing was changed" in run("optimize", path, "--dry-run").out
    assert everything(storage) == before
    ended = run("optimize", path, "--partition", "month=1", "--tag", "cron", "--json")
    assert (ended.code, ended.json["files_before"], ended.json["files_after"]) == (Exit.OK, 3, 1)
    assert "3 files became 1" in run("optimize", path).out
    assert content(engine.read()) == found


def test_a_table_is_restored_and_the_output_says_how_to_undo_that(storage: LocalStorage, path: str) -> None:
    engine = ArrowEngine(writer(storage))
    good = engine.insert(rows(("a", 1, "1")))
    bad = engine.overwrite_partitions(rows(("x", 0, "1")))
    before = everything(storage)
    would = run("restore", path, good.instant, "--dry-run")
    assert f"would restore to {good.instant} ({moment(good.completion)} UTC): 1 commit undone, 1 file written anew" in would.out
    told = run("restore", path, good.instant, "--dry-run", "--json").json
    assert (told["restored_to"], told["undone"], told["restored"]) == (good.instant, [bad.instant], None)
    assert everything(storage) == before and content(engine.read()) == [("x", 0, "1")]
    ended = run("restore", path, good.instant)
    assert content(engine.read()) == [("a", 1, "1")]
    assert f"restored to {good.instant} ({moment(good.completion)} UTC), 1 commit undone, 1 file written anew" in ended.out
    assert f"to undo this: lakelock restore {path} {bad.instant}" in ended.out
    run("restore", path, bad.instant)
    assert content(engine.read()) == [("x", 0, "1")]
    ended = run("restore", path, "2020-01-01")
    assert (ended.code, "it had no commit then" in ended.err) == (Exit.USAGE, True)


def test_restoring_to_the_newest_commit_says_that_nothing_was_to_be_done(storage: LocalStorage, path: str) -> None:
    engine = ArrowEngine(writer(storage))
    engine.insert(rows(("a", 1, "1")))
    newest = engine.insert(rows(("b", 1, "1"))).instant
    ended = run("restore", path, newest)
    assert ended.code == Exit.OK and f"the newest commit is {newest}" in ended.out and "nothing was to be done" in ended.out
    assert engine.coordinator.history(1)[0].instant == newest
    assert run("restore", path, "2062-01-01").code == Exit.USAGE
    assert "0 commits undone" in run("restore", path, newest, "--dry-run").out


def test_a_dry_run_promises_nothing_on_a_table_that_must_not_be_written(storage: LocalStorage, path: str) -> None:
    engine = ArrowEngine(writer(storage))
    first = engine.insert(rows(("a", 1, "1"))).instant
    engine.insert(rows(("b", 1, "1")))
    found = storage.get(layout.PROPERTIES)
    assert found is not None
    storage.put(layout.PROPERTIES, found.data + b"hoodie.table.metadata.partitions=bloom_filters\n")
    for command in (["optimize", path], ["restore", path, first]):
        would, does = run(*command, "--dry-run"), run(*command)
        assert (would.code, would.out, would.err) == (does.code, "", does.err) and does.code == Exit.ERROR
