"""hoodie.properties: what Java would read, what a table says of itself, and who may write it."""

from __future__ import annotations

import pickle

import pytest
from tests.api import BucketIndex, DataFile, MemoryStorage, TableProperties

from lakelock.errors import CorruptTableError, TableError
from lakelock.parsing import parse_java_properties
from lakelock.table.eligibility import (
    check_readable,
    check_writable,
    look_like_buckets,
    why_files_misfit,
    why_not_readable,
    why_not_writable,
)
from lakelock.table.index import file_id_without_bucket
from lakelock.table.layout import PROPERTIES, PROPERTIES_BACKUP
from lakelock.table.properties import read_properties, table_checksum
from lakelock.table.snapshot import Snapshot

NOW_MS = 1_795_253_257_397


def table(**changes: str | None) -> TableProperties:
    """A table's properties with changes; double underscores stand for dots, None removes."""
    values = dict(TableProperties.new("t", ["id"], ["region"], "ts").values)
    for key, value in changes.items():
        values.pop(f"hoodie.{key.replace('__', '.')}", None)
        if value is not None:
            values[f"hoodie.{key.replace('__', '.')}"] = value
    return TableProperties(values)


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("a=1\nb:2\nc 3\nd\ne=\n", {"a": "1", "b": "2", "c": "3", "d": "", "e": ""}),
        ("  a  =  1  \n\t b\t:\t2", {"a": "1  ", "b": "2"}),
        ("# note\n! note\n\n   \n#a=1\nb=#2", {"b": "#2"}),
        ("a=one,\\\n   two,\\\r\n\tthree\nb=4", {"a": "one,two,three", "b": "4"}),
        ("a=ends in \\\\\nb=2", {"a": "ends in \\", "b": "2"}),
        ("a=dangling\\", {"a": "dangling"}),
        ("k\\ e\\:y\\==v\\=\\:\\#", {"k e:y=": "v=:#"}),
        ("a=\\t\\n\\r\\f\\q\\\\", {"a": "\t\n\r\fq\\"}),
        ("a=\\u00e9\\uD83D\\uDE00", {"a": "é😀"}),
        ("a=1\na=2", {"a": "2"}),
        ("a= = b", {"a": "= b"}),
        ("=v", {"": "v"}),
    ],
)
def test_properties_are_parsed_as_java_parses_them(text: str, entries: dict[str, str]) -> None:
    assert parse_java_properties(text.encode(), "x") == entries


def test_a_torn_escape_is_refused_with_the_files_name() -> None:
    with pytest.raises(CorruptTableError, match=r"some/file: malformed \\u escape"):
        parse_java_properties(b"a=\\u00", "some/file")


def test_properties_are_written_as_java_writes_them() -> None:
    properties = TableProperties({"hoodie.table.name": "t", "k y": " a=b:c#d!e\\f é\n"})
    assert properties.serialize(NOW_MS).decode("ascii").splitlines() == [
        "#Properties saved on 2026-11-21T09:27:37.397Z",
        "#Sat Nov 21 09:27:37 UTC 2026",
        "hoodie.table.name=t",
        "k\\ y=\\ a\\=b\\:c\\#d\\!e\\\\f \\u00E9\\n",
    ]


@pytest.mark.parametrize(
    ("database", "name", "checksum"),
    [
        ("", "t", 498511606),
        ("default", "t", 454464632),
        ("default", "v9_txns_cow_simple_nometa", 2616127535),
        ("default", "v8_nonpartitioned", 1908876706),
        ("default", "v6_nonpartitioned", 1363530505),
    ],
)
def test_the_checksum_is_the_one_that_real_tables_have(database: str, name: str, checksum: int) -> None:
    assert table_checksum(name, database) == checksum
    assert TableProperties.new(name, ["id"], database=database).values["hoodie.table.checksum"] == str(checksum)


def test_a_new_table_says_everything_that_java_and_hudi_rs_need() -> None:
    properties = TableProperties.new("t", ["id"], ["region"], "ts", create_schema='{"type":"record"}')
    assert properties.values == {
        "hoodie.table.name": "t",
        "hoodie.table.type": "COPY_ON_WRITE",
        "hoodie.table.version": "9",
        "hoodie.table.initial.version": "9",
        "hoodie.timeline.layout.version": "2",
        "hoodie.table.format": "native",
        "hoodie.table.base.file.format": "PARQUET",
        "hoodie.table.recordkey.fields": "id",
        "hoodie.table.partition.fields": "region",
        "hoodie.table.ordering.fields": "ts",
        "hoodie.table.keygenerator.type": "SIMPLE",
        "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
        "hoodie.table.timeline.timezone": "UTC",
        "hoodie.timeline.path": "timeline",
        "hoodie.timeline.history.path": "history",
        "hoodie.archivelog.folder": "history",
        "hoodie.populate.meta.fields": "true",
        "hoodie.datasource.write.drop.partition.columns": "false",
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.datasource.write.partitionpath.urlencode": "true",
        "hoodie.table.cdc.enabled": "false",
        "hoodie.table.multiple.base.file.formats.enable": "false",
        "hoodie.partition.metafile.use.base.format": "false",
        "hoodie.table.create.schema": '{"type":"record"}',
        "hoodie.table.checksum": "498511606",
    }
    assert TableProperties.parse(properties.serialize(NOW_MS)) == properties == pickle.loads(pickle.dumps(properties))
    assert (properties.ordering_field, properties.timezone, properties.create_schema) == ("ts", "UTC", '{"type":"record"}')
    check_writable(properties)


