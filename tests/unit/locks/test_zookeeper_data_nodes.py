"""What data locks in ZooKeeper decide without a server: names of nodes, and which requests are in the way of others."""

from __future__ import annotations

import re
from collections import namedtuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.api import Resource, WriterIdentity, lock_request

from lakelock.data_locks import TABLE, Mode
from lakelock.data_locks.zookeeper import (
    TABLE_QUEUE,
    Asked,
    Standing,
    grant_of,
    node_data,
    node_prefix,
    queue_name,
    shown,
    standing,
)
from lakelock.providers.zookeeper.queue import in_order

GRANTS = [f"0f4ab1c2-1111-4222-8333-44445555666{number}" for number in range(5)]
WRITER = WriterIdentity("id", "app", "host", 1, "user")
NodeStat = namedtuple("NodeStat", "czxid ctime ephemeralOwner")
parts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(
    lambda part: part not in (".", "..") and "/" not in part
)
resources = st.lists(parts, max_size=3).map(lambda each: Resource(tuple(each)))


def node(mode: Mode, grant: int, number: int) -> str:
    return f"{node_prefix(mode, GRANTS[grant])}{number:010d}"


def read(grant: int, number: int) -> str:
    return node(Mode.SHARED, grant, number)


def write(grant: int, number: int) -> str:
    return node(Mode.EXCLUSIVE, grant, number)


@given(resources, resources)
def test_each_resource_has_a_node_of_its_own_whatever_its_partition_is_called(one: Resource, other: Resource) -> None:
    names = [queue_name(one), queue_name(other)]
    assert (names[0] == names[1]) is (one == other)
    for name in names:
        assert re.fullmatch(r"[\x20-\x2e\x30-\x7e]+", name) and name not in (".", "..")


@pytest.mark.parametrize(
    ("path", "name"), [("", TABLE_QUEUE), ("@table", "%40table"), ("month=1/day=2", "month=1%2Fday=2"), ("a%2Fb", "a%252Fb")]
)
def test_names_are_readable(path: str, name: str) -> None:
    assert queue_name(Resource.of(path)) == name


@pytest.mark.parametrize(
    ("queue", "mine", "before"),
    [
        ([write(0, 7)], 0, None),
        ([read(0, 1), read(1, 2)], 1, None),
        ([write(0, 1), read(1, 2), read(2, 3)], 2, write(0, 1)),
        ([read(0, 1), read(1, 2), write(2, 3)], 2, read(1, 2)),
        ([read(0, 1), write(1, 2), read(2, 3)], 2, write(1, 2)),
        ([read(0, 1), write(1, 2), read(2, 3)], 1, read(0, 1)),
        (["read-0000000001", write(0, 2)], 0, "read-0000000001"),
        (["other-0000000001", read(0, 2)], 0, "other-0000000001"),
        ([write(0, 2**31 - 1), read(1, -(2**31))], 1, write(0, 2**31 - 1)),
        ([read(0, 1), write(1, 2)], 0, None),
    ],
)
def test_the_nearest_one_before_me_that_is_in_my_way_is_watched(queue: list[str], mine: int, before: str | None) -> None:
    own = next(name for name in queue if grant_of(name) == GRANTS[mine])
    assert standing(reversed(queue), GRANTS[mine]) == Standing(own, before)


def test_a_request_that_is_not_in_a_queue_has_no_standing_there() -> None:
    assert standing([], GRANTS[0]) is None is standing([write(1, 1), "note"], GRANTS[0])


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.integers(-(2**31), 2**31 - 1))
def test_a_queue_grants_exactly_those_whom_nobody_before_them_excludes(shared: list[bool], first: int) -> None:
    """Also where the server's counter runs over: it goes from 2147483647 to -2147483648."""
    numbers = [(first + step + 2**31) % 2**32 - 2**31 for step in range(len(shared))]
    names = [
        f"{node_prefix(Mode.SHARED if each else Mode.EXCLUSIVE, f'{place:08x}{GRANTS[0][8:]}')}{number:010d}"
        for place, (each, number) in enumerate(zip(shared, numbers, strict=True))
    ]
    assert in_order(names) == names
    for place, name in enumerate(names):
        stands = standing(names, grant_of(name))
        in_the_way = [other for other, each in zip(names, shared, strict=True) if not (each and shared[place])]
        before = [other for other in in_the_way if names.index(other) < place]
        assert stands == Standing(name, before[-1] if before else None)


def test_what_a_node_says_is_read_as_it_was_written() -> None:
    request = lock_request([Resource.of("a=1")], [Resource.of("a=2/b=ü")], about="INSERT")
    found = Asked.of(read(0, 1), node_data(request, WRITER, GRANTS[0], 1.5), NodeStat(5, 6, 7))
    assert (found.grant, found.request, found.token, found.since_ms) == (GRANTS[0], request, 5, 6)
    assert (found.writer, found.lease_s) == (WRITER, 1.5)


@given(st.binary(max_size=60))
def test_a_node_that_cannot_be_read_counts_as_a_lock_on_the_table(data: bytes) -> None:
    stat = NodeStat(1, 2, 3)
    assert Asked.of("read-0000000001", data, stat).request == lock_request(shared=[TABLE])
    assert Asked.of("write-0000000001", data, stat).request == lock_request(exclusive=[TABLE])


def test_the_listing_shows_who_blocks_whom() -> None:
    requests = [
        lock_request(shared=[Resource.of("a=1")]),
        lock_request(exclusive=[Resource.of("a=2")]),
        lock_request(exclusive=[TABLE]),
    ]
    asked = [Asked(f"x-{place}", request, place, 0, WRITER) for place, request in enumerate(requests, start=1)]
    seen = [shown(each, asked[:place]) for place, each in enumerate(asked)]
    assert [(each.held, each.blocked_by) for each in seen] == [(True, ()), (True, ()), (False, (1, 2))]
