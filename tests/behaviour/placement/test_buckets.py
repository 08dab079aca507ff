"""Tables whose rows lie in buckets: a key's file group has its name from the key, and each bucket has one file group."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.api import (
    ArrowEngine,
    BaseFile,
    BucketIndex,
    ConflictRule,
    LocalStorage,
    MemoryStorage,
    Storage,
    SystemRuntime,
    TableProperties,
    TableSchema,
    Transaction,
    create_table,
    layout,
)
from tests.behaviour.tables import QUICK, SCHEMA, writer

from lakelock.engine.file_tasks import FileTasks
from lakelock.errors import ConcurrentAppendException, ConflictError, EarlyConflictError, InputError, StorageError, TableError
from lakelock.markers.data_files import TaskToken
from lakelock.occ.create import check_definition
from lakelock.settings import ConcurrencySettings, RetrySettings, Settings, WriteSettings
from lakelock.table.index import bucket_group, bucket_of
from lakelock.table.key_search import buckets_of_keys
from lakelock.table.properties import read_properties

INDEX = BucketIndex(4, ("id",))
ONCE = Settings(lock=QUICK.lock, heartbeat=QUICK.heartbeat, retry=RetrySettings(attempts=1))


def properties(index: BucketIndex | None = INDEX) -> TableProperties:
    schema = TableSchema.from_arrow(SCHEMA).to_avro_json("t")
    return TableProperties.new("t", ("id",), ("month",), create_schema=schema).indexed(index)


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    made = LocalStorage(tmp_path / "t")
    create_table(made, properties(), SystemRuntime())
    return made


def rows(*values: tuple[str, int, str]) -> pa.Table:
    columns = zip(*values, strict=True)
    return pa.table([pa.array(list(column), field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def many(count: int, v: int = 0, month: str = "m1") -> pa.Table:
    return rows(*((f"k{number}", v, month) for number in range(count)))


def stored(engine: ArrowEngine) -> list[tuple[str, int, str]]:
    table = engine.read()
    return sorted(zip(*(table.column(name).to_pylist() for name in SCHEMA.names), strict=True))


def ensure_placed(storage: Storage, index: BucketIndex = INDEX) -> list[tuple[str, int]]:
    """Every key is in the file group of its bucket; partition and bucket of each file group, none twice."""
    with writer(storage) as coordinator:
        files = coordinator.snapshot().files
    for file in files:
        with BaseFile(storage.open_input(file.key), file.key) as base:
            keys = [key for batch in base.key_batches() for key in batch.to_pylist()]
        assert set(buckets_of_keys(keys, index)) <= {bucket_of(file.file_id)}, file
    found = [(file.partition, bucket_of(file.file_id) or 0) for file in files]
    assert max(Counter(found).values(), default=1) == 1
    return found


def in_one_bucket(count: int) -> list[str]:
    """Keys that all lie in bucket 0."""
    names = [f"k{number}" for number in range(100)]
    return [key for key, bucket in zip(names, buckets_of_keys(names, INDEX), strict=True) if bucket == 0][:count]


def test_every_write_leaves_one_file_group_for_each_partition_and_bucket(storage: LocalStorage) -> None:
    with writer(storage) as coordinator:
        engine = ArrowEngine(coordinator)
        engine.insert(many(20))
        assert len(ensure_placed(storage)) == 4
        engine.upsert(pa.concat_tables([many(30, v=1), many(2, v=1, month="m2")]))
        engine.insert(rows(("other", 7, "m1")))
        engine.delete(rows(("k0", 0, "m1"), ("nobody", 0, "m1")))
        engine.delete(pc.field("id") == "k1")
        found = ensure_placed(storage)
        assert len([bucket for partition, bucket in found if partition == "month=m1"]) == 4
        assert stored(engine) == sorted(
            [*((f"k{number}", 1, "m1") for number in range(2, 30)), ("k0", 1, "m2"), ("other", 7, "m1")]
        )
        engine.overwrite_partitions(many(3, v=2))
        ensure_placed(storage)
        engine.upsert(many(4, v=3))
        ensure_placed(storage)
        assert stored(engine) == [("k0", 1, "m2"), ("k0", 3, "m1"), ("k1", 3, "m1"), ("k2", 3, "m1"), ("k3", 3, "m1")]


def test_an_insert_rewrites_the_file_group_of_its_bucket_and_looks_at_no_key(storage: LocalStorage) -> None:
    with writer(storage) as coordinator:
        engine = ArrowEngine(coordinator)
        key = in_one_bucket(1)[0]
        engine.insert(rows((key, 1, "m1")))
        again = engine.insert(rows((key, 2, "m1")))
        assert stored(engine) == [(key, 1, "m1"), (key, 2, "m1")]
        assert (again.rows_inserted, again.rows_updated, again.files) == (1, 0, 1)
        assert len(ensure_placed(storage)) == 1


class Opened(LocalStorage):
    """Notes which files are opened."""

    opened: list[str]

    def open_input(self, key: str, *, size_bytes: int = 0):  # type: ignore[no-untyped-def]
        self.opened.append(key)
        return super().open_input(key, size_bytes=size_bytes)


def test_an_upsert_opens_only_the_files_that_it_rewrites(storage: LocalStorage) -> None:
    with writer(storage) as coordinator:
        ArrowEngine(coordinator).insert(many(40))
    watched = Opened(storage.root)
    watched.opened = []
    with writer(watched) as coordinator:
        ArrowEngine(coordinator).upsert(rows((in_one_bucket(1)[0], 5, "m1")))
    assert len(watched.opened) == 1 and bucket_of(watched.opened[0].partition("/")[2]) == 0


def two_at_once(storage: Storage, settings: Settings, first: pa.Table, second: pa.Table) -> ConflictError:
    """One transaction begins before another that inserts and commits; the error of the first."""
    with writer(storage, settings, "slow") as slow, writer(storage, settings, "quick") as quick:
        engine = ArrowEngine(slow)
        tx = slow.begin("UPSERT")
        tx.snapshot()
        ArrowEngine(quick).insert(second)
        with pytest.raises(ConflictError) as caught:
            engine.upsert_in(tx, first)
    return caught.value


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("profile", ["strict", "hudi"])
def test_two_writers_that_make_the_first_file_of_one_bucket_conflict(storage: LocalStorage, early: bool, profile: str) -> None:
    settings = Settings(
        lock=QUICK.lock,
        heartbeat=QUICK.heartbeat,
        concurrency=ConcurrencySettings(profile=profile, early_conflict_detection=early),  # type: ignore[arg-type]
    )
    one, other = in_one_bucket(2)
    error = two_at_once(storage, settings, rows((one, 1, "m1")), rows((other, 2, "m1")))
    assert error.conflict.rule is ConflictRule.FILE_GROUP and error.conflict.early is early
    assert error.conflict.overlap == (f"month=m1/{0:08d}",)
    assert len(ensure_placed(storage)) == 1


def test_a_writer_that_creates_a_bucket_is_seen_while_it_does_so(storage: LocalStorage) -> None:
    with writer(storage, ONCE, "first") as first, writer(storage, ONCE, "second") as second:
        one = first.begin("INSERT")
        one.claim((), [bucket_group("month=m1", 0)])
        other = second.begin("INSERT")
        with pytest.raises(EarlyConflictError, match=f"month=m1/{0:08d}"):
            other.claim((), [bucket_group("month=m1", 0)])
        other.claim((), [bucket_group("month=m2", 0), bucket_group("month=m1", 1)])
        one.abort()
        other.abort()


def test_writers_of_different_buckets_or_partitions_do_not_meet(storage: LocalStorage) -> None:
    with writer(storage, ONCE, "slow") as slow, writer(storage, ONCE, "quick") as quick:
        names = [f"k{number}" for number in range(9)]
        buckets = buckets_of_keys(names, INDEX)
        mine = names[0]
        other = next(key for key, bucket in zip(names, buckets, strict=True) if bucket != buckets[0])
        tx = slow.begin("UPSERT")
        tx.snapshot()
        ArrowEngine(quick).insert(rows((other, 1, "m1"), (mine, 1, "m2")))
        ArrowEngine(slow).upsert_in(tx, rows((mine, 2, "m1")))
        assert len(stored(ArrowEngine(slow))) == 3
    ensure_placed(storage)


def test_retried_writers_of_one_bucket_all_end_in_it(storage: LocalStorage) -> None:
    keys = in_one_bucket(6)
    patient = replace(QUICK, retry=RetrySettings(attempts=100, first_wait_s=0.01, longest_wait_s=0.1, holder_wait_s=10))
    with writer(storage, patient) as one, writer(storage, patient) as other:
        engines = [ArrowEngine(one), ArrowEngine(other)]
        SystemRuntime().gather(
            [lambda k=key, e=engines[n % 2]: e.upsert(rows((k, 1, "m1"))) for n, key in enumerate(keys)], limit=4
        )
        assert stored(engines[0]) == sorted((key, 1, "m1") for key in keys)
    assert len(ensure_placed(storage)) == 1


def test_a_delete_of_a_key_conflicts_with_whoever_brings_it_into_a_new_bucket(storage: LocalStorage) -> None:
    key = in_one_bucket(1)[0]
    with writer(storage, ONCE, "slow") as slow, writer(storage, ONCE, "quick") as quick:

        def work(tx: Transaction) -> object:
            tx.snapshot()
            ArrowEngine(quick).insert(rows((key, 1, "m1")))
            return ArrowEngine(slow).delete_keys_in(tx, rows((key, 0, "m1")))

        with slow.begin("DELETE") as tx, pytest.raises(ConflictError) as caught:
            work(tx)
        assert caught.value.conflict.rule is ConflictRule.KEY


def test_the_properties_file_has_nothing_of_the_index_and_every_writer_knows_it(storage: LocalStorage) -> None:
    assert not [key for key in read_properties(storage).values if "index" in key]
    with writer(storage) as coordinator, coordinator.begin("INSERT") as tx:
        assert tx.baseline.properties.bucket_index == INDEX
        assert tx.detach().baseline.properties.bucket_index == INDEX


@pytest.mark.parametrize("index", [None, BucketIndex(8, ("id",))])
def test_a_table_with_another_index_is_another_table(storage: LocalStorage, index: BucketIndex | None) -> None:
    schema = TableSchema.from_arrow(SCHEMA)
    found = properties()
    with pytest.raises(TableError, match="index: (none|bucket:8:id) was given, the table has bucket:4:id"):
        check_definition("t", properties(index), schema, found, schema)


def test_no_table_gets_an_index_that_somebody_else_began_to_record() -> None:
    storage = MemoryStorage()
    storage.put(layout.INDEX, BucketIndex(8, ("id",)).to_bytes())
    for index in (INDEX, None):
        with pytest.raises(TableError, match="index"):
            create_table(storage, properties(index), SystemRuntime())
    assert storage.get(layout.PROPERTIES) is None
    create_table(storage, properties(BucketIndex(8, ("id",))), SystemRuntime())


def javas(storage: Storage, index: BucketIndex = INDEX) -> None:
    """Make it a table as Java leaves it: buckets in the files, and nothing on record."""
    with writer(storage) as coordinator:
        ArrowEngine(coordinator).insert(many(20))
    storage.delete([layout.INDEX])


def told(index: str) -> Settings:
    return Settings(lock=QUICK.lock, heartbeat=QUICK.heartbeat, write=WriteSettings(index=index))


def test_a_table_of_java_is_refused_until_a_writer_says_how_many_buckets_it_has(storage: LocalStorage) -> None:
    javas(storage)
    with writer(storage) as coordinator, pytest.raises(TableError) as caught:
        ArrowEngine(coordinator).upsert(many(1, v=1))
    assert 'write.index = "bucket:N"' in caught.value.hint and "hoodie.bucket.index.num.buckets" in caught.value.hint
    with writer(storage, told("bucket:4")) as coordinator:
        ArrowEngine(coordinator).upsert(many(25, v=1))
        assert len(stored(ArrowEngine(coordinator))) == 25
    ensure_placed(storage)
    with writer(storage) as coordinator:
        ArrowEngine(coordinator).upsert(many(26, v=2))
    assert len(ensure_placed(storage)) == 4


@pytest.mark.parametrize(
    ("index", "said"),
    [
        ("bucket:8", "puts the key"),
        ("bucket:2", "not one of them"),
        ("bucket:4:month", "no key column"),
        ("bucket:x", "number of buckets"),
    ],
)
def test_a_wrong_word_about_buckets_is_found_before_anything_is_written(storage: LocalStorage, index: str, said: str) -> None:
    javas(storage)
    before = [entry.key for entry in storage.list("")]
    with writer(storage, told(index)) as coordinator, pytest.raises((TableError, InputError), match=said):
        ArrowEngine(coordinator).upsert(many(1, v=1))
    assert storage.get(layout.INDEX) is None
    assert [entry.key for entry in storage.list("")] == before


def test_a_word_against_the_record_is_refused(storage: LocalStorage) -> None:
    with writer(storage, told("bucket:8")) as coordinator, pytest.raises(TableError, match="has the index bucket:4:id"):
        coordinator.begin("INSERT")


def test_buckets_whose_number_differs_by_partition_are_refused_by_name(storage: LocalStorage) -> None:
    storage.put(f"{layout.HUDI_BUCKETS}/partition_bucket_index_meta/configs/00000000000000.hashing_config", b"{}")
    with writer(storage) as coordinator:
        with pytest.raises(TableError, match="hoodie.bucket.index.partition.expressions"):
            coordinator.begin("INSERT")
        assert ArrowEngine(coordinator).read().num_rows == 0


def test_a_file_that_is_no_bucket_stops_writers(storage: LocalStorage) -> None:
    javas(storage)
    storage.put(layout.INDEX, BucketIndex(1, ("id",)).to_bytes())
    with writer(storage) as coordinator, pytest.raises(TableError, match="1 bucket, and .* is not one of them"):
        ArrowEngine(coordinator).upsert(many(1))


def test_the_record_of_a_later_version_is_not_misread(storage: LocalStorage) -> None:
    storage.put(layout.INDEX, b'{"format": 2, "kind": "bucket", "buckets": 4, "fields": []}')
    with writer(storage) as coordinator:
        with pytest.raises(StorageError, match="a later version wrote it"):
            coordinator.begin("INSERT")
        assert ArrowEngine(coordinator).read().num_rows == 0


def test_a_late_attempt_of_a_task_makes_no_second_file_group(storage: LocalStorage) -> None:
    with writer(storage) as coordinator, coordinator.begin("INSERT") as tx:
        mine, tasks = rows((in_one_bucket(1)[0], 1, "m1")), FileTasks.of(tx.write_context(), storage)
        counted = tasks.write_new_files("month=m1", [mine], TaskToken(0, 0, 0), bucket=0)
        tx.commit(counted)
        tasks.write_new_files("month=m1", [mine], TaskToken(0, 0, 1), bucket=0)
        engine = ArrowEngine(coordinator)
        assert len(stored(engine)) == 1
        engine.upsert(many(10))
    ensure_placed(storage)


def test_a_big_bucket_stays_one_file(storage: LocalStorage) -> None:
    small = Settings(lock=QUICK.lock, heartbeat=QUICK.heartbeat, write=WriteSettings(target_file_rows=3))
    with writer(storage, small) as coordinator:
        ArrowEngine(coordinator).insert(many(40))
    assert len(ensure_placed(storage)) == 4


def test_a_restore_brings_each_bucket_back_in_one_file_group_of_its_number(storage: LocalStorage) -> None:
    engine = ArrowEngine(writer(storage))
    good = engine.upsert(many(20))
    before = stored(engine)
    engine.overwrite_partitions(many(3, v=1))
    engine.upsert(many(10, v=2))
    engine.restore(good.instant)
    assert stored(engine) == before
    ensure_placed(storage)
    engine.upsert(many(20, v=3))
    assert len(stored(engine)) == 20
    ensure_placed(storage)


def test_buckets_are_never_joined(storage: LocalStorage) -> None:
    engine = ArrowEngine(writer(storage))
    engine.upsert(many(20))
    assert engine.optimize().commits == []


@pytest.mark.parametrize("isolation", ["Serializable", "WriteSerializable"])
def test_an_upsert_that_makes_the_first_file_of_a_bucket_is_no_blind_append(storage: LocalStorage, isolation: Any) -> None:
    settings = replace(QUICK, concurrency=ConcurrencySettings(profile="delta", isolation=isolation))
    engine, other = (ArrowEngine(writer(storage, settings)) for _ in range(2))
    tx = engine.coordinator.begin("UPSERT")
    seen = engine.read_in(tx, pc.field("v") >= 0).num_rows
    other.upsert(rows(("new", 5, "m1")))
    with pytest.raises(ConcurrentAppendException):
        engine.upsert_in(tx, rows(("sum", seen, "m2")))
    assert stored(engine) == [("new", 5, "m1")]
