"""`lakelock optimize` and `lakelock restore`, on a real table on local disk."""

from __future__ import annotations

from lakelock.cli.output import Exit
from lakelock.engine.arrow import ArrowEngine
from lakelock.storage.local import LocalStorage
from tests.behaviour.cli.command_line import everything, run, writer
from tests.behaviour.upkeep.test_optimize import content, rows


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
    ended = run("restore", path, good.instant)
    assert content(engine.read()) == [("a", 1, "1")]
    assert f"to undo this: lakelock restore {path} {bad.instant}" in ended.out
    run("restore", path, bad.instant)
    assert content(engine.read()) == [("x", 0, "1")]
    ended = run("restore", path, "2020-01-01")
    assert (ended.code, "it had no commit then" in ended.err) == (Exit.USAGE, True)
