"""An S3 service that refuses, falls silent or loses its replies while a real process commits to it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.api import Coordinator, Outcome, StorageLocation
from tests.behaviour.tables import leftovers, new_table
from tests.faults.worker import open_engine, rows
from tests.faults.world import BEFORE, DONE, PERSISTENT, START, UPSERT, ArrowWriter, read
from tests.servers import S3_OPTIONS, s3_server
from tests.sizes import in_ci
from tests.waiting import eventually

from lakelock.settings import Settings
from lakelock.testing.proxy import Proxy

SLOW_DOWN = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def s3() -> Iterator[int]:
    """The port of an S3 service."""
    if not os.environ.get("CI"):
        pytest.importorskip("moto", reason="needs an S3 service: pip install 'moto[s3,server]'")
    with s3_server() as endpoint:
        yield int(endpoint.rpartition(":")[2])


def options(port: int, **more: object) -> dict[str, object]:
    """A writer on S3: no test can make a heartbeat there old, so it must not be good for long."""
    store = {**S3_OPTIONS, "endpoint": f"http://127.0.0.1:{port}", "timeout": "2s"}
    short = {"heartbeat.interval_s": 2.5, "heartbeat.tolerable_misses": 2}
    return {**PERSISTENT, **short, **{f"storage.{name}": value for name, value in store.items()}, **more}


@contextmanager
def stopped_writer(s3: int, uri: str, step: str) -> Iterator[tuple[ArrowWriter, Proxy]]:
    """A writer that reaches the service through a proxy, stopped at `step` of its upsert into a new table."""
    settings = Settings.resolve(options(s3)).settings
    new_table(StorageLocation.of(uri, settings.storage).open())
    open_engine(uri, options(s3)).insert(rows(START))
    with Proxy(s3, severs=True) as proxy:
        once = options(proxy.port, **{"retry.attempts": 1})
        with ArrowWriter(uri, "upsert", UPSERT, options=once, stop_at=step) as writer:
            writer.wait_until_stopped()
            yield writer, proxy


def check_truth(s3: int, uri: str, answer: dict) -> None:
    """What the table shows in the end is what the writer was told, or what it was told to look up; nothing is left over."""
    told = answer["outcome"]
    location = StorageLocation.of(uri, Settings.resolve(options(s3)).settings.storage)
    with Coordinator.open(location, Settings.resolve(options(s3)).settings) as other:
        if told == "outcome-unknown":
            eventually(lambda: other.reap() is not None and other.outcome(answer["instant"]) is not Outcome.PENDING)
            told = other.outcome(answer["instant"]).value
        eventually(lambda: other.reap() is not None and not leftovers(location.open()))
    assert read(uri, options(s3)) == (DONE if told == "committed" else BEFORE)


@pytest.mark.parametrize("step", ["decided", *in_ci("data-written", "validated")])
def test_a_service_that_says_slow_down_for_a_moment_costs_time_only(s3, step):
    uri = f"s3://lake/moment-{step}"
    with stopped_writer(s3, uri, step) as (writer, proxy):
        proxy.answer(SLOW_DOWN)
        writer.go_on()
        eventually(lambda: proxy.answered >= 1)
        proxy.heal()
        answer = writer.answer()
    assert answer["outcome"] == "committed"
    check_truth(s3, uri, answer)


@pytest.mark.parametrize(
    ("step", "told"),
    [("decided", "outcome-unknown"), *in_ci(("data-written", "storage-unavailable"), ("validated", "outcome-unknown"))],
)
def test_a_service_that_says_slow_down_for_good_leaves_no_lie(s3, step, told):
    uri = f"s3://lake/slow-{step}"
    with stopped_writer(s3, uri, step) as (writer, proxy):
        proxy.answer(SLOW_DOWN)
        writer.go_on()
        answer = writer.answer()
    assert answer["outcome"] == told
    check_truth(s3, uri, answer)


def test_replies_that_get_lost_once_are_read_back(s3):
    uri = "s3://lake/lost-once"
    with stopped_writer(s3, uri, "validated") as (writer, proxy):
        proxy.drop_replies(1, to=b"PUT ")
        writer.go_on()
        answer = writer.answer()
        assert proxy.dropped == 1
    assert answer["outcome"] == "committed"
    check_truth(s3, uri, answer)


@pytest.mark.in_ci
def test_a_commit_whose_every_reply_gets_lost_is_unknown_and_found_out_later(s3):
    uri = "s3://lake/lost"
    with stopped_writer(s3, uri, "validated") as (writer, proxy):
        proxy.drop_replies()
        writer.go_on()
        answer = writer.answer()
    assert answer["outcome"] == "outcome-unknown"
    check_truth(s3, uri, answer)


def test_slow_replies_are_waited_for(s3):
    uri = "s3://lake/late"
    with stopped_writer(s3, uri, "reconciled") as (writer, proxy):
        proxy.delay(0.1)
        writer.go_on()
        answer = writer.answer()
    assert answer["outcome"] == "committed"
    check_truth(s3, uri, answer)
