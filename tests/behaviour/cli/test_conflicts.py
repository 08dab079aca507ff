"""`lakelock conflicts`, on real tables on local disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.api import LocalStorage
from tests.behaviour.cli.command_line import everything, run, writer
from tests.behaviour.tables import insert, put_file

from lakelock.cli.output import Exit
from lakelock.errors import ConflictError


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
        elsewhere = {"delta (Serializable)", "delta (WriteSerializable)", "hive", "hudi"}
        assert ended.json["profile"] == "strict" and set(ended.json["elsewhere"]) == elsewhere

    def test_deltas_level_is_asked_and_the_weaker_one_is_the_advice(self, storage: LocalStorage, path: str) -> None:
        pair = ["--mine", "DELETE month=1", "--theirs", "INSERT month=1", "--set", "concurrency.profile=delta"]
        ended = run("conflicts", "explain", path, *pair)
        assert ended.code == Exit.CONFLICT and "delta (Serializable)" in ended.out
        assert 'with concurrency.isolation = "WriteSerializable"' in ended.out
        ended = run("conflicts", "explain", path, *pair, "--set", "concurrency.isolation=WriteSerializable", "--json")
        assert (ended.code, ended.json["verdict"], ended.json["level"]) == (Exit.OK, "passes", "WriteSerializable")

    def test_the_profile_of_the_settings_is_asked(self, storage: LocalStorage, path: str) -> None:
        pair = ["--mine", "READ", "--theirs", "INSERT month=1", "--set", "concurrency.profile=hudi", "--json"]
        ended = run("conflicts", "explain", path, *pair)
        assert (ended.code, ended.json["profile"], ended.json["elsewhere"]["strict"]["verdict"]) == (0, "hudi", "collides")

    @pytest.mark.parametrize(
        ("mine", "says"),
        [
            ("DELTE month=1", 'did you mean "DELETE"'),
            ("DELETE mnth=1", 'did you mean "month"'),
            ("DELETE mnth > 1", 'did you mean "month"'),
            ("DELETE 1", "not a partition of this table"),
            ("DELETE v >", "nothing follows its >"),
            ("DELETE v > AND id = 'x'", "nothing follows its >"),
            ("DELETE v > 1 and", "nothing follows its and"),
            ("READ > 1", "nothing stands before its >"),
            ("READ v > 1 OR (= 3)", "nothing stands before its ="),
            ("READ (v > 1", "a parenthesis is missing"),
            ("READ id = 'x", "a quote is missing"),
        ],
    )
    def test_what_cannot_be_understood_is_a_usage_error(self, path: str, mine: str, says: str) -> None:
        ended = run("conflicts", "explain", path, "--mine", mine, "--theirs", "INSERT")
        assert (ended.code, ended.out) == (Exit.USAGE, "")
        assert says in ended.err and "next: " in ended.err

    @pytest.mark.parametrize(
        "condition",
        [
            "v > -1",
            "v IS NOT NULL",
            "id IN ('x', 'a AND')",
            "v BETWEEN 1 AND 2",
            "NOT (v = 1)",
            "id = 'it''s (' OR v<=>1",
            r"id = 'it\'s'",
        ],
    )
    def test_a_whole_condition_is_not_taken_for_half_of_one(self, storage: LocalStorage, path: str, condition: str) -> None:
        insert(writer(storage), storage, "month=1", "a")
        ended = run("conflicts", "explain", path, "--mine", f"DELETE {condition}", "--theirs", "INSERT month=1")
        assert ended.code == Exit.OK, ended.err

    def test_asking_leaves_no_trace(self, storage: LocalStorage, path: str) -> None:
        insert(writer(storage), storage, "month=1", "a")
        before = everything(storage)
        run("conflicts", "explain", path, "--mine", "UPSERT", "--theirs", "UPSERT")
        assert everything(storage) == before


class TestRejected:
    def rejected(self, storage: LocalStorage) -> str:
        """The instant of a transaction that met another one in a file group."""
        insert(writer(storage), storage, "month=1", "a")
        tx, other = writer(storage, name="slow").begin("UPSERT"), writer(storage, name="fast").begin("UPSERT")
        stat = put_file(tx, storage, "month=1", "a", token="1-1-1")
        other.commit([put_file(other, storage, "month=1", "a")])
        with pytest.raises(ConflictError):
            tx.commit([stat])
        return tx.instant

    @pytest.mark.parametrize("named", ["argument", "--mine"])
    def test_a_rejected_instant_ends_with_4_and_says_whom_it_met(self, storage: LocalStorage, path: str, named: str) -> None:
        instant = self.rejected(storage)
        ended = run("conflicts", "explain", path, *([instant] if named == "argument" else ["--mine", instant]))
        assert ended.code == Exit.CONFLICT
        for text in (instant, "fast", "file-group", "month=1/a", "at the commit", "run the operation again"):
            assert text in ended.out

    def test_a_program_gets_the_same_as_json(self, storage: LocalStorage, path: str) -> None:
        instant = self.rejected(storage)
        found = run("conflicts", "explain", path, instant, "--json").json
        assert (found["outcome"], found["rejection"]["explanation"]["rule"]) == ("rejected", "file-group")
        listed = run("conflicts", "list", path, "--json").json["rejections"]
        assert listed == [found["rejection"]]

    def test_an_instant_without_a_record_says_so(self, storage: LocalStorage, path: str) -> None:
        done = insert(writer(storage), storage, "month=1", "a")
        committed = run("conflicts", "explain", path, done.instant)
        assert committed.code == Exit.OK and "it is committed" in committed.out
        never = run("conflicts", "explain", path, "20200101000000000")
        assert never.code == Exit.ERROR and "no record of a rejection is left" in never.out

    def test_rejections_are_listed_and_doctor_counts_them(self, storage: LocalStorage, path: str) -> None:
        assert "no transaction left a record" in run("conflicts", "list", path).out
        instant = self.rejected(storage)
        assert instant in run("conflicts", "list", path).out
        assert f"1 rejected transaction left a record, the latest is {instant}" in run("doctor", path).out

    @pytest.mark.parametrize(
        "given",
        [[], ["--mine", "DELETE"], ["--theirs", "DELETE"], ["20200101000000000", "--theirs", "INSERT"], ["yesterday"]],
    )
    def test_a_question_that_is_not_whole_is_a_usage_error(self, path: str, given: list[str]) -> None:
        ended = run("conflicts", "explain", path, *given)
        assert (ended.code, ended.out) == (Exit.USAGE, "") and "next: lakelock conflicts" in ended.err


def test_an_operation_that_is_an_empty_text_is_a_usage_error(tmp_path: Path) -> None:
    ended = run("conflicts", "explain", str(tmp_path), "--mine", "", "--theirs", "INSERT")
    assert (ended.code, ended.out) == (Exit.USAGE, "")
    assert "--mine is an empty" in " ".join(ended.err.split())
