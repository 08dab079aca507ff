"""Claims: who may rewrite a file group, found with a fixed number of requests."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.api import FileGroupId, LocalStorage, MemoryStorage, Storage, SystemRuntime, TableIO, WriterIdentity, layout
from tests.faulty_storage import CountingStorage, Fault, FaultyStorage, Rule

from lakelock.conflict import Party
from lakelock.markers.claims import (
    MOST_PLACES,
    Claim,
    ClaimContext,
    Claimed,
    ClaimResult,
    CommittedSince,
    Held,
    OwnerFate,
    OwnerState,
    TakenOver,
    claim_group,
    claims_of,
    conflict_of,
)

GROUP = FileGroupId("month=1", "f1-0")
MINE, THEIRS = "20261121093515486", "20261121093515485"


def claim_at(instant: str) -> Claim:
    return Claim(instant, WriterIdentity(f"writer of {instant}", "backfill", "host", 1, "me"), "UPSERT")


def never(instant: str) -> OwnerState:
    raise AssertionError(f"nobody should have asked about {instant}")


def fate(value: OwnerFate) -> Callable[[str], OwnerState]:
    return lambda instant: OwnerState(value, seen_ago_s=3.0, completion="20261121093600000")


@pytest.fixture(params=["memory", "local"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> CountingStorage:
    return CountingStorage(MemoryStorage() if request.param == "memory" else LocalStorage(tmp_path))


@pytest.mark.parametrize("places", [None, frozenset[str](), frozenset({"", "month=1", "année=été"})])
def test_a_claim_tells_where_its_transaction_writes(places: frozenset[str] | None) -> None:
    claim = replace(claim_at(MINE), places=places)
    assert Claim.from_bytes(claim.to_bytes()) == claim


def test_a_claim_of_too_many_partitions_is_one_of_the_whole_table() -> None:
    claim = replace(claim_at(MINE), places=frozenset(f"month={number}" for number in range(MOST_PLACES + 1)))
    assert Claim.from_bytes(claim.to_bytes()) == replace(claim, places=None)


def test_a_claim_of_an_earlier_version_tells_nothing_of_other_partitions() -> None:
    fields = json.loads(claim_at(MINE).to_bytes())
    del fields["places"]
    assert Claim.from_bytes(json.dumps(fields).encode()) == claim_at(MINE)


def holder(storage: Storage) -> str | None:
    found = storage.get(layout.claim(GROUP))
    claim = Claim.from_bytes(found.data) if found else None
    return claim.instant if claim else None


def test_a_free_group_costs_one_request(storage: CountingStorage) -> None:
    assert claim_group(storage, GROUP, claim_at(MINE), never) == Claimed(GROUP)
    assert dict(storage.requests) == {"put_if_absent": 1}
    assert holder(storage) == MINE


def test_a_repeated_task_finds_its_own_claim(storage: CountingStorage) -> None:
    claim_group(storage, GROUP, claim_at(MINE), never)
    assert claim_group(storage, GROUP, claim_at(MINE), never) == Claimed(GROUP)


@pytest.mark.parametrize(
    ("owner", "expected", "requests"),
    [
        (OwnerFate.FINISHED, TakenOver(GROUP, claim_at(THEIRS)), {"put_if_absent": 1, "get": 1, "put_if_match": 1}),
        (OwnerFate.DEAD, TakenOver(GROUP, claim_at(THEIRS)), {"put_if_absent": 1, "get": 1, "put_if_match": 1}),
        (
            OwnerFate.COMMITTED_SINCE,
            CommittedSince(GROUP, claim_at(THEIRS), "20261121093600000"),
            {"put_if_absent": 1, "get": 1},
        ),
        (OwnerFate.ALIVE, Held(GROUP, claim_at(THEIRS), 3.0), {"put_if_absent": 1, "get": 1}),
    ],
)
def test_a_claim_of_somebody_else_is_taken_over_or_respected(
    storage: CountingStorage, owner: OwnerFate, expected: ClaimResult, requests: dict[str, int]
) -> None:
    claim_group(storage, GROUP, claim_at(THEIRS), never)
    storage.reset()
    assert claim_group(storage, GROUP, claim_at(MINE), fate(owner)) == expected
    assert dict(storage.requests) == requests
    assert holder(storage) == (MINE if isinstance(expected, TakenOver) else THEIRS)


def test_the_same_instant_of_another_writer_is_somebody_else(storage: CountingStorage) -> None:
    twin = Claim(MINE, WriterIdentity("another", "backfill", "host", 2, "me"), "UPSERT")
    claim_group(storage, GROUP, twin, never)
    assert claim_group(storage, GROUP, claim_at(MINE), fate(OwnerFate.ALIVE)) == Held(GROUP, twin, 3.0)


@pytest.mark.parametrize("junk", [b"", b"{}", b"\xff", b"[1]", b'{"instant": "x", "writer": 3, "operation": ""}'])
def test_a_claim_that_cannot_be_read_is_replaced(storage: CountingStorage, junk: bytes) -> None:
    storage.put(layout.claim(GROUP), junk)
    assert claim_group(storage, GROUP, claim_at(MINE), never) == TakenOver(GROUP, None)
    assert holder(storage) == MINE


def test_one_file_id_in_two_partitions_is_two_groups(storage: CountingStorage) -> None:
    claim_group(storage, GROUP, claim_at(THEIRS), never)
    other = FileGroupId("month=2", GROUP.file_id)
    assert claim_group(storage, other, claim_at(MINE), never) == Claimed(other)


def test_a_claim_that_vanishes_while_it_is_looked_at_is_taken() -> None:
    inner = MemoryStorage()
    claim_group(inner, GROUP, claim_at(THEIRS), never)
    vanish = Rule(op="get", fault=None, meanwhile=lambda: inner.delete([layout.claim(GROUP)]))
    counting = CountingStorage(FaultyStorage(inner, [vanish]))
    assert claim_group(counting, GROUP, claim_at(MINE), never) == Claimed(GROUP)
    assert counting.total == 3
    assert holder(inner) == MINE


def test_a_take_over_that_somebody_else_was_faster_with_is_lost_to_them() -> None:
    inner = MemoryStorage()
    claim_group(inner, GROUP, claim_at(THEIRS), never)
    third = claim_at("20261121093515487")
    faster = Rule(op="put_if_match", fault=None, meanwhile=lambda: claim_group(inner, GROUP, third, fate(OwnerFate.DEAD)))
    counting = CountingStorage(FaultyStorage(inner, [faster]))
    assert claim_group(counting, GROUP, claim_at(MINE), fate(OwnerFate.DEAD)) == Held(GROUP, third)
    assert counting.total == 5


def test_a_stale_claim_that_is_swept_just_before_it_is_taken_over_is_made_anew() -> None:
    """It was told to be taken over, and nobody's claim was there: an optimize rewrote the file group under an upsert."""
    inner = MemoryStorage()
    claim_group(inner, GROUP, claim_at(THEIRS), never)
    swept = Rule(op="put_if_match", fault=None, meanwhile=lambda: inner.delete([layout.claim(GROUP)]))
    counting = CountingStorage(FaultyStorage(inner, [swept]))
    assert claim_group(counting, GROUP, claim_at(MINE), fate(OwnerFate.FINISHED)) == TakenOver(GROUP, claim_at(THEIRS))
    assert holder(inner) == MINE
    assert counting.total == 4


