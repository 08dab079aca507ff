"""The DynamoDB lock between processes, also with one that follows the protocol of Java's lock client, request by request."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from itertools import count, pairwise
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from uuid import uuid4

import pytest

from lakelock.testing.lock_processes import Worker
from lakelock.testing.servers.dynamodb import REGION, TABLE, dynamodb_server
from lakelock.testing.servers.service import Service

LEASE_S = 1.5
_numbers = count(1)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with dynamodb_server(tmp_path_factory.mktemp("dynamodb")) as running:
        yield running


@pytest.fixture
def key() -> str:
    return f"flights-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def start(service: Service, tmp_path: Path, key: str) -> Iterator[Callable[..., Worker]]:
    workers: list[Worker] = []
    (tmp_path / "count").write_text("0")

    def start_one(lease_s: float = LEASE_S) -> Worker:
        settings = {"lock.provider": service.url(key), **service.options}
        arena = {"uri": str(tmp_path / "table"), "options": {}, "lease_s": lease_s, "renew_s": lease_s / 3}
        workers.append(Worker({**arena, "folder": str(tmp_path), "settings": settings}))
        return workers[-1]

    yield start_one
    for worker in workers:
        worker.end()


class JavaTwin:
    """The requests and conditions of Java Hudi's lock client: it replaces whole items, and deletes when it releases."""

    def __init__(self, url: str, key: str, lease_ms: int) -> None:
        import boto3

        self._client = boto3.session.Session().client("dynamodb", endpoint_url=url, region_name=REGION)
        self._key, self._lease_ms, self.owner = key, lease_ms, f"vm{uuid4()}"
        self._version = ""

    def lock(self, wait_s: float, poll_s: float) -> None:
        until_s, watched, since_s = monotonic() + wait_s, "", 0.0
        while monotonic() < until_s:
            item = self._client.get_item(TableName=TABLE, Key={"key": {"S": self._key}}, ConsistentRead=True).get("Item")
            if item is None:
                taken = self._put("attribute_not_exists(#pk)")
            elif item.get("isReleased") == {"S": "1"}:
                taken = self._put("attribute_exists(#pk) AND #ir = :ir", {"#ir": "isReleased"}, {":ir": {"S": "1"}})
            else:
                version, lease_ms = item["recordVersionNumber"]["S"], int(item["leaseDuration"]["S"])
                assert item["ownerName"]["S"]
                if version != watched:
                    watched, since_s = version, monotonic()
                taken = monotonic() - since_s > lease_ms / 1000 and self._put(
                    "attribute_exists(#pk) AND #rvn = :rvn", {"#rvn": "recordVersionNumber"}, {":rvn": {"S": version}}
                )
            if taken:
                return
            sleep(poll_s)
        raise TimeoutError("not granted")

    def unlock(self) -> bool:
        return self._conditional(
            self._client.delete_item,
            Key={"key": {"S": self._key}},
            ConditionExpression="attribute_exists(#pk) AND #rvn = :rvn AND #on = :on",
            ExpressionAttributeNames={"#pk": "key", "#rvn": "recordVersionNumber", "#on": "ownerName"},
            ExpressionAttributeValues={":rvn": {"S": self._version}, ":on": {"S": self.owner}},
        )

    def _put(self, when: str, names: dict[str, str] | None = None, values: dict[str, Any] | None = None) -> bool:
        version = str(uuid4())
        texts = {"ownerName": self.owner, "leaseDuration": str(self._lease_ms), "recordVersionNumber": version}
        taken = self._conditional(
            self._client.put_item,
            Item={"key": {"S": self._key}, **{name: {"S": text} for name, text in texts.items()}},
            ConditionExpression=when,
            ExpressionAttributeNames={"#pk": "key", **(names or {})},
            **({"ExpressionAttributeValues": values} if values else {}),
        )
        self._version = version if taken else self._version
        return taken

    def _conditional(self, call: Callable[..., Any], **request: Any) -> bool:
        try:
            call(TableName=TABLE, **request)
        except self._client.exceptions.ConditionalCheckFailedException:
            return False
        return True


