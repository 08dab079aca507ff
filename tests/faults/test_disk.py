"""A disk that is full, read-only or forbidden, on a real file system: nothing is lost, and what is told is true."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.api import Outcome
from tests.faults.disk import SmallDisk, allow_writing, small_disk
from tests.faults.worker import open_engine, rows
from tests.faults.world import (
    BEFORE,
    DONE,
    NEXT,
    PATIENT,
    UPSERT,
    ArrowWriter,
    check_settled,
    let_heartbeats_run_out,
    next_writer,
    read,
)
from tests.sizes import in_ci

from lakelock.errors import CommitOutcomeUnknown, StorageError

FULL_FROM_TO = range(0, 48, 2)
"""Free pages: with none not even a heartbeat fits, with the most everything does."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    with small_disk(folder) as made:
        yield made


@pytest.fixture
def on_disk(disk: SmallDisk, template: str) -> str:
    """A table on the small disk."""
    return shutil.copytree(template, f"{disk.folder}/table")


OBEDIENT = {"obey_permissions": 1}


def test_wherever_the_disk_runs_full_the_writer_is_told_the_truth_and_the_next_goes_on(disk, on_disk):
    current, told = 1, {}
    for pages in FULL_FROM_TO:
        disk.leave(pages)
        engine = open_engine(on_disk, PATIENT)
        try:
            engine.upsert(rows([["a", 100 + pages, "1"]]))
            told[pages] = "committed"
        except CommitOutcomeUnknown as error:
            disk.free()
            committed = engine.coordinator.outcome(str(error.details["instant"])) is Outcome.COMMITTED
            told[pages] = "unknown, yes" if committed else "unknown, no"
        except StorageError as error:
            told[pages] = "rejected" if "disk is full" in str(error) and error.hint else f"unclear: {error}"
        disk.free()
        if told[pages] in ("committed", "unknown, yes"):
            current = 100 + pages
        assert read(on_disk)[0] == ("a", current, "1"), told
        let_heartbeats_run_out(on_disk)
    assert {*told.values()} <= {"committed", "unknown, yes", "unknown, no", "rejected"}
    assert (told[0], told[FULL_FROM_TO[-1]]) == ("rejected", "committed")
    next_writer(on_disk)
    check_settled(on_disk, [("a", current, "1"), *BEFORE[1:], NEXT])


@pytest.mark.parametrize(("step", "decided"), [("validated", False), *in_ci(("data-written", False), ("decided", True))])
def test_a_disk_that_fills_up_while_a_writer_is_at_a_step_does_not_make_it_lie(disk, on_disk, step, decided):
    with ArrowWriter(on_disk, "upsert", UPSERT, stop_at=step) as writer:
        writer.wait_until_stopped()
        disk.leave(0)
        writer.go_on()
        outcome = writer.answer()["outcome"]
    assert outcome in (("outcome-unknown",) if decided else ("outcome-unknown", "storage"))
    assert read(on_disk) == BEFORE
    disk.free()
    next_writer(on_disk)
    check_settled(on_disk, [*(DONE if decided else BEFORE), NEXT])


@pytest.mark.parametrize(("step", "decided"), [("decided", True), *in_ci(("begun", False), ("validated", False))])
def test_a_disk_that_turns_read_only_in_the_middle_stays_readable_and_the_outcome_is_found_later(disk, on_disk, step, decided):
    with ArrowWriter(on_disk, "upsert", UPSERT, stop_at=step) as writer:
        writer.wait_until_stopped()
        disk.remount("ro")
        writer.go_on()
        answer = writer.answer()
    assert answer["outcome"] in (("outcome-unknown",) if decided else ("outcome-unknown", "storage"))
    assert "read-only" in answer["message"]
    assert read(on_disk) == BEFORE
    with pytest.raises(StorageError, match="read-only"):
        next_writer(on_disk)
    disk.remount("rw")
    next_writer(on_disk)
    check_settled(on_disk, [*(DONE if decided else BEFORE), NEXT])


@pytest.mark.parametrize(("step", "decided"), [("data-written", False), *in_ci(("begun", False), ("decided", True))])
def test_a_writer_that_loses_its_permissions_in_the_middle_says_so_and_the_next_cleans_up(path, step, decided):
    with ArrowWriter(path, "upsert", UPSERT, limits=OBEDIENT, stop_at=step) as writer:
        writer.wait_until_stopped()
        allow_writing(path, False)
        writer.go_on()
        answer = writer.answer()
    allow_writing(path, True)
    assert answer["outcome"] == ("outcome-unknown" if decided else "storage")
    assert "permission denied" in answer["message"]
    assert read(path) == BEFORE
    next_writer(path)
    check_settled(path, [*(DONE if decided else BEFORE), NEXT])


def test_a_table_that_may_only_be_read_refuses_to_be_written_and_can_be_read(path):
    allow_writing(path, False)
    with ArrowWriter(path, "insert", [["x", 1, "1"]], limits=OBEDIENT) as writer:
        answer = writer.answer()
    assert answer["outcome"] == "storage" and "permission denied" in answer["message"]
    assert read(path) == BEFORE
    allow_writing(path, True)
    check_settled(path, BEFORE)


@pytest.mark.parametrize("file_bytes", [300, *in_ci(0, 2000)])
def test_a_process_that_may_write_small_files_only_leaves_nothing(path, file_bytes):
    with ArrowWriter(path, "upsert", UPSERT, limits={"file_bytes": file_bytes}) as writer:
        answer = writer.answer()
    assert answer["outcome"] == "storage" and "too large" in answer["message"]
    assert read(path) == BEFORE
    check_settled(path, BEFORE)
