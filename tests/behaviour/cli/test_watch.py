"""`lakelock watch`: who writes, who waits and what was committed, while writers are at work; nothing is written."""

from __future__ import annotations

import json
from typing import Any

from tests.api import FileGroupId, LocalStorage
from tests.behaviour.cli.command_line import everything, left_by_a_dead_writer, run, writer
from tests.behaviour.tables import insert, put_file

from lakelock.admin.watch import Watch, view_of
from lakelock.storage.counted import Tally, counting


def refreshes(path: str, *options: str) -> list[Any]:
    return [json.loads(line)["view"] for line in run("watch", path, "--json", *options).out.splitlines()]


def test_a_writer_at_work_is_shown_with_its_markers_and_claims_and_a_dead_one_is_silent(
    storage: LocalStorage, path: str
) -> None:
    insert(writer(storage), storage, "month=1", "f")
    with writer(storage, name="live").begin("UPSERT") as tx:
        put_file(tx, storage, "month=1", "f", token="1-1-0")
        tx.claim([FileGroupId("month=1", "f")])
        dead = left_by_a_dead_writer(storage)
        before = everything(storage)
        [view] = refreshes(path, "--count", "1")
        text = run("watch", path, "--count", "1").out
        assert everything(storage) == before
    rows = {row["instant"]: row for row in view["writing"]}
    live = rows[tx.instant]
    assert (live["operation"], live["sign"], live["markers"], live["claims"], live["state"]) == (
        "UPSERT", "beats", 1, 1, "inflight",
    )  # fmt: skip
    assert live["writer"].startswith("live (")
    assert (rows[dead.instant]["sign"], rows[dead.instant]["beat_age_s"] > 500) == ("silent", True)
    assert [commit["rows_inserted"] for commit in view["commits"]] == [1]
    assert "commit lock: free" in text and tx.instant in text


def test_whoever_holds_the_lock_is_shown(storage: LocalStorage, path: str) -> None:
    coordinator = writer(storage, name="slow")
    with coordinator.table.locked():
        [view] = refreshes(path, "--count", "1")
    assert view["holder"].startswith("slow (")


def test_it_ends_by_its_count_or_its_time(path: str) -> None:
    assert len(refreshes(path, "--count", "3", "--every", "0.1")) == 3
    assert len(refreshes(path, "--for", "0")) == 1
    assert "nobody is writing" in run("watch", path, "--for", "0").out


def test_another_look_reads_nothing_again(storage: LocalStorage) -> None:
    insert(writer(storage), storage, "month=1", "f")
    with writer(storage).begin("INSERT") as tx:
        put_file(tx, storage, "month=1", "g")
        observer = writer(storage, name="observer")
        watch, costs = Watch(observer, 5), []
        for _ in range(2):
            tally = Tally()
            with counting(tally):
                views = view_of(watch.look())
            costs.append(tally.requests)
    assert [each.instant for each in views.writing] == [tx.instant]
    assert costs[1] < costs[0], "the first look also reads what cannot change"
    assert costs[1] <= 7
