"""The names of operations and the small grammar of `locks explain`."""

from __future__ import annotations

import pytest

from lakelock.data_locks.base import LockRequest, Resource
from lakelock.data_locks.operations import OPERATIONS, Statement, covers, locks_of, operation_named, statement_of
from lakelock.errors import InputError

MONTH, DAY, OTHER = Resource.of("month=1"), Resource.of("month=1/day=1"), Resource.of("month=2")


@pytest.mark.parametrize(
    ("text", "name", "partition"),
    [
        ("insert", "INSERT", {}),
        ("insert_batch", "INSERT", {}),
        ("Insert  Into PARTITION (month=1)", "INSERT", {"month": "1"}),
        ("INSERT OVERWRITE PARTITION(month='1', day)", "OVERWRITE", {"month": "1"}),
        ("INSERT PARTITION (month, day=2)", "INSERT", {}),
        ('select partition (month = 1, day="a b")', "SELECT", {"month": "1", "day": "a b"}),
        ("ALTER TABLE ADD PARTITION (month=1)", "ADD PARTITION", {"month": "1"}),
        ("alter table add partition", "ADD PARTITION", {}),
        ("ALTER TABLE PARTITION (month=1) CONCATENATE", "PARTITION CONCATENATE", {"month": "1"}),
        ("alter table concatenate", "CONCATENATE", {}),
        ("overwrite_partitions", "OVERWRITE", {}),
        ("drop table", "DROP", {}),
    ],
)
def test_an_operation_is_known_by_the_words_that_people_use(text: str, name: str, partition: dict[str, str]) -> None:
    assert statement_of(text) == Statement(operation_named(name), partition)


def test_every_name_means_itself_and_no_two_operations_share_one() -> None:
    words = [words for each in OPERATIONS for words in (each.name, *each.also)]
    assert len(words) == len(set(words))
    assert all(operation_named(each.name.lower().replace(" ", "_")) is each for each in OPERATIONS)


def test_an_unknown_operation_names_the_nearest_one_and_lists_all() -> None:
    with pytest.raises(InputError, match="did you mean UPSERT?") as refused:
        operation_named("upsrt")
    assert all(each.name in refused.value.hint for each in OPERATIONS)


@pytest.mark.parametrize(
    "text", ["INSERT PARTITION (month=)", "INSERT PARTITION (a=1) PARTITION (b=2)", "INSERT PARTITION (1=2=3)"]
)
def test_a_partition_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        statement_of(text)


def test_an_operation_on_the_whole_table_takes_no_partition() -> None:
    with pytest.raises(InputError, match="takes no partition"):
        locks_of("RENAME", [Resource.of("month=1")])


def test_above_the_threshold_one_exclusive_lock_replaces_them_all_also_for_a_reader() -> None:
    many = [Resource.of(f"month=1/day={day}") for day in range(5)]
    assert len(locks_of("SELECT", many, escalate_above=5).locks) == 7
    assert str(locks_of("SELECT", many, escalate_above=4)) == "S on the table, X on month=1"


@pytest.mark.parametrize(
    ("held", "asked", "enough"),
    [
        (locks_of("INSERT", [MONTH]), locks_of("INSERT", [MONTH]), True),
        (locks_of("INSERT", [MONTH]), locks_of("SELECT", [DAY]), True),
        (locks_of("INSERT"), locks_of("INSERT", [DAY, MONTH]), True),
        (locks_of("SELECT", [DAY]), locks_of("SELECT", [MONTH]), True),
        (locks_of("SELECT", [MONTH]), locks_of("INSERT", [MONTH]), False),
        (locks_of("INSERT", [DAY]), locks_of("INSERT", [MONTH]), False),
        (locks_of("SELECT", [MONTH]), locks_of("SELECT", [DAY]), False),
        (locks_of("INSERT", [MONTH]), locks_of("INSERT", [OTHER]), False),
    ],
    ids=str,
)
def test_a_held_request_covers_another_that_needs_no_more(held: LockRequest, asked: LockRequest, enough: bool) -> None:
    assert covers(held, asked) is enough