@pytest.mark.parametrize("op", ["put_if_absent", "put_if_match"])
@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.LOST_REPLY])
def test_a_lost_reply_never_makes_a_writer_fear_its_own_claim(op: str, fault: Fault) -> None:
    inner = MemoryStorage()
    if op == "put_if_match":
        claim_group(inner, GROUP, claim_at(THEIRS), never)
    storage = FaultyStorage(inner, [Rule(op=op, fault=fault)])
    result = claim_group(storage, GROUP, claim_at(MINE), fate(OwnerFate.FINISHED))
    if op == "put_if_match" and fault is Fault.FAIL:
        assert result == Held(GROUP, claim_at(THEIRS))
    else:
        assert isinstance(result, Claimed | TakenOver)
        assert holder(inner) == MINE


@pytest.mark.parametrize("stale", [False, True])
def test_of_many_that_claim_at_once_exactly_one_gets_the_group(storage: CountingStorage, stale: bool) -> None:
    for round_number in range(20):
        storage.inner.delete([layout.claim(GROUP)])
        if stale:
            claim_group(storage.inner, GROUP, claim_at(THEIRS), never)
        count = 4
        barrier = threading.Barrier(count)
        results: list[ClaimResult] = []

        def run(
            number: int,
            barrier: threading.Barrier = barrier,
            results: list[ClaimResult] = results,
            base: int = round_number * 10,
        ) -> None:
            def state_of(instant: str) -> OwnerState:
                return OwnerState(OwnerFate.DEAD if instant == THEIRS else OwnerFate.ALIVE)

            barrier.wait(10)
            results.append(claim_group(storage.inner, GROUP, claim_at(f"{20261121093600000 + base + number}"), state_of))

        threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        winners = [result for result in results if isinstance(result, Claimed | TakenOver)]
        losers = [result for result in results if isinstance(result, Held)]
        assert (len(winners), len(losers)) == (1, count - 1)
        assert {loser.by.instant for loser in losers} == {holder(storage)}


