"""A redo in tables with buckets, under every profile and level, and beside transactions that read."""

from __future__ import annotations

from dataclasses import replace
from threading import Thread

import pyarrow.compute as pc
import pytest
from tests.api import BucketIndex, MemoryStorage, SystemRuntime, TableProperties, TableSchema, Transaction, create_table
from tests.behaviour.redo.test_redo import EARLY, MONTHS, Watched, base, content, engine, rows
from tests.behaviour.tables import SCHEMA, Recorder, leftovers, new_table, writer
from tests.sizes import in_ci

from lakelock.settings import ConcurrencySettings
from lakelock.table.index import bucket_of
from lakelock.table.key_search import buckets_of_keys


@pytest.fixture
def five():
    """A table with the rows a and b in each of five months, a file group each."""
    storage = MemoryStorage()
    new_table(storage)
    engine(storage).insert(rows(*((key, 1, month) for month in MONTHS for key in "ab")))
    return storage


LEVELS = [("strict", "Serializable"), ("hudi", "Serializable"), ("hive", "Serializable")]
LEVELS += [("delta", "Serializable"), ("delta", "WriteSerializable")]
RULES = [
    ConcurrencySettings(profile=profile, isolation=isolation, early_conflict_detection=early)  # type: ignore[arg-type]
    for profile, isolation in LEVELS
    for early in (False, True)
]


def named(rules: ConcurrencySettings) -> str:
    return f"{rules.profile}-{rules.isolation}-{'early' if rules.early_conflict_detection else 'late'}"


@pytest.mark.parametrize("write", ["upsert", *in_ci("delete by key", "delete by condition", "insert")])
@pytest.mark.parametrize("rules", RULES, ids=named)
def test_under_every_profile_and_level_a_redo_gives_what_running_as_a_whole_gives(rules, write):
    def run(redo_attempts: int) -> tuple[list[tuple[str, int, str]], bool]:
        storage = MemoryStorage()
        new_table(storage)
        settings = replace(EARLY, concurrency=rules, retry=replace(EARLY.retry, redo_attempts=redo_attempts))
        engine(storage, settings=settings).insert(rows(*((key, 1, month) for month in MONTHS for key in "ab")))

        def others() -> None:
            other = engine(storage, settings=settings)
            other.insert(rows(("n", 7, "3"), ("x", 1, "4")))
            if not rules.early_conflict_detection:
                other.upsert(rows(("a", 7, "2")))
                other.delete(rows(("b", 0, "5")))

        mine = engine(storage, Watched(written_2=others), settings)
        many = rows(*((key, 2, month) for month in MONTHS for key in "bn"))
        if write == "delete by condition":
            done = mine.delete(pc.field("v") == 1)
        else:
            done = {"upsert": mine.upsert, "delete by key": mine.delete, "insert": mine.insert}[write](many)
        assert leftovers(storage) == []
        return content(engine(storage).read()), bool(done.files_kept)

    whole, kept = run(0)
    assert not kept
    redone, _ = run(20)
    assert redone == whole


def test_a_function_that_reads_is_called_again_and_keeps_no_file(five):
    heard, calls = Recorder(), []

    def transfer(tx: Transaction):
        stock = content(mine.read_in(tx, pc.field("id") == "a"))
        calls.append(stock)
        return mine.upsert_in(tx, rows(*(("b", value + 1, month) for _, value, month in stock)))

    def others() -> None:
        # Another job: in this thread the function may begin no other transaction on the table.
        job = Thread(target=lambda: engine(five).upsert(rows(("a", 7, "3"))))
        job.start()
        job.join(60)

    mine = engine(five, Watched(written_2=others), listener=heard)
    done = mine.run(transfer)
    assert (done.attempts, done.files_kept, len(calls)) == (2, 0, 2)
    assert "set-aside" not in heard.kinds()
    assert content(engine(five).read()) == base(a3=7, b=2, b3=8)


INDEX = BucketIndex(2, ("id",))
FRUIT = ("apple", "banana", "cherry", "date", "elder", "fig", "grape", "hazel")


@pytest.fixture
def buckets():
    """A table with two buckets in each month, of which month 2 has rows, and month 3 none."""
    storage = MemoryStorage()
    schema = TableSchema.from_arrow(SCHEMA).to_avro_json("t")
    properties = TableProperties.new("t", record_keys=("id",), partition_fields=("month",), create_schema=schema).indexed(INDEX)
    create_table(storage, properties, SystemRuntime())
    engine(storage).insert(rows(*((fruit, 1, month) for month in "12" for fruit in FRUIT)))
    return storage


def in_bucket(number: int) -> list[str]:
    places = buckets_of_keys(list(FRUIT), INDEX)
    return [fruit for fruit, place in zip(FRUIT, places, strict=True) if place == number]


@pytest.mark.parametrize("write", ["upsert", "insert", "delete"])
def test_in_buckets_only_those_that_others_wrote_are_written_again(buckets, write):
    (zero, *_), (one, *_) = in_bucket(0), in_bucket(1)

    def others() -> None:
        engine(buckets).upsert(rows((zero, 7, "1"), (one, 7, "3")))

    kernels = Watched(written_2=others)
    mine = engine(buckets, kernels)
    brought = rows(*((fruit, 2, month) for month in "123" for fruit in FRUIT))
    if write == "delete":
        done = mine.delete(rows(*((fruit, 0, month) for month in "12" for fruit in FRUIT[:-1])))
        assert (done.files, done.files_kept) == (4, 3)
    else:
        done = getattr(mine, write)(brought)
        # Two of month 1, two of month 2, two of month 3, of which others rewrote one and made another.
        assert (done.files, done.files_kept) == (6, 4)
    found = content(engine(buckets).read())
    if write == "upsert":
        assert found == content(brought)
    elif write == "insert":
        stored = {(fruit, month): 1 for month in "12" for fruit in FRUIT} | {(zero, "1"): 7, (one, "3"): 7}
        assert found == sorted([*content(brought), *((fruit, v, month) for (fruit, month), v in stored.items())])
    else:
        assert found == sorted([(FRUIT[-1], 7 if FRUIT[-1] == zero else 1, "1"), (FRUIT[-1], 1, "2"), (one, 7, "3")])
    names = [(file.partition, bucket_of(file.file_id)) for file in writer(buckets).snapshot().files]
    assert len(names) == len(set(names))
    assert leftovers(buckets) == []