@pytest.mark.parametrize(
    ("keys", "partitions", "generator"),
    [
        (["id"], [], "NON_PARTITION"),
        (["a", "b"], [], "NON_PARTITION"),
        (["id"], ["p"], "SIMPLE"),
        (["a", "b"], ["p"], "COMPLEX"),
        (["id"], ["p", "q"], "COMPLEX"),
    ],
)
def test_the_key_generator_follows_from_the_fields(keys: list[str], partitions: list[str], generator: str) -> None:
    properties = TableProperties.new("t", keys, partitions)
    assert properties.key_generator == generator
    inferred = TableProperties({k: v for k, v in properties.values.items() if k != "hoodie.table.keygenerator.type"})
    assert inferred.key_generator == generator
    assert "hoodie.table.ordering.fields" not in properties.values and properties.merge_mode == "COMMIT_TIME_ORDERING"


def test_a_class_name_tells_the_key_generator_too() -> None:
    old = {"table__keygenerator__type": None, "table__keygenerator__class": "org.apache.hudi.keygen.ComplexKeyGenerator"}
    assert table(**old).key_generator == "COMPLEX"
    assert table(**{**old, "table__keygenerator__class": "com.acme.Mine"}).key_generator == "USER"


def test_the_ordering_column_counts_only_where_rows_are_ordered_by_event_time() -> None:
    assert table().ordering_field == "ts"
    assert table(record__merge__mode=None).ordering_field == "ts"
    assert table(record__merge__mode="COMMIT_TIME_ORDERING").ordering_field is None
    assert table(table__ordering__fields=None, table__precombine__field="v").ordering_field == "v"


@pytest.mark.parametrize(
    "damage", ["hoodie.table.version=9\n", "", "hoodie.table.name=t\nhoodie.table.checksum=1\n", "\x00\xff"]
)
def test_a_damaged_file_is_refused_and_the_backup_read_instead(damage: str) -> None:
    storage = MemoryStorage()
    storage.put(PROPERTIES, damage.encode("latin-1"))
    with pytest.raises(CorruptTableError, match=PROPERTIES):
        read_properties(storage)
    storage.put(PROPERTIES_BACKUP, table().serialize(NOW_MS))
    assert read_properties(storage) == table()
    storage.delete([PROPERTIES])
    assert read_properties(storage) == table()


def test_a_folder_without_properties_is_no_table() -> None:
    with pytest.raises(TableError, match="is not a Hudi table"):
        read_properties(MemoryStorage())


def test_a_version_that_is_no_number_is_corrupt() -> None:
    with pytest.raises(CorruptTableError, match=r"hoodie.table.version is 'nine'"):
        check_readable(table(table__version="nine"))


def test_differences_ignore_what_means_the_same_and_what_is_not_hudis() -> None:
    ours = table()
    assert not ours.differences(TableProperties({**ours.values, "hoodie.table.metadata.partitions": "", "acme.x": "1"}))
    assert ours.differences(table(table__version="10", table__cdc__enabled=None)) == {
        "hoodie.table.version",
        "hoodie.table.cdc.enabled",
    }