def inside(folder: Path, who: str) -> bool:
    """Count up in the files that the workers count in; whether nobody else was inside."""
    try:
        alone = os.open(folder / "inside", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        return False
    number = int((folder / "count").read_text())
    with (folder / "tokens").open("a") as tokens:
        tokens.write(f"0 {who}\n")
    (folder / "count").write_text(str(number + 1))
    os.close(alone)
    os.unlink(folder / "inside")
    return True


def test_three_processes_never_hold_the_lock_at_once(start: Callable[..., Worker], tmp_path: Path) -> None:
    rounds, workers = 15, [start(lease_s=15.0) for _ in range(3)]
    assert all(worker("ready") for worker in workers)
    for worker in workers:
        worker.ask(f"hammer {rounds}")
    assert [worker.answer() for worker in workers] == [{"overlaps": 0}] * 3
    assert (tmp_path / "count").read_text() == str(3 * rounds)
    grants = [line.split() for line in (tmp_path / "tokens").read_text().splitlines()]
    tokens = [int(token) for token, _ in grants]
    assert tokens == sorted(set(tokens)) and len(tokens) == 3 * rounds
    switches = sum(before[1] != after[1] for before, after in pairwise(grants))
    assert switches > len(tokens) / 10, "the processes ran one after the other: nothing was shown"


def test_a_client_with_javas_protocol_and_ours_exclude_each_other(
    start: Callable[..., Worker], service: Service, key: str, tmp_path: Path
) -> None:
    rounds, worker = 20, start(lease_s=15.0)
    assert "token" in worker("take 30")
    worker("release")
    java = JavaTwin(service.options["dynamodb.endpoint_url"], key, 15_000)
    worker.ask(f"hammer {rounds}")
    overlaps = 0
    for _ in range(rounds):
        java.lock(60, poll_s=0.002)
        overlaps += not inside(tmp_path, "java")
        assert java.unlock()
    assert (overlaps, worker.answer()) == (0, {"overlaps": 0})
    assert (tmp_path / "count").read_text() == str(2 * rounds)
    grants = [line.split() for line in (tmp_path / "tokens").read_text().splitlines()]
    tokens = [int(token) for token, who in grants if who != "java"]
    assert tokens == sorted(set(tokens)), "the token grows although Java deletes the item"
    assert sum(before[1] != after[1] for before, after in pairwise(grants)) >= 4, "nothing was shown"


def test_a_killed_holder_is_replaced_after_its_lease_by_each_side(
    start: Callable[..., Worker], service: Service, key: str
) -> None:
    first, second = start(), start()
    token = first("take 30")["token"]
    assert first("renew") and "held by worker-" in second("take 0.2")["timeout"]
    os.kill(first.process.pid, signal.SIGKILL)
    took = second("take 20")
    assert took["token"] > token
    assert LEASE_S / 3 < took["took_s"] < 2 * LEASE_S + 5
    os.kill(second.process.pid, signal.SIGKILL)
    java = JavaTwin(service.options["dynamodb.endpoint_url"], key, round(LEASE_S * 1000))
    began_s = monotonic()
    java.lock(20, poll_s=0.1)
    assert monotonic() - began_s >= LEASE_S
    third = start()
    took = third("take 20")  # the twin does not renew: it is dead
    assert took["token"] > token and took["took_s"] >= LEASE_S
    assert not java.unlock()
    assert third("release")


def test_a_holder_that_was_paused_beyond_its_lease_finds_out_that_it_lost_it(start: Callable[..., Worker]) -> None:
    sleeper, other = start(), start(lease_s=15.0)
    assert "token" in sleeper("take 30")
    sleeper("renew")
    os.kill(sleeper.process.pid, signal.SIGSTOP)
    assert "token" in other("take 20")
    os.kill(sleeper.process.pid, signal.SIGCONT)
    assert sleeper("check")["active"] is False
    sleeper("release")
    assert other("check") == {"active": True}, "the sleeper's release must not free the lock of its successor"
    assert "timeout" in sleeper("take 0.2")


def test_a_service_that_restarts_under_load_keeps_the_lock_exclusive(
    start: Callable[..., Worker], service: Service, tmp_path: Path
) -> None:
    rounds, workers = 15, [start(lease_s=6.0) for _ in range(2)]
    for worker in workers:
        worker.ask(f"hammer {rounds}")
    until_s = monotonic() + 60
    while not (tmp_path / "tokens").exists() or len((tmp_path / "tokens").read_text().splitlines()) < 4:
        assert monotonic() < until_s
        sleep(0.005)
    service.stop()
    service.start()
    assert [worker.answer() for worker in workers] == [{"overlaps": 0}] * 2
    assert (tmp_path / "count").read_text() == str(2 * rounds)
