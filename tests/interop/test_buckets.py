"""Java writers with `hoodie.index.type=BUCKET` and lakelock agree on the bucket of every row, whoever made the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.api import ArrowEngine, BucketIndex, SystemRuntime, TableIO, create_table, read_snapshot, read_timeline
from tests.interop.shared import MADE_BY_EITHER, Layout, Shared
from tests.interop.witness import JavaError
from tests.sizes import in_ci

from lakelock.errors import ConflictError, SchemaError, TableError
from lakelock.table.index import bucket_of
from lakelock.table.key_search import buckets_of_keys

Share = Callable[..., Shared]

INDEX = BucketIndex(5, ("id",))
LAYOUT = Layout("buckets")
JAVAS = {"hoodie__index__type": "BUCKET", "hoodie__bucket__index__num__buckets": "5"}
UTC = {"hoodie__table__timeline__timezone": "UTC"}
KEYS = ["a", "b", "TXN-001", "a:b", "a,b", "a,b:c", "id:1,x", "ü", "日本語", "😀", "__null__", " "]
COMPOSITE = Layout("composite", keys=("id", "region"), partitions=())


def ensure_placed(table: Shared, index: BucketIndex = INDEX) -> Counter[tuple[str, int]]:
    """Every row is in the file group of its key's bucket, and no bucket of a partition has two; how many keys each has."""
    found: Counter[tuple[str, int]] = Counter()
    for file in read_snapshot(TableIO(table.storage), read_timeline(table.storage)).files:
        keys = pq.read_table(Path(table.path) / file.key, columns=["_hoodie_record_key"]).column(0).to_pylist()
        bucket = bucket_of(file.file_id)
        assert bucket is not None and (file.partition, bucket) not in found
        assert set(buckets_of_keys(keys, index)) <= {bucket}
        found[file.partition, bucket] += len(keys)
    return found


@pytest.mark.in_ci
@pytest.mark.sampled(promise=MADE_BY_EITHER)
@pytest.mark.parametrize("maker", ["java", "lakelock"])
def test_both_write_the_same_buckets(share: Share, maker: str) -> None:
    table = share(LAYOUT, create=False)
    first = [(key, 0, "eu") for key in KEYS[:8]]
    if maker == "lakelock":
        create_table(table.storage, LAYOUT.properties(table.name).indexed(INDEX), SystemRuntime())
        table.engine().insert(table.rows(*first))
    else:
        table.java_write("insert", *first, **JAVAS, **UTC)
        engine = table.engine()
        for write in (engine.upsert, engine.insert):
            with pytest.raises(TableError, match="nothing says how many") as caught:
                write(table.rows(("a", 1, "eu")))
        assert "write.index" in caught.value.hint
        with pytest.raises(TableError, match="write.index is bucket:7:id, which puts the key|not one of them"):
            table.engine(**{"write.index": "bucket:7"}).upsert(table.rows(("a", 1, "eu")))
    table.put(*first)
    table.agree()
    engine = ArrowEngine(table.coordinator(**({} if maker == "lakelock" else {"write.index": "bucket:5"})))
    for number, write in enumerate([engine.upsert, None, engine.upsert, None], 1):
        changed = [(key, number, "eu") for key in KEYS[number:]] + [(KEYS[number], number, "us")]
        if write is None:
            table.java_write("upsert", *changed, **JAVAS)
        else:
            write(table.rows(*changed))
        table.put(*changed)
        assert sum(ensure_placed(table).values()) == len(table.model)
    engine.delete(table.rows(("a", 0, "eu"), ("nobody", 0, "eu")))
    table.drop(("eu", "a"))
    table.agree()
    table.java_write("insert_overwrite", ("a", 9, "us"), ("b", 9, "us"), **JAVAS)
    table.replace_partition(("us",), ("a", 9, "us"), ("b", 9, "us"))
    engine.upsert(table.rows(("a", 10, "us"), ("c", 10, "us")))
    table.put(("a", 10, "us"), ("c", 10, "us"))
    engine.overwrite_partitions(table.rows(("b", 11, "eu")))
    table.replace_partition(("eu",), ("b", 11, "eu"))
    table.java_write("upsert", ("b", 12, "eu"), ("d", 12, "eu"), **JAVAS)
    table.put(("b", 12, "eu"), ("d", 12, "eu"))
    table.agree()
    assert sum(ensure_placed(table).values()) == len(table.model)


