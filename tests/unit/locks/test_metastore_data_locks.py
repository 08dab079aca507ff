"""The parts of the data locks in a metastore that need no metastore: names, rows, and who holds."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.api import Resource, WriterIdentity, lock_request

from lakelock.data_locks.base import LockRequest
from lakelock.data_locks.hive_metastore import (
    FEW,
    LONGEST_ROW,
    Queue,
    Queued,
    data_place,
    modes_of,
    name_of,
    parts_of,
    resource_of,
)
from lakelock.data_locks.lock_table import Entry, LockTable
from lakelock.providers.hive_metastore.client import ACQUIRED, EXCLUSIVE, SHARED_READ, WAITING, LockRow
from lakelock.providers.hive_metastore.requests import LONGEST_NAME, LONGEST_TEXT, Agent, Place

PARTS = st.text(min_size=1, max_size=30).filter(lambda part: "/" not in part and part not in (".", ".."))
RESOURCES = st.lists(PARTS, max_size=4).map(lambda parts: Resource(tuple(parts)))
SAFE = re.compile(r"[a-z0-9_.@$~+-]+")
"""Lower case, nothing that ends a string in SQL, and nothing that Hive 4 escapes when it writes key=value anew."""


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("", "@"),
        ("month=1", "@month$1"),
        ("month=1/day=Mon", "@month$1@day$+mon"),
        ("a@b=x y", "@a~40b$x~20y"),
        ("c=é'", "@c$~c3~a9~27"),
    ],
)
def test_names_can_be_read(path: str, name: str) -> None:
    assert name_of(Resource.of(path)) == name
    assert resource_of(name) == Resource.of(path)


@given(RESOURCES, RESOURCES)
def test_resources_have_the_same_name_only_if_they_are_the_same_and_any_server_can_keep_it(
    one: Resource, other: Resource
) -> None:
    assert (name_of(one) == name_of(other)) is (one == other)
    assert SAFE.fullmatch(name_of(one)) and resource_of(name_of(one)) == one


@given(st.integers(1, 3), st.sampled_from(["x", "X", "é"]))
def test_names_that_are_too_long_differ_by_their_hash_and_show_what_fits(differ_at: int, letter: str) -> None:
    one = Resource.of(f"year=1/name={letter * 800}")
    other = Resource.of(f"year=1/name={letter * (800 + differ_at)}")
    assert name_of(one) != name_of(other)
    assert all(len(name_of(each)) <= LONGEST_ROW and SAFE.fullmatch(name_of(each)) for each in (one, other))
    shown = resource_of(name_of(one))
    assert shown.ancestors == one.ancestors and shown.parts[1].startswith(f"name={letter * 50}") and "..." in shown.parts[1]


@given(st.text(max_size=60))
def test_a_name_that_somebody_else_made_is_shown_and_harms_nobody(name: str) -> None:
    resource_of(name)


def test_few_locks_have_a_row_each_with_their_own_mode() -> None:
    request = lock_request([Resource.of("a=1")], [Resource.of("b=1/c=2")])
    assert parts_of(request) == [
        (SHARED_READ, "path=@"),
        (SHARED_READ, "path=@a$1"),
        (SHARED_READ, "path=@b$1"),
        (EXCLUSIVE, "path=@b$1@c$2"),
    ]


@pytest.mark.parametrize("size", [FEW, 1000])
def test_many_locks_share_rows_that_fit_and_none_is_left_out(size: int) -> None:
    request = lock_request(exclusive=[Resource.of(f"day={day}") for day in range(size)])
    parts = parts_of(request)
    assert 2 <= len(parts) <= 2 + size // 40
    assert all(partition is not None and len(partition) <= LONGEST_ROW for _, partition in parts)
    assert queued(1, request, ACQUIRED).modes == modes_of(request)
    assert queued(1, request, ACQUIRED).request().locks == request.locks


def test_the_place_of_data_locks_is_one_per_commit_lock_and_never_that_of_another_lock() -> None:
    def place(database: str, table: str) -> Place:
        return data_place(Place((), database, table))

    assert (place("lake", "orders").database, place("lake", "orders").table) == ("lakelock", "data@lake@orders")
    different = [
        ("a", "b"),
        ("A", "b"),
        ("a", "B"),
        ("a@b", "c"),
        ("a", "b@c"),
        ("a", "x" * 128),
        ("a", "x" * 127),
        ("a", "X" * 127),
    ]
    names = [place(*names).table for names in different]
    assert len(set(names)) == len(different)
    assert all(SAFE.fullmatch(name) and len(name) <= LONGEST_NAME for name in names)


def test_what_a_request_is_about_is_told_as_far_as_there_is_room() -> None:
    agent = Agent("4df4fc5b-7a3f-4e73-a4f4-8a3ad0e30a8e", "f5f1f2a8-6e1e-4b51-9d5d-3d8b9a1f0c11", 60.0, 4242, "job")
    told = replace(agent, about="INSERT; it's")
    assert Agent.of(told.text) == replace(told, about="INSERT- it-s")
    long = replace(agent, application="application_1700000000000_0001", about="overwrite where month = 1")
    found = Agent.of(long.text)
    assert len(long.text) == LONGEST_TEXT and found is not None
    assert found.application == "application_170000000000" and found.about.startswith("overwrite")


def queued(lock_id: int, request: LockRequest, state: int) -> Queued:
    (found,) = Queue.of(rows(lock_id, request, state)).requests
    return found


def rows(lock_id: int, request: LockRequest, state: int) -> list[LockRow]:
    return [
        LockRow(lock_id, "lakelock", "data", partition, state, kind, 0, 0, "etl", "node-7", "")
        for kind, partition in parts_of(request)
    ]


@pytest.mark.parametrize("seed", range(20))
def test_requests_block_each_other_as_in_the_lock_table_of_a_document(seed: int) -> None:
    chance = random.Random(seed)
    places = [Resource(), *(Resource.of(path) for path in ("a=1", "a=2", "a=1/b=1", "a=1/b=2", "c=1"))]
    table, found = LockTable(), []
    writer = WriterIdentity("id", "job", "node-7", 1, "etl")
    for number in range(1, 9):
        wanted = chance.sample(places, chance.randint(1, 3))
        split = chance.randint(0, len(wanted))
        request = lock_request(wanted[:split], wanted[split:])
        table = table.enqueued(Entry(str(number), request, writer, 60.0, 0), 0)
        # What Hive 2 says of a request is at most a wrong yes, never a wrong no.
        said = ACQUIRED if table.entries[-1].held or chance.random() < 0.5 else WAITING
        found += rows(number, request, said)
    for entry, shown in zip(table.entries, Queue.of(found).shown(), strict=True):
        assert (shown.token, shown.held) == (entry.number, entry.held)
        assert shown.blocked_by == tuple(blocker.number for blocker in table.blockers(entry))
        assert shown.request.locks == entry.request.locks