def test_the_refusal_names_both_sides_and_what_they_collide_over() -> None:
    mine = Party(MINE, "UPSERT", claim_at(MINE).writer)
    other = claim_at(THEIRS)
    groups = [FileGroupId("month=1", f"f{n}") for n in range(7)]
    conflict = conflict_of([Held(group, other, 3.0) for group in groups], mine)
    assert conflict.early
    assert conflict.retry_helps
    assert (conflict.overlap_count, conflict.overlap[0], len(conflict.overlap)) == (7, "month=1/f0", 5)
    assert "UPSERT 20261121093515485 by backfill (me@host, pid 1), seen 3 s ago" in str(conflict)
    assert "is rewriting the same file group now" in str(conflict)
    committed = conflict_of([CommittedSince(groups[0], other, "20261121093600000")], mine)
    assert committed.other.completion == "20261121093600000"


def test_claims_of_an_instant_are_found_among_those_of_others(storage: CountingStorage) -> None:
    odd = FileGroupId("a=b c/ü%2F", "f2")
    for group, instant in ((GROUP, THEIRS), (odd, MINE), (FileGroupId("", "f3"), MINE)):
        claim_group(storage, group, claim_at(instant), never)
    storage.put(f"{layout.CLAIMS}/junk", b"junk")
    assert set(claims_of(TableIO(storage, SystemRuntime()), MINE)) == {layout.claim(odd), layout.claim(FileGroupId("", "f3"))}


class Scene:
    """A table in memory whose storage clock is set by hand, seen from an executor of the transaction `MINE`."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.storage = CountingStorage(MemoryStorage(lambda: self.now_ms))
        context = ClaimContext(claim_at(MINE), frozenset({"20261121093000000"}), limit_s=120)
        self.context: ClaimContext = pickle.loads(pickle.dumps(context))
        self.beat(MINE)

    def beat(self, instant: str) -> None:
        self.storage.put(layout.heartbeat(instant), b"")

    def pend(self, instant: str) -> None:
        self.storage.put(layout.timeline(f"{instant}.commit.requested"), b"")

    def complete(self, instant: str) -> None:
        self.storage.put(layout.timeline(f"{instant}_20261121093600000.commit"), b"x")

    def claimed_by(self, instant: str) -> tuple[ClaimResult, int]:
        self.storage.put(layout.claim(GROUP), claim_at(instant).to_bytes())
        self.storage.reset()
        return self.context.claim_group(self.storage, GROUP), self.storage.total


def test_an_executor_respects_a_living_owner() -> None:
    scene = Scene()
    scene.pend(THEIRS)
    scene.beat(THEIRS)
    scene.now_ms += 50_000
    scene.beat(MINE)
    assert scene.claimed_by(THEIRS) == (Held(GROUP, claim_at(THEIRS), 50.0), 3)


def test_an_executor_takes_over_from_a_dead_owner() -> None:
    scene = Scene()
    scene.pend(THEIRS)
    scene.beat(THEIRS)
    scene.now_ms += 125_000
    scene.beat(MINE)
    assert scene.claimed_by(THEIRS) == (TakenOver(GROUP, claim_at(THEIRS)), 4)


def test_an_executor_takes_an_owner_for_alive_when_it_cannot_tell_the_time() -> None:
    scene = Scene()
    scene.beat(THEIRS)
    scene.now_ms += 125_000
    scene.storage.delete([layout.heartbeat(MINE)])
    result, _ = scene.claimed_by(THEIRS)
    assert isinstance(result, Held)


def test_an_executor_finds_that_the_owner_committed_after_its_baseline() -> None:
    scene = Scene()
    scene.pend(THEIRS)
    scene.complete(THEIRS)
    assert scene.claimed_by(THEIRS) == (CommittedSince(GROUP, claim_at(THEIRS), "20261121093600000"), 4)


def test_an_executor_takes_over_what_was_committed_before_its_baseline_without_looking() -> None:
    scene = Scene()
    scene.pend("20261121093000000")
    scene.complete("20261121093000000")
    assert scene.claimed_by("20261121093000000") == (TakenOver(GROUP, claim_at("20261121093000000")), 3)


def test_an_executor_takes_over_what_was_rolled_back() -> None:
    assert Scene().claimed_by(THEIRS) == (TakenOver(GROUP, claim_at(THEIRS)), 5)


@pytest.mark.parametrize("live", [1, 10, 100, 1000])
def test_a_claim_costs_the_same_among_any_number_of_live_writers(live: int) -> None:
    scene = Scene()
    for number in range(live):
        instant = f"2026112109351{number:04}"
        scene.pend(instant)
        scene.beat(instant)
        scene.storage.put(layout.claim(FileGroupId("month=1", f"other{number}")), claim_at(instant).to_bytes())
    scene.storage.reset()
    assert scene.context.claim_group(scene.storage, GROUP) == Claimed(GROUP)
    assert scene.storage.total == 1
    result, requests = scene.claimed_by("20261121093510000")
    assert isinstance(result, Held)
    assert requests == 3
