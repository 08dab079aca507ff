"""`lakelock conflicts`, on real tables on local disk."""

from __future__ import annotations

import pytest
from tests.api import LocalStorage
from tests.behaviour.cli.command_line import run, writer
from tests.behaviour.tables import insert, put_file

from lakelock.cli.output import Exit
from lakelock.errors import ConflictError


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

    def test_a_rejected_instant_ends_with_4_and_says_whom_it_met(self, storage: LocalStorage, path: str) -> None:
        instant = self.rejected(storage)
        ended = run("conflicts", "explain", path, instant)
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

    def test_a_text_that_is_no_instant_is_a_usage_error(self, path: str) -> None:
        ended = run("conflicts", "explain", path, "yesterday")
        assert (ended.code, ended.out) == (Exit.USAGE, "") and "next: lakelock conflicts" in ended.err