READ = "it can be read meanwhile"
NEW = "copy its rows into a new table that Java makes with hoodie.table.timeline.timezone=UTC"
UPGRADE = "let a Hudi 1.1 or 1.2 writer upgrade it, with hoodie.write.table.version=9"
BUCKETS = {"index__type": "BUCKET", "bucket__index__num__buckets": "8"}
MERGED = {"table__type": "MERGE_ON_READ", "table__ordering__fields": None, "record__merge__mode": "COMMIT_TIME_ORDERING"}
REFUSED_TO_WRITE = [
    (
        {"table__version": "9", "table__initial__version": "6", "table__keygenerator__type": "COMPLEX"},
        "upgraded from table version 6",
        NEW,
    ),
    (
        {"table__metadata__partitions": "files,bloom_filters"},
        "does not keep: bloom_filters",
        "run `lakelock adopt --remove-indexes`",
    ),
    (
        {"table__metadata__partitions": "files,column_stats,secondary_index_v,bloom_filters"},
        "does not keep: secondary_index_v, bloom_filters",
        "run `lakelock adopt --remove-indexes`",
    ),
    (
        {"table__metadata__partitions": "files", "table__metadata__partitions__inflight": "record_index"},
        "is building record_index",
        "let that writer end",
    ),
    ({"populate__meta__fields": "false"}, "no record keys", f"{NEW}, hoodie.populate.meta.fields=true"),
    ({"table__keygenerator__type": "TIMESTAMP"}, "TIMESTAMP", READ),
    ({"table__keygenerator__type": "CUSTOM"}, "CUSTOM", READ),
    ({"record__merge__mode": "CUSTOM"}, "own way", READ),
    ({"table__partial__update__mode": "IGNORE_DEFAULTS"}, "own way", READ),
    ({"table__ordering__fields": "a,b"}, "several columns", READ),
    ({"table__recordkey__fields": "place.id"}, "fields of other columns: place.id", READ),
    ({"table__partition__fields": "place.city"}, "fields of other columns: place.city", READ),
    ({"table__ordering__fields": "place.ts"}, "fields of other columns: place.ts", READ),
    ({"table__cdc__enabled": "true"}, "change logs", f"{NEW}, hoodie.table.cdc.enabled=false"),
    ({"index__type": "BUCKET"}, "bucket", f"{NEW}, hoodie.index.type=SIMPLE"),
    ({"bucket__index__num__buckets": "8"}, "bucket", f"{NEW}, hoodie.index.type=SIMPLE"),
    ({**BUCKETS, "bucket__index__hash__field": "v"}, "fit its key", f"{NEW}, hoodie.index.type=SIMPLE"),
    ({**BUCKETS, "index__bucket__engine": "CONSISTENT_HASHING"}, "CONSISTENT_HASHING", f"{NEW}, hoodie.index.type=SIMPLE"),
    (
        {**BUCKETS, "bucket__index__partition__expressions": "2026.*,9"},
        "hoodie.bucket.index.partition.expressions",
        f"{NEW}, hoodie.index.type=SIMPLE",
    ),
    ({"datasource__write__slash__separated__date__partitioning": "true"}, "nested folders", READ),
    ({"table__version": "6", "timeline__layout__version": "1"}, "table version 6", UPGRADE),
    (
        {**MERGED, "record__merge__mode": "EVENT_TIME_ORDERING", "table__ordering__fields": "v"},
        "by event time",
        f"{NEW}, hoodie.record.merge.mode=COMMIT_TIME_ORDERING",
    ),
    ({**MERGED, "table__storage__layout": "lsm_tree"}, "storage.layout", READ),
    ({**MERGED, "index__type": "GLOBAL_SIMPLE"}, "from one partition to another", READ),
]
REFUSED_AT_ALL = [
    ({"table__version": "5", "timeline__layout__version": "1"}, "table version 5", UPGRADE),
    ({"table__version": "6"}, "layout 2, which does not go with table version 6", ""),
    ({"table__version": None}, "table version unknown", ""),
    ({"table__version": "10"}, "table version 10.*later release has upgraded it", "stop that writer, and let its release"),
    ({"timeline__layout__version": "1"}, "layout 1", UPGRADE),
    ({"table__type": "NEW_KIND"}, "NEW_KIND", ""),
    ({"table__base__file__format": "ORC"}, "not all Parquet", ""),
    (
        {"datasource__write__drop__partition__columns": "true"},
        "partition columns",
        f"{NEW}, hoodie.datasource.write.drop.partition.columns=false",
    ),
    ({"timeline__path": "elsewhere"}, "hoodie.timeline.path", ""),
    ({"timeline__history__path": "elsewhere"}, "hoodie.timeline.history.path", ""),
    ({"bootstrap__base__path": "s3://x"}, "bootstrapped", ""),
]


@pytest.mark.parametrize(("changes", "reason", "hint"), REFUSED_TO_WRITE)
def test_a_table_that_must_not_be_written_says_why_and_is_still_read(changes: dict[str, str], reason: str, hint: str) -> None:
    check_readable(table(**changes))
    with pytest.raises(TableError, match=reason) as caught:
        check_writable(table(**changes))
    assert caught.value.hint.startswith(hint) and caught.value.hint.endswith(READ)


@pytest.mark.parametrize(("changes", "reason", "hint"), REFUSED_AT_ALL)
def test_a_table_that_cannot_be_read_says_why(changes: dict[str, str], reason: str, hint: str) -> None:
    for check in (check_readable, check_writable):
        with pytest.raises(TableError, match=reason) as caught:
            check(table(**changes))
        assert caught.value.hint.startswith(hint) and bool(caught.value.hint) == bool(hint)


