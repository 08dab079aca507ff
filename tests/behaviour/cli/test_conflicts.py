"""`lakelock conflicts`, on real tables on local disk."""

from __future__ import annotations

import pytest

from lakelock.cli.output import Exit
from lakelock.occ.conflicts.rules import PROFILES
from lakelock.storage.local import LocalStorage
from tests.behaviour.cli.command_line import everything, run, writer
from tests.behaviour.tables import insert


class TestTwoOperations:
    def test_operations_that_collide_end_with_4_and_say_why_and_what_helps(self, storage: LocalStorage, path: str) -> None:
        insert(writer(storage), storage, "month=1", "a")
        ended = run("conflicts", "explain", path, "--mine", "OVERWRITE month=1", "--theirs", "INSERT month=1")
        assert ended.code == Exit.CONFLICT and ended.err == ""
        for text in ("partition-overwrite", "month=1", "at the commit", "in the other order", 'partition="month=1"'):
            assert text in ended.out

    def test_operations_that_pass_or_may_collide_end_with_0(self, storage: LocalStorage, path: str) -> None:
        insert(writer(storage), storage, "month=1", "a")
        apart = run("conflicts", "explain", path, "--mine", "DELETE month=1", "--theirs", "UPSERT month=2")
        assert apart.code == Exit.OK and "passes" in apart.out
        perhaps = run("conflicts", "explain", path, "--mine", "DELETE id = 'x'", "--theirs", "INSERT month=1")
        assert perhaps.code == Exit.OK and "only if a row matches: id = 'x'" in perhaps.out

    def test_a_program_gets_every_profile_as_json(self, storage: LocalStorage, path: str) -> None:
        theirs = insert(writer(storage), storage, "month=1", "a").instant
        ended = run("conflicts", "explain", path, "--mine", "READ month=1", "--theirs", theirs, "--json")
        assert ended.code == Exit.CONFLICT
        assert (ended.json["verdict"], ended.json["rule"], ended.json["found"]) == ("collides", "append", "commit")
        assert theirs in ended.json["other"] and ended.json["reverse"] is None
        assert {ended.json["profile"], *ended.json["elsewhere"]} == set(PROFILES)

    def test_the_profile_of_the_settings_is_asked(self, storage: LocalStorage, path: str) -> None:
        pair = ["--mine", "READ", "--theirs", "INSERT month=1", "--set", "concurrency.profile=hudi", "--json"]
        ended = run("conflicts", "explain", path, *pair)
        assert (ended.code, ended.json["profile"], ended.json["elsewhere"]["strict"]["verdict"]) == (0, "hudi", "collides")

    @pytest.mark.parametrize(
        ("mine", "says"),
        [("DELTE month=1", 'did you mean "DELETE"'), ("", "empty"), ("DELETE mnth=1", 'did you mean "month"')],
    )
    def test_what_cannot_be_understood_is_a_usage_error(self, path: str, mine: str, says: str) -> None:
        ended = run("conflicts", "explain", path, "--mine", mine, "--theirs", "INSERT")
        assert (ended.code, ended.out) == (Exit.USAGE, "")
        assert says in ended.err and "next: " in ended.err

    def test_asking_leaves_no_trace(self, storage: LocalStorage, path: str) -> None:
        insert(writer(storage), storage, "month=1", "a")
        before = everything(storage)
        run("conflicts", "explain", path, "--mine", "UPSERT", "--theirs", "UPSERT")
        assert everything(storage) == before
