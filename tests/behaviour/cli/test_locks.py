"""The commands around locks, on real tables on local disk: SHOW LOCKS, EXPLAIN LOCKS, break, audit, migrate."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.api import Coordinator, LocalStorage, Resource, layout, lock_request
from tests.behaviour.cli.command_line import run
from tests.behaviour.data_locks.data_lock_suite import Later
from tests.behaviour.tables import insert, new_table, writer

from lakelock.admin.manual_changes import audited, read_audit
from lakelock.cli.output import Exit
from lakelock.errors import LeaseLost
from lakelock.occ.claims import reserve
from lakelock.occ.recorded_lock import recorded_provider
from lakelock.settings import Settings

MONTH = Resource.of("month=1")
QUICK = Settings.resolve({"data_locks.lease_s": 1, "data_locks.renew_s": 0.3, "data_locks.sleep_s": 0.05}).settings


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    made = LocalStorage(tmp_path / "t")
    new_table(made)
    insert(writer(made), made, "month=1", "a")
    return made


@pytest.fixture
def backfill(storage: LocalStorage) -> Iterator[Coordinator]:
    with writer(storage, Settings(), "backfill") as made:
        yield made


class TestTheCommitLock:
    @pytest.fixture
    def held(self, storage: LocalStorage) -> Iterator[int]:
        provider = writer(storage, Settings(), "backfill").table.provider
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
        assert found["holder"]["renewed"].endswith("Z") and found["holder"]["since"].endswith("Z")
        assert 0 <= found["holder"]["left_s"] <= found["holder"]["lease_s"]
        (row,) = found["locks"]
        assert row["acquired"] == found["holder"]["since"] and 0 <= row["left_s"] <= row["lease_s"]
        assert "s more unless it is renewed" in ended.out
        assert "left s" in run("locks", "ls", path, "--extended").out

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
        assert (ended.code, ended.out.strip()) == (Exit.OK, "broken: an unknown holder no longer holds the lock")
        assert run("locks", "ls", path, "--json").json["state"] == "free"

    def test_programs_must_say_yes(self, path: str, held: int) -> None:
        ended = run("locks", "break", path, "--token", str(held), "--force", "--json")
        assert ended.code == Exit.USAGE
        assert json.loads(ended.err)["error"]["code"] == "settings"

    def test_settings_of_another_lock_than_the_tables_break_nothing_and_do_not_say_that_it_is_free(
        self, path: str, storage: LocalStorage, held: int
    ) -> None:
        for more in (("--token", "0"), ("--token", "0", "--force"), ("--token", "1", "--data"), ("--data", "--all", "--force")):
            ended = run("locks", "break", path, *more, "--yes", "--set", "lock.provider=memory:")
            assert ended.code not in (Exit.OK, Exit.USAGE)
            assert f'set lock.provider to "storage:{layout.LOCK}"' in " ".join(ended.err.split())
        assert run("locks", "ls", path, "--json").json["state"] == "held" and read_audit(storage) == []

    def test_without_a_lock_there_is_nothing_to_show(self, path: str) -> None:
        ended = run("locks", "ls", path, "--set", "concurrency.mode=SINGLE_WRITER")
        assert ended.code == Exit.USAGE
        assert "there is no lock" in ended.err


class TestShowLocks:
    def test_holders_waiters_and_who_blocks_whom_are_in_hives_columns(self, path: str, backfill: Coordinator) -> None:
        held = backfill.data.locks.acquire(lock_request(exclusive=[MONTH], about="INSERT"))
        tx = backfill.begin("INSERT")
        waiting = Later(backfill.data.locks, lock_request(shared=[MONTH], about="SELECT"))
        ended = run("locks", "ls", path)
        assert ended.code == Exit.OK
        for column in (
            "lock id",
            "partition",
            "state",
            "type",
            "blocked by",
            "instant",
            "last heartbeat",
            "acquired at",
            "host",
        ):
            assert column in ended.out
        assert f"{held.token}.2" in ended.out and "backfill: INSERT" in ended.out
        assert f"{held.token + 1} (backfill: SELECT) waits for {held.token}" in ended.out
        first, second = run("locks", "ls", path, "--json").json["locks"]
        assert (first["state"], first["type"], first["partition"]) == ("ACQUIRED", "EXCLUSIVE", "month=1")
        assert (second["state"], second["type"], second["blocked_by"]) == ("WAITING", "SHARED", str(held.token))
        assert (first["kind"], first["instant"], first["table"]) == ("data", tx.instant, "t")
        assert first["acquired"].endswith("Z") and second["acquired"] is None
        tx.abort()
        backfill.data.locks.release(held)
        backfill.data.locks.release(waiting.lease())
        assert run("locks", "ls", path, "--json").json["locks"] == []

    def test_the_commit_lock_is_shown_with_the_data_locks(self, path: str, backfill: Coordinator) -> None:
        assert backfill.table.provider is not None
        lease = backfill.table.provider.acquire(wait_s=1)
        (row,) = run("locks", "ls", path, "--json").json["locks"]
        assert (row["kind"], row["lock_id"], row["type"], row["state"]) == ("commit", str(lease.token), "EXCLUSIVE", "ACQUIRED")
        backfill.table.provider.release(lease)

    def test_a_partition_narrows_and_extended_widens_what_is_shown(self, path: str, backfill: Coordinator) -> None:
        held = backfill.data.locks.acquire(lock_request([Resource.of("month=2")], [MONTH]))
        assert [row["partition"] for row in run("locks", "ls", path, "--json").json["locks"]] == ["month=1", "month=2"]
        (row,) = run("locks", "ls", path, "--partition", "month=2", "--json").json["locks"]
        assert (row["partition"], row["type"]) == ("month=2", "SHARED")
        rows = run("locks", "ls", path, "--extended", "--json").json["locks"]
        assert [row["lock_id"] for row in rows] == [f"{held.token}.{n}" for n in (1, 2, 3)]
        assert "writer" in run("locks", "ls", path, "--extended").out
        assert run("locks", "ls", path, "--partition", "mnth=2").code == Exit.USAGE
        backfill.data.locks.release(held)


class TestReservations:
    def test_who_reserved_what_since_when_and_who_waits_for_whom_is_shown(self, path: str, storage: LocalStorage) -> None:
        erasure, fix, other = (writer(storage, Settings(), name).table for name in ("erasure", "fix", "other"))
        first, second = reserve(erasure, "DELETE", None), reserve(fix, "UPSERT", frozenset({"month=1", "month=2"}))
        assert first and second
        ended = run("locks", "ls", path)
        assert ended.code == Exit.OK
        assert f"{first.reservation.id} (erasure: DELETE), since 20" in ended.out
        assert f"Z: it waits for {first.reservation.id}" in ended.out
        rows = run("locks", "ls", path, "--json").json["locks"]
        assert {row["kind"] for row in rows} == {"reservation"}
        assert [(row["lock_id"], row["partition"], row["state"], row["blocked_by"]) for row in rows] == [
            (first.reservation.id, "", "ACQUIRED", ""),
            (second.reservation.id, "month=1", "WAITING", first.reservation.id),
            (second.reservation.id, "month=2", "WAITING", first.reservation.id),
        ]
        assert all(row["since"].endswith("Z") and row["last_heartbeat"].endswith("Z") and row["host"] for row in rows)
        narrow = run("locks", "ls", path, "--partition", "month=2", "--json").json["locks"]
        assert [row["partition"] for row in narrow] == ["", "month=2"]
        first.end()
        third = reserve(other, "UPSERT", frozenset({"month=3"}))
        assert third
        rows = run("locks", "ls", path, "--json").json["locks"]
        assert [(row["partition"], row["state"]) for row in rows] == [
            ("month=1", "ACQUIRED"), ("month=2", "ACQUIRED"), ("month=3", "ACQUIRED")
        ]  # fmt: skip
        for turn in (second, third):
            turn.end()
        assert run("locks", "ls", path, "--json").json["locks"] == []

    def test_that_of_a_dead_writer_says_so_and_how_to_remove_it(self, path: str, storage: LocalStorage) -> None:
        dead, waiting = (reserve(writer(storage, Settings(), name).table, "DELETE", None) for name in ("gone", "next"))
        assert dead and waiting
        dead.heartbeat.stop(delete=False)
        beat = Path(storage.root) / layout.reservation(dead.reservation.id)
        os.utime(beat, (beat.stat().st_mtime - 600,) * 2)
        states = {row["lock_id"]: row["state"] for row in run("locks", "ls", path, "--json").json["locks"]}
        assert states == {dead.reservation.id: "DEAD", waiting.reservation.id: "ACQUIRED"}
        said = run("locks", "ls", path).out
        assert "its writer is dead, so no writer waits for it" in said and f"lakelock markers reap {path}" in said
        assert run("markers", "reap", path).code == Exit.OK
        assert [row["lock_id"] for row in run("locks", "ls", path, "--json").json["locks"]] == [waiting.reservation.id]
        waiting.end()

    def test_one_that_an_earlier_release_has_made_has_no_time(self, path: str, storage: LocalStorage) -> None:
        turn = reserve(writer(storage, Settings(), "old").table, "DELETE", None)
        assert turn
        boundary = Path(storage.root) / layout.DECISIONS_BOUNDARY
        fields = json.loads(boundary.read_bytes())
        del fields["reservations"][0]["since_ms"]
        boundary.write_text(json.dumps(fields))
        (row,) = run("locks", "ls", path, "--json").json["locks"]
        assert (row["since"], row["state"]) == (None, "ACQUIRED")
        turn.end()


class TestExplainLocks:
    @pytest.mark.parametrize(
        ("arguments", "locks"),
        [
            (["INSERT"], [("", "EXCLUSIVE")]),
            (["insert overwrite partition (month=7)"], [("", "SHARED"), ("month=7", "EXCLUSIVE")]),
            (["insert", "--partition", "month=1", "-p", "month=2"],
             [("", "SHARED"), ("month=1", "EXCLUSIVE"), ("month=2", "EXCLUSIVE")]),
            (["SELECT"], [("", "SHARED"), ("month=1", "SHARED")]),
            (["ALTER TABLE ADD COLUMNS"], [("", "EXCLUSIVE")]),
        ],
    )  # fmt: skip
    def test_it_prints_the_locks_and_takes_none(
        self, path: str, storage: LocalStorage, arguments: list[str], locks: list[tuple[str, str]]
    ) -> None:
        operation, *options = arguments
        found = run("locks", "explain", operation, path, *options, "--json").json["locks"]
        assert [(lock["partition"], lock["type"]) for lock in found] == locks
        assert run("locks", "explain", operation, path, *options).code == Exit.OK
        assert storage.get(layout.DATA_LOCKS) is None

    def test_an_unknown_operation_is_a_usage_error_that_lists_them(self, path: str) -> None:
        ended = run("locks", "explain", "OVRWRITE", path)
        assert ended.code == Exit.USAGE
        assert "did you mean OVERWRITE?" in ended.err and "DROP PARTITION" in ended.err


class TestBreak:
    def test_breaking_the_commit_lock_leaves_an_audit_record(self, path: str, backfill: Coordinator) -> None:
        assert backfill.table.provider is not None
        lease = backfill.table.provider.acquire(wait_s=1)
        ended = run("locks", "break", path, "--token", str(lease.token), "--yes", "--reason", "too early")
        assert ended.code == Exit.LOCK_HELD
        run("locks", "break", path, "--token", str(lease.token), "--force", "--yes", "--reason", "host is gone")
        done, refused = run("locks", "audit", path, "--json").json["records"]
        assert (done["action"], done["token"], done["forced"], done["outcome"]) == (
            "break commit lock",
            lease.token,
            True,
            "done",
        )
        assert "backfill" in done["holder"] and done["reason"] == "host is gone" and done["lock"].startswith("storage:")
        assert refused["outcome"].startswith("failed: ") and refused["reason"] == "too early"
        assert done["by"]["application"] == "lakelock command line"
        assert "host is gone" in run("locks", "audit", path).out
        assert "host is gone" in run("locks", "ls", path, "--extended").out

    def test_data_locks_are_broken_once_their_lease_is_over_and_by_force_before(
        self, path: str, storage: LocalStorage, backfill: Coordinator
    ) -> None:
        silent = writer(storage, QUICK, "silent")
        gone = silent.data.locks.acquire(lock_request(exclusive=[MONTH]))
        ended = run("locks", "break", path, "--data", "--token", str(gone.token), "--yes", "--json")
        assert (ended.code, ended.json["broken"]) == (Exit.OK, True)
        held = backfill.data.locks.acquire(lock_request(exclusive=[MONTH]))
        assert run("locks", "break", path, "--data", "--token", str(held.token), "--force", stdin="n\n").code == Exit.ERROR
        held.ensure_active()
        assert run("locks", "break", path, "--data", "--token", str(held.token), "--force", "--yes").code == Exit.OK
        with pytest.raises(LeaseLost):
            backfill.data.locks.renew(held)
        actions = [record.action for record in read_audit(storage)]
        assert actions == ["break data locks"] * 2, "an answer of no is no act"
        assert "no data locks" in run("locks", "break", path, "--data", "--token", "999", "--yes").out

    def test_all_data_locks_are_broken_by_all_and_no_number_stands_for_all(
        self, path: str, storage: LocalStorage, backfill: Coordinator
    ) -> None:
        held = backfill.data.locks.acquire(lock_request(exclusive=[MONTH]))
        for more in (("--token", "0"), ("--token", "-1"), ("--token", "1", "--all")):
            ended = run("locks", "break", path, "--data", *more, "--force", "--yes")
            assert ended.code == Exit.USAGE, more
        backfill.data.locks.renew(held)
        assert read_audit(storage) == []
        ended = run("locks", "break", path, "--data", "--all", "--force", "--yes", "--json")
        assert (ended.code, ended.json["broken"], ended.json["token"]) == (Exit.OK, True, None)
        with pytest.raises(LeaseLost):
            backfill.data.locks.renew(held)
        assert "there are no data locks" in run("locks", "break", path, "--data", "--all", "--force", "--yes").out

    def test_data_locks_that_cannot_be_read_are_cleared_by_all_and_force_only(self, path: str, storage: LocalStorage) -> None:
        storage.put(layout.DATA_LOCKS, b"{")
        ended = run("locks", "ls", path)
        assert ended.code == Exit.ERROR and "locks break PATH --data --all --force" in " ".join(ended.err.split())
        assert run("locks", "break", path, "--data", "--all", "--yes").code == Exit.USAGE
        assert run("locks", "break", path, "--data", "--all", "--force", "--yes").code == Exit.OK
        assert run("locks", "ls", path).code == Exit.OK

    def test_an_act_whose_end_was_not_recorded_says_so_and_a_torn_record_hides_no_other(
        self, path: str, storage: LocalStorage, backfill: Coordinator
    ) -> None:
        table = backfill.table
        with audited(storage, table.runtime, table.writer, "break commit lock", "storage:"):
            assert "unknown: its end" in run("locks", "audit", path).out
        storage.put(f"{layout.AUDIT}/20990101000000000-abc.ended", b"{")
        torn, whole = read_audit(storage)
        assert torn.action == "unreadable record" and whole.outcome == "done"
        assert {entry.key.split("/")[1] for entry in storage.list(layout.AUDIT)} == {".lakelock"}


class TestMigrate:
    """From the lock of this process, where the commands run, too, to the one next to the table."""

    FROM = ("--set", "lock.provider=memory:")
    IN_MEMORY = Settings.resolve({"lock.provider": "memory:"}).settings

    @pytest.fixture
    def storage(self, tmp_path: Path) -> LocalStorage:
        made = LocalStorage(tmp_path / "t")
        new_table(made)
        insert(writer(made, self.IN_MEMORY), made, "month=1", "a")
        return made

    @pytest.fixture
    def backfill(self, storage: LocalStorage) -> Iterator[Coordinator]:
        with writer(storage, self.IN_MEMORY, "backfill") as made:
            yield made

    def test_a_dry_run_changes_nothing_and_a_live_writer_is_in_the_way(
        self, path: str, storage: LocalStorage, backfill: Coordinator
    ) -> None:
        before = recorded_provider(storage)
        dry = run("locks", "migrate", path, "--to", "storage:", "--dry-run", "--json", *self.FROM)
        assert (dry.code, dry.json["done"], dry.json["live"]) == (Exit.OK, False, [])
        tx = backfill.begin("INSERT")
        dry = run("locks", "migrate", path, "--to", "storage:", "--dry-run", *self.FROM)
        assert dry.code == Exit.LOCK_HELD and "in the way: INSERT" in dry.out
        ended = run("locks", "migrate", path, "--to", "storage:", "--yes", *self.FROM)
        assert ended.code == Exit.LOCK_HELD and "backfill" in ended.err
        tx.abort()
        assert run("locks", "migrate", path, "--to", "storage:", *self.FROM, stdin="n\n").code == Exit.ERROR
        assert recorded_provider(storage) == before and read_audit(storage) == []

    def test_a_quiet_table_moves_and_the_old_setting_is_refused_with_the_way_on(self, path: str, storage: LocalStorage) -> None:
        ended = run("locks", "migrate", path, "--to", "storage:", "--yes", "--reason", "new service", *self.FROM)
        assert ended.code == Exit.OK and "set lock.provider in every writer" in ended.out
        recorded = json.loads((Path(path) / layout.LOCK_IDENTITY).read_text())["provider"]
        assert recorded == f"storage:{layout.LOCK}"
        again = run("locks", "migrate", path, "--to", "storage:", "--yes")
        assert "nothing to do" in again.out
        wrong = run("locks", "migrate", path, "--to", "redis://127.0.0.1:1/0", "--yes", *self.FROM)
        assert wrong.code == Exit.ERROR and "settings that the writers have had" in " ".join(wrong.err.split())
        assert "new service" in run("locks", "audit", path).out

    def test_a_dry_run_says_no_to_a_lock_that_cannot_be_used_and_to_settings_of_another_lock(self, path: str) -> None:
        nobody = run("locks", "migrate", path, "--to", "redis://127.0.0.1:1/0", "--dry-run", *self.FROM)
        assert nobody.code != Exit.OK and "Redis" in nobody.err
        wrong = run("locks", "migrate", path, "--to", "redis://127.0.0.1:1/0", "--dry-run")
        assert wrong.code == Exit.ERROR and "settings that the writers have had" in " ".join(wrong.err.split())

    def test_a_lock_that_keeps_no_two_processes_apart_is_refused(self, path: str, storage: LocalStorage) -> None:
        assert run("locks", "migrate", path, "--to", "storage:", "--yes", *self.FROM).code == Exit.OK
        for more in ("--yes", "--dry-run"):
            ended = run("locks", "migrate", path, "--to", "memory:", more)
            assert ended.code == Exit.USAGE
            assert "keeps no two processes apart (between threads of one process only)" in " ".join(ended.err.split())
        assert recorded_provider(storage) == f"storage:{layout.LOCK}"

    def test_a_file_for_java_that_cannot_be_written_is_refused_before_the_table_moves(
        self, path: str, storage: LocalStorage, tmp_path: Path
    ) -> None:
        before, file = recorded_provider(storage), tmp_path / "no folder" / "java.properties"
        move = ("locks", "migrate", path, "--to", "storage:", "--yes", "--java-properties")
        ended = run(*move, str(file), *self.FROM)
        assert ended.code == Exit.USAGE and "cannot write" in ended.err
        assert recorded_provider(storage) == before and read_audit(storage) == []
        assert run(*move, str(tmp_path / "java.properties"), *self.FROM).code == Exit.OK
        assert "hoodie.write.lock.provider=" in (tmp_path / "java.properties").read_text()

    def test_a_file_for_java_is_refused_where_java_has_no_such_lock(self, path: str, tmp_path: Path) -> None:
        file = tmp_path / "java.properties"
        move = ("locks", "migrate", path, "--to", "redis://:tiger@127.0.0.1:1/0", "--dry-run", "--java-properties", str(file))
        ended = run(*move, *self.FROM)
        assert ended.code == Exit.USAGE and "Java Hudi has no lock such as redis://" in ended.err and not file.exists()
        assert "tiger" not in ended.err