def test_every_reason_is_named_at_once_and_the_advice_helps_against_all_of_them() -> None:
    with pytest.raises(TableError) as caught:
        check_writable(table(table__metadata__partitions="files,bloom_filters", populate__meta__fields="false"))
    assert caught.value.message == (
        "lakelock does not write the table t, for 2 reasons:\n"
        "  1. its metadata table has indexes that lakelock does not keep: bloom_filters (hoodie.table.metadata.partitions)\n"
        "  2. its rows carry no record keys (hoodie.populate.meta.fields=false)"
    )
    both = "hoodie.metadata.index.bloom.filter.enable=false, hoodie.populate.meta.fields=true"
    assert caught.value.hint == f"{NEW}, {both}; {READ}"
    every = {key: value for changes, _, _ in (*REFUSED_TO_WRITE, *REFUSED_AT_ALL) for key, value in changes.items()}
    reasons = why_not_writable(table(**every))
    assert set(why_not_readable(table(**every))) < set(reasons) and len(reasons) >= 15


def test_nothing_is_advised_where_one_of_the_reasons_cannot_be_helped() -> None:
    with pytest.raises(TableError) as caught:
        check_writable(table(table__metadata__partitions="expr_index_a", table__keygenerator__type="CUSTOM"))
    assert caught.value.hint == READ


def test_two_reasons_that_one_step_each_mends_are_mended_one_after_the_other() -> None:
    with pytest.raises(TableError) as caught:
        check_writable(table(table__version="6", timeline__layout__version="1", table__metadata__partitions="bloom_filters"))
    first, second = caught.value.hint.split("; then ")
    assert first.startswith("let a Hudi") and second.startswith("run `lakelock adopt --remove-indexes`")


def test_a_table_with_a_metadata_table_that_lists_files_is_written() -> None:
    assert not why_not_writable(table(table__metadata__partitions="files"))
    assert not why_not_writable(table(table__metadata__partitions="files,record_index"))
    assert not why_not_writable(table(**MERGED, table__metadata__partitions="files,record_index"))


def test_a_merge_on_read_table_without_partitions_may_have_a_global_index() -> None:
    alone = {"table__partition__fields": None, "table__keygenerator__type": "NON_PARTITION", "index__type": "GLOBAL_SIMPLE"}
    assert not why_not_writable(table(**MERGED, **alone))


def test_a_change_of_the_metadata_table_is_no_change_that_a_transaction_minds() -> None:
    ours = table()
    assert not ours.differences(table(table__metadata__partitions="files", table__index__defs__path="x"))
    assert ours.differences(table(table__timeline__timezone="LOCAL"))


def test_a_metadata_table_that_was_switched_off_counts_as_off() -> None:
    off = table(table__metadata__partitions="", table__metadata__partitions__inflight="")
    assert why_not_writable(off) == why_not_readable(off) == () and off.metadata_partitions == ()


def files(*file_ids: str) -> Snapshot:
    return Snapshot(tuple(DataFile("", file_id, "0-0-0", "20261121092737397", 1) for file_id in file_ids))


def test_buckets_are_recognised_by_their_file_ids() -> None:
    found = why_files_misfit(table(), files("00000005-fdd1-447c-b599-63b4c0871fc8-0", "00000012-1347-4187-8af3-1c83a1831000-0"))
    assert found is not None and "hoodie.bucket.index.num.buckets" in found.hint
    mixed = files("00000005-fdd1-447c-b599-63b4c0871fc8-0", "2d22e70d-fdd1-447c-b599-63b4c0871fc8-0")
    assert why_files_misfit(table(), mixed) is None
    assert why_files_misfit(table(), files()) is None


def test_a_table_with_buckets_has_each_once_and_nothing_else() -> None:
    buckets = table(**BUCKETS)
    assert why_not_writable(buckets) == () and buckets.bucket_index == BucketIndex(8, buckets.record_keys)
    good = files("00000005-fdd1-447c-b599-63b4c0871fc8-0", "00000007-1347-4187-8af3-1c83a1831000-0")
    assert why_files_misfit(buckets, good) is None
    for file_id, said in (
        ("2d22e70d-fdd1", "not one of them"),
        ("00000008-fdd1", "not one of them"),
        ("00000005-x", "two file groups"),
    ):
        assert said in str(why_files_misfit(buckets, files("00000005-fdd1-447c-b599-63b4c0871fc8-0", file_id)))


def test_a_random_file_id_never_looks_like_a_bucket() -> None:
    """Else a table with a single file could not be written any more."""
    unlucky = "00012345-fdd1-447c-b599-63b4c0871fc8"
    assert look_like_buckets([f"{unlucky}-0"]) and not look_like_buckets([f"{file_id_without_bucket(unlucky)}-0"])
    assert file_id_without_bucket("2d22e70d-fdd1-447c-b599-63b4c0871fc8") == "2d22e70d-fdd1-447c-b599-63b4c0871fc8"
