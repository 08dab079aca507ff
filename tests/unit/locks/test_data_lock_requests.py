"""A request for data locks: ancestors, canonical order, escalation; and the table's wire format."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.api import Resource, WriterIdentity, lock_request

from lakelock.data_locks import LockRequest, Mode
from lakelock.data_locks.base import collide
from lakelock.data_locks.lock_table import Entry, LockTable
from lakelock.errors import CorruptTableError

WRITER = WriterIdentity("id", "app", "host", 1, "user")
paths = st.lists(st.sampled_from(["a=1", "a=2", "b=1", "b=ü"]), min_size=0, max_size=3).map("/".join)
resources = paths.map(Resource.of)
requests = (
    st.tuples(st.lists(resources, max_size=4), st.lists(resources, max_size=4)).filter(any).map(lambda two: lock_request(*two))
)


def test_each_ancestor_is_shared_and_comes_first() -> None:
    request = lock_request(exclusive=[Resource.of("p=1/q=2")])
    assert str(request) == "S on the table, S on p=1, X on p=1/q=2"


def test_what_an_exclusive_lock_covers_is_not_asked_for() -> None:
    assert (
        str(lock_request([Resource.of("p=1/q=2")], [Resource.of("p=1"), Resource.of("p=1/q=3")])) == "S on the table, X on p=1"
    )


def test_more_partitions_than_the_threshold_are_one_exclusive_lock_on_what_they_share() -> None:
    days = [Resource.of(f"month=1/day={day}") for day in range(3)]
    assert len(lock_request(days, escalate_above=3).leaves) == 3
    assert str(lock_request(days, escalate_above=2)) == "S on the table, X on month=1"
    assert str(lock_request([*days, Resource.of("month=2")], escalate_above=2)) == "X on the table"


@pytest.mark.parametrize("path", ["a//b", "/a", "a/", "..", "a/../b", "."])
def test_what_is_no_partition_path_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="not a partition path"):
        Resource.of(path)


@given(st.lists(resources, max_size=5), st.lists(resources, min_size=1, max_size=5))
def test_a_request_is_in_order_complete_and_as_strong_as_asked(shared: list[Resource], exclusive: list[Resource]) -> None:
    request = lock_request(shared, exclusive)
    modes = request.modes
    assert list(modes) == sorted(modes)
    assert all(ancestor in modes for resource in modes for ancestor in resource.ancestors)
    for resource in exclusive:
        assert any(modes.get(up) is Mode.EXCLUSIVE for up in (*resource.ancestors, resource))
    for resource in shared:
        assert resource in modes or any(modes.get(up) is Mode.EXCLUSIVE for up in resource.ancestors)


@given(requests, requests)
def test_collisions_are_mutual_and_always_name_a_resource_that_both_lock(one: LockRequest, other: LockRequest) -> None:
    assert collide(one, other) == collide(other, one)


@given(requests)
def test_what_was_asked_for_gives_the_request_back(request: LockRequest) -> None:
    leaves = request.leaves
    shared = [lock.resource for lock in leaves if lock.mode is Mode.SHARED]
    exclusive = [lock.resource for lock in leaves if lock.mode is Mode.EXCLUSIVE]
    assert lock_request(shared, exclusive).locks == request.locks


@given(st.lists(requests, max_size=6), st.data())
def test_a_table_reads_what_it_wrote_and_grants_nothing_over_another(asked: list[LockRequest], data: st.DataObject) -> None:
    table = LockTable()
    for number, request in enumerate(asked):
        table = table.enqueued(Entry(f"g{number}", request, WRITER, 1.5, 7), 8)
    gone = data.draw(st.sets(st.sampled_from([f"g{n}" for n in range(len(asked))]))) if asked else set()
    table = table.without(gone, 9)
    assert LockTable.from_bytes(table.to_bytes()) == table
    held = [entry for entry in table.entries if entry.held]
    for one in held:
        assert not any(collide(one.request, other.request) for other in held if other is not one)
    for waiting in table.entries:
        assert waiting.held or table.blockers(waiting), "it waits for nobody"
    assert not table.without([entry.grant for entry in table.entries], 10).entries


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        b'{"format":2,"latest":0,"entries":[]}',
        b'{"format":1,"latest":-1,"entries":[]}',
        b'{"format":1,"latest":0,"entries":[{}]}',
        b'{"format":1,"latest":1,"entries":null}',
    ],
)
def test_anything_else_is_an_error_that_says_so(data: bytes) -> None:
    with pytest.raises(CorruptTableError, match="cannot be read"):
        LockTable.from_bytes(data)