@pytest.mark.parametrize("fields", [("id", "region"), *in_ci((("region",),), (("id",),))], ids=",".join)
def test_keys_of_several_columns_are_hashed_alike(share: Share, fields: tuple[str, ...]) -> None:
    table, index = share(COMPOSITE, create=False), BucketIndex(5, fields)
    create_table(table.storage, COMPOSITE.properties(table.name).indexed(index), SystemRuntime())
    values = [
        ("a", 0, "x"),
        ("a:b", 0, "y,z"),
        ("a,b", 0, "y"),
        ("", 0, "e"),
        (None, 0, "n"),
        ("ü😀", 0, "日本"),
    ]
    engine = table.engine()
    engine.insert(table.rows(*values))
    said = {**JAVAS, "hoodie__bucket__index__hash__field": ",".join(fields)}
    changed = [(key, 1, region) for key, _, region in values if key is not None] + [("new", 1, "x"), ("2014-10-22", 1, "z")]
    reads_as_null = ("__null__", 1, "l")
    table.java_write("upsert", *changed, reads_as_null, **said)
    with pytest.raises(SchemaError, match="the key column id holds '__null__', which would be taken for another key"):
        engine.upsert(table.rows(reads_as_null))
    engine.upsert(table.rows(*((key, 2, region) for key, _, region in changed)))
    table.put(*values, reads_as_null, *((key, 2, region) for key, _, region in changed))
    assert sum(ensure_placed(table, index).values()) == len(table.model)
    table.agree()


def one_bucket() -> tuple[str, str]:
    """Two keys of one bucket."""
    names = [f"k{number}" for number in range(50)]
    buckets = buckets_of_keys(names, INDEX)
    one, other, *_ = (name for name, bucket in zip(names, buckets, strict=True) if bucket == 2)
    return one, other


@pytest.mark.in_ci
def test_java_does_not_make_the_bucket_that_lakelock_made_meanwhile(share: Share, tmp_path: Path) -> None:
    table = share(LAYOUT, create=False)
    create_table(table.storage, LAYOUT.properties(table.name).indexed(INDEX), SystemRuntime())
    engine, (one, other), gate = table.engine(), one_bucket(), tmp_path / "gate"
    engine.insert(table.rows(("a", 0, "us")))
    before = len(table.instants(".requested"))
    late = table.begin_java("upsert", (one, 1, "eu"), gate=gate, **JAVAS)
    while len(table.instants(".requested")) == before and not late.is_done():
        SystemRuntime().sleep(0.05)
    engine.insert(table.rows((other, 2, "eu")))
    gate.touch()
    with pytest.raises(JavaError) as caught:
        late.result()
    assert "HoodieWriteConflictException" in caught.value.classes
    table.put(("a", 0, "us"), (other, 2, "eu"))
    table.agree()
    ensure_placed(table)


def test_lakelock_does_not_make_the_bucket_that_java_made_meanwhile(share: Share) -> None:
    table = share(LAYOUT, create=False)
    create_table(table.storage, LAYOUT.properties(table.name).indexed(INDEX), SystemRuntime())
    coordinator, (one, other) = table.coordinator(), one_bucket()
    tx = coordinator.begin("UPSERT")
    tx.snapshot()
    table.java_write("upsert", (other, 2, "eu"), **JAVAS)
    with pytest.raises(ConflictError) as caught:
        ArrowEngine(coordinator).upsert_in(tx, table.rows((one, 1, "eu")))
    assert caught.value.conflict.overlap == (f"region=eu/{2:08d}",)
    ArrowEngine(coordinator).upsert(table.rows((one, 1, "eu")))
    table.put((other, 2, "eu"), (one, 1, "eu"))
    table.agree()
    ensure_placed(table)


def test_the_options_of_a_java_writer_are_enough(share: Share) -> None:
    table = share(LAYOUT, create=False)
    table.java_write("bulk_insert", *((key, 0, "eu") for key in KEYS), **JAVAS, **UTC)
    with table.hudi_file.open("a") as file:
        file.write("hoodie.index.type=BUCKET\nhoodie.bucket.index.num.buckets=5\n")
    table.engine().upsert(table.rows(*((key, 1, "eu") for key in KEYS)))
    table.put(*((key, 1, "eu") for key in KEYS))
    table.agree()
    assert sum(ensure_placed(table).values()) == len(KEYS)
