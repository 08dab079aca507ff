"""Every parser of what somebody else wrote, and the judge: any bytes give a value, or an error that the parser may raise.

The property tests and the fuzzer (`make fuzz`) share this list. A parser that is not in it is not fuzzed, so add new ones.
"""

from __future__ import annotations

import base64
import io
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir

import numpy as np
import pyarrow as pa
from tests.api import (
    AppTransaction,
    CommitMetadata,
    ConflictRule,
    DataFile,
    MemoryStorage,
    RollbackPlan,
    TableProperties,
    TableSchema,
    WriterIdentity,
    WriteStat,
    layout,
    parse_instant,
)
from tests.golden_tables import golden_table
from tests.property import base_files

from lakelock.admin.manual_changes import read_audit
from lakelock.conflict import Conflict, Party
from lakelock.data_locks.base import TABLE, lock_request
from lakelock.data_locks.lock_table import Entry, LockTable
from lakelock.errors import CorruptTableError, InputError, LockError, SchemaError, SettingsError, StorageError, TableError
from lakelock.markers.claims import Claim
from lakelock.markers.data_files import parse_batch, parse_marker
from lakelock.markers.heartbeat import HeartbeatRecord
from lakelock.occ.footprint import CommitSummary
from lakelock.occ.log import Decision, DecisionKind, DecisionLog, OutcomeRecord, TableInstant, TransactionName, Verdict
from lakelock.occ.recorded_lock import recorded_provider
from lakelock.occ.rejections import Rejection
from lakelock.parsing import JsonObject
from lakelock.providers.base import reserve_block
from lakelock.providers.dynamodb_table import LockItem, place_of
from lakelock.providers.hive_metastore.requests import Place
from lakelock.providers.redis.lock import holder_of
from lakelock.providers.redis.servers import RedisAddress
from lakelock.providers.storage import LockFile
from lakelock.providers.zookeeper.queue import Contender
from lakelock.providers.zookeeper.session import parse_place
from lakelock.settings import Settings
from lakelock.spark_plugin.sql_changes import statement_of
from lakelock.spark_plugin.sql_operations import text_of
from lakelock.spark_plugin.sql_words import filled_in
from lakelock.storage.base import checked
from lakelock.storage.location import canonical_uri
from lakelock.table.avro import REQUESTED_REPLACE, encode
from lakelock.table.commit_metadata import RuntimeStats, requested_replace_bytes
from lakelock.table.hfile import find_in_hfile, hfile_bytes, read_hfile
from lakelock.table.instants import as_of_time, parse_file_name
from lakelock.table.layout_one import commits_in
from lakelock.table.log_files import Block, BlockHeader, BlockKind, blocks_of, positions_in, positions_text
from lakelock.table.log_rows import add_block
from lakelock.table.metadata_records import FILES, RecordSchema, files_in, files_records, joined
from lakelock.table.metadata_stats import ColumnStats, StatsIndex, ValueType, column_stats_records, stats_in
from lakelock.table.parquet_footers import DYNAMIC, SIMPLE, BloomFilter
from lakelock.table.row_versions import ByCommitTime, ByEventTime
from lakelock.table.service_metadata import (
    CleanedUntil,
    CleanMetadata,
    CleanPlan,
    RollbackMetadata,
    SavepointMetadata,
    partitions_to_clean,
    planned_groups,
)

CRASHES = Path(__file__).parent / "crashes"
"""Inputs that once made a parser fail, in a folder for each parser."""

AT = "20261121092737397"
WRITER = WriterIdentity("id", "app", "host", 1, "user")

_MET = Conflict.over(ConflictRule.APPEND, Party(AT, "UPSERT", WRITER), Party(AT, "INSERT", None, AT, 1.5), ["month=1"])
_REJECTIONS = tuple(Rejection(AT, "UPSERT", WRITER, 5, "why", met).to_bytes() for met in (_MET, None))


@dataclass(frozen=True)
class Parser:
    """`read` parses bytes and asserts what must hold for the value; `errors` are all that it may raise."""

    name: str
    read: Callable[[bytes], object]
    errors: tuple[type[Exception], ...]
    samples: tuple[bytes, ...]

    def judge(self, data: bytes) -> None:
        """Returns if the bytes were read, or refused with a clear error; raises whatever else happened."""
        try:
            self.read(data)
        except self.errors as error:
            refusal = error
        else:
            return
        assert str(refusal)
        if type(refusal) is CorruptTableError and self.name not in _NAMELESS:
            assert "file" in refusal.details


_NAMELESS = frozenset({"schema", "bloom-dynamic", "bloom-simple", "instant", "lock-file", "lock-table", "lock-token"})
"""They do not know in which file they were, or name it as a key."""


def text(data: bytes) -> str:
    """Also the halves of surrogate pairs that names of files, JSON and arguments of a command line can hold."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "surrogateescape")


def _inside(keys: Iterable[str]) -> None:
    for key in keys:
        assert checked(key) and not key.startswith((".hoodie/", "/")), key


def _commit(data: bytes) -> None:
    metadata = CommitMetadata.from_bytes(data)
    _inside(stat.path for stat in metadata.stats if stat.path is not None)
    groups = metadata.added_groups | metadata.rewritten_groups | metadata.replaced_groups
    _inside(layout.in_partition(group.partition, group.file_id) for group in groups)
    summary = CommitSummary.of("1", "2", metadata, None)
    _inside(file.key for file in summary.files.values())


def _log_file(data: bytes) -> None:
    columns = pa.schema([("_hoodie_record_key", pa.string()), ("v", pa.int64()), ("ts", pa.int64())])
    by_commit, by_event = ByCommitTime(columns), ByEventTime(columns, "ts")
    for block in blocks_of(io.BytesIO(data), len(data), "a log file"):
        if block.kind is not BlockKind.COMMAND:
            add_block(block, by_commit)
            add_block(block, by_event)
            positions = positions_in(block, 1000)
            if positions is not None:
                assert (
                    len(positions) <= 1000 and (np.diff(positions) > 0).all() and 0 <= positions[0] <= positions[-1] < 1 << 32
                )
    for rows in (*by_commit.rest(), *by_event.rest()):
        rows.validate(full=True)


def _positions(data: bytes) -> None:
    """Of a Roaring bitmap, which a block's header has in Base64."""
    block = Block(BlockKind.DELETE, {BlockHeader.RECORD_POSITIONS: base64.b64encode(data).decode()}, b"")
    found = positions_in(block, 10_000)
    if found is not None:
        assert 0 < len(found) <= 10_000 and (np.diff(found) > 0).all() and 0 <= found[0] <= found[-1] < 1 << 32
        again = {BlockHeader.RECORD_POSITIONS: positions_text(found)}
        assert np.array_equal(positions_in(Block(BlockKind.DELETE, again, b""), len(found)), found)


def _bitmaps() -> Iterable[bytes]:
    """Few numbers, many, runs, and all of them."""
    few, many, runs = np.array([0, 7, 70_000]), np.arange(0, 15_000, 2), np.arange(100_000, 100_900)
    for each in (few, many, runs, np.concatenate([few, many + 200_000, runs + 300_000, few + 500_000])):
        yield base64.b64decode(positions_text(each))


_TRAILER = b'TRABLK"$'


def _hfile(data: bytes) -> None:
    """The trailer is filled up to its 4096 bytes, for a fuzzer that changes so many."""
    body, magic, trailer = data.rpartition(_TRAILER)
    found = read_hfile(body + (magic + trailer).ljust(4092, b"\0") + b"\0\0\0\3", "an HFile")
    assert read_hfile(hfile_bytes(found.entries, found.info, created_ms=0, block_bytes=50), "ours").entries == found.entries


def _hfile_search(data: bytes) -> None:
    body, magic, trailer = data.rpartition(_TRAILER)
    whole = body + (magic + trailer).ljust(4092, b"\0") + b"\0\0\0\3"
    find_in_hfile(io.BytesIO(whole), [b"key 0", b"key 5", b"key 8", b"no key"], "an HFile")


def _hfiles() -> Iterable[bytes]:
    for gzipped in (False, True):
        entries = [(f"key {n}".encode(), b"v" * n) for n in range(9)]
        made = hfile_bytes(entries, {"schema": b"{}"}, created_ms=5, gzipped=gzipped, block_bytes=100)
        yield made.rstrip(b"\0\3")


def _metadata_schema() -> RecordSchema:
    log = next(golden_table("java12_metadata").glob(".hoodie/metadata/files/.files-*.log.1_0-32-*")).read_bytes()
    block = next(block for block in blocks_of(io.BytesIO(log), len(log), "a log file") if block.kind is BlockKind.HFILE)
    return RecordSchema.of(block.header[BlockHeader.SCHEMA], "a log file")


_METADATA = _metadata_schema()
_COLUMNS = pa.schema([("a", pa.int64()), ("b", pa.string())])


def _metadata_record(data: bytes) -> None:
    record = _METADATA.decoded(data, "a record")
    assert _METADATA.decoded(_METADATA.encoded(record), "a record") == record or "nan" in repr(record)
    if record["type"] in (3, 6):
        stats_in(record)
    else:
        assert files_in(joined(FILES, record, record), "a record") == files_in(record, "a record")


def _metadata_records() -> Iterable[bytes]:
    yield from map(_METADATA.encoded, files_records({"p=1": {"a": 1, "b": 2}}, {"": ["c"]}).values())
    stats = {"c": ColumnStats(ValueType(10, 5, 2), -500, 700, 3, 1), "d": ColumnStats(ValueType(7), "a", "b", 3)}
    yield from map(_METADATA.encoded, column_stats_records("p=1", "a", stats, 2).values())


def _old_archive(data: bytes) -> None:
    for commit in commits_in(data, "an archive"):
        CommitMetadata.from_bytes(commit["metadata"], "a commit of an archive")


def _old_archives() -> Iterable[bytes]:
    archives = golden_table("java12_version_6_archived").glob(".hoodie/history/.commits*")
    yield from (path.read_bytes() for path in sorted(archives) if path.suffix != ".crc")


def _logs() -> Iterable[bytes]:
    """A log file of Avro rows, one of deletes, and one of Parquet rows."""
    for name in ("java12_mor_events", "java12_mor_parquet_logs"):
        logs = sorted(path for path in golden_table(name).rglob(".*.log.*") if path.suffix != ".crc")
        yield from (path.read_bytes() for path in (min(logs, key=lambda path: path.stat().st_size), logs[0]))


def _files(files: object) -> None:
    assert isinstance(files, dict)
    _inside(layout.in_partition(partition, name) for partition, names in files.items() for name in names)


def _clustering(data: bytes) -> None:
    for group in planned_groups(data):
        layout.checked_partition(group.partition, "x")
        layout.checked_file_name(group.file_id, "x")


def _cleaning(data: bytes) -> None:
    for partition in partitions_to_clean(data):
        layout.checked_partition(partition, "x")
    _inside(CleanPlan.from_bytes(data).keys)


def _timeline_name(data: bytes) -> None:
    found = parse_file_name(text(data))
    assert found is None or found.file_name == text(data)


def _instant(data: bytes) -> None:
    parse_instant(as_of_time(text(data)))


def _data_file(data: bytes) -> None:
    found = DataFile.parse(text(data))
    assert found is None or found.key == text(data)


def _marker(data: bytes) -> None:
    found = parse_marker(text(data), "m")
    assert str(found) == text(data)
    _inside([found.data_key])


def _batch(data: bytes) -> None:
    markers, _ = parse_batch(data, "b")
    _inside(marker.data_key for marker in markers)


def _stored(key: str, read: Callable[[MemoryStorage], object]) -> Callable[[bytes], object]:
    def parse(data: bytes) -> object:
        storage = MemoryStorage()
        storage.put(key, data)
        return read(storage)

    return parse


def _bloom(kind: str) -> Callable[[bytes], None]:
    def parse(data: bytes) -> None:
        found = BloomFilter.parse(data, kind)
        assert found.size_bits <= 8 * len(data)

    return parse


def _item(data: bytes) -> None:
    """Lines of `name type value`: what DynamoDB can answer."""
    rows = [line.split(" ", 2) for line in text(data).split("\n")]
    assert LockItem.parse({row[0]: {row[1]: row[2]} for row in rows if len(row) == 3}).lease_s >= 0


def _settings(suffix: str) -> Callable[[bytes], object]:
    def parse(data: bytes) -> object:
        file = Path(gettempdir()) / f"lakelock-parsed-{os.getpid()}{suffix}"
        file.write_bytes(data)
        try:
            return Settings.resolve(file=file)
        finally:
            file.unlink()

    return parse


def _option(data: bytes) -> None:
    name, _, value = text(data).partition("=")
    Settings.resolve({name: value})


def _uri(data: bytes) -> None:
    once = canonical_uri(text(data))
    assert canonical_uri(once) == once


def _redis_uri(data: bytes) -> None:
    address = RedisAddress.parse(text(data))
    assert address.identity(address.key) and address.place


def _redis_value(data: bytes) -> None:
    assert str(holder_of(data, 1, 5, 10))


def _token_block(storage: MemoryStorage) -> None:
    first, last = reserve_block(storage, expect_new=False)
    assert 0 < first <= last


def _contender(data: bytes) -> None:
    assert str(Contender("n", data, 1, 2, 3).holder)


_STAT = WriteStat("a-0", f"p=1/a-0_0-0-0_{AT}.parquet", partition_path="p=1", runtime=RuntimeStats())
_JSON = WRITER.as_dict()
_TORN, _CORRUPT = (CorruptTableError,), (CorruptTableError, TableError)
_TRANSACTION = TransactionName(
    f"{AT}-1a", (TableInstant("file:///a", AT, "commit"), TableInstant("s3://b/c", AT, "replacecommit"))
)
_PLAN = encode(REQUESTED_REPLACE, {
    "operationType": "CLUSTER", "version": 1, "extraMetadata": {},
    "clusteringPlan": {"inputGroups": [{"slices": [{"partitionPath": "p=1", "fileId": "a-0"}]}]},
})  # fmt: skip
_ENTRY = Entry("g", lock_request(exclusive=[TABLE], about="x"), WRITER, 1.5, 4)
_FILTER = BloomFilter.of([], entries=10, fpp=0.1).to_text().encode()

PARSERS: dict[str, Parser] = {
    parser.name: parser
    for parser in (
        Parser("properties", TableProperties.parse, _TORN, (TableProperties.new("t", ["id"], ["p"]).serialize(0),)),
        Parser("commit", _commit, _TORN, (
            CommitMetadata({"p=1": (_STAT,)}, "INSERT", {"schema": "{}"}, {"p=1": ("b-0",)}).to_bytes(),
            CommitMetadata({"": (WriteStat("a-0", "a.parquet"),)}, "UPSERT", {"lakelock.writer": "{}"}).to_bytes(),
        )),
        Parser("rollback-plan", lambda data: _files(RollbackPlan.from_bytes(data).files), _TORN, (
            RollbackPlan(AT, "commit", {"p=1": ("a.parquet",)}).to_bytes(),)),
        Parser("rollback", lambda data: _files(RollbackMetadata.from_bytes(data).files), _TORN, (
            RollbackMetadata(AT, 5, AT, "commit", {"p=1": ("a.parquet",)}).to_bytes(),)),
        Parser("clustering-plan", _clustering, _TORN, (requested_replace_bytes(), _PLAN)),
        Parser("cleaner-plan", _cleaning, _TORN, (
            CleanPlan("P", AT, "commit", AT, {"p=1": ("a.parquet",)}, {"k": "v"}, "", ("p=1",)).to_bytes(),)),
        Parser("clean", lambda data: _files(CleanMetadata.from_bytes(data).files), _TORN, (
            CleanMetadata(AT, 5, "P", AT, AT, {"p=1": ("a.parquet",)}).to_bytes(),)),
        Parser("rejection", Rejection.from_bytes, (ValueError,), _REJECTIONS),
        Parser("cleaned-until", CleanedUntil.from_bytes, (), (
            CleanedUntil(AT, frozenset({f"{AT}.savepoint"}), 5, 7).to_bytes(),)),
        Parser("savepoint", lambda data: _files(SavepointMetadata.from_bytes(data).files), _TORN, (
            SavepointMetadata("me", 5, "name", {"p=1": ("a.parquet",)}).to_bytes(),)),
        Parser("timeline-name", _timeline_name, (), (f"{AT}_{AT}.commit".encode(), f"{AT}.clustering.inflight".encode())),
        Parser("instant", _instant, (InputError, CorruptTableError), (AT.encode(), b"2026-11-21T09:27:37.397+01:00")),
        Parser("data-file", _data_file, (), (f"p=1/a-0_0-0-0_{AT}.parquet".encode(),)),
        Parser("marker", _marker, _TORN, (f"p=1/a-0_0-0-0_{AT}.parquet.marker.CREATE".encode(),)),
        Parser("marker-batch", _batch, (), (b"p/a.parquet.marker.MERGE\nb.parquet.marker.CREATE\n",)),
        Parser("claim", Claim.from_bytes, (), (Claim(AT, WRITER, "UPSERT").to_bytes(),)),
        Parser("heartbeat", HeartbeatRecord.from_bytes, (), (
            HeartbeatRecord(AT, WRITER, "UPSERT", 3, 60.0, 2, "w").to_bytes(),)),
        Parser("decision", lambda data: Decision.from_bytes(data, "d"), _CORRUPT, (
            Decision(7, DecisionKind.COMMIT, AT, "commit", "w", WRITER, "UPSERT", AT, b"").to_bytes(),
            Decision(8, DecisionKind.PREPARE, AT, "commit", "w", WRITER, "UPSERT", AT, b"{}", _TRANSACTION).to_bytes(),)),
        Parser("outcome", lambda data: layout.outcome(OutcomeRecord.from_bytes(data, "o").name.id), _CORRUPT, (
            OutcomeRecord(_TRANSACTION, Verdict.ABORTED, "w", WRITER, 5, "why", (AppTransaction("a", 1),)).to_bytes(),)),
        Parser("transaction-name", lambda data: TransactionName.parse(text(data)), (), (_TRANSACTION.to_json().encode(),)),
        Parser("boundary", _stored(layout.DECISIONS_BOUNDARY, lambda s: DecisionLog(s).boundary()), _CORRUPT, (
            b'{"format": 1, "boundary": 7, "lock": "x"}',)),
        Parser("decision-name", lambda data: layout.decision(layout.decision_number(text(data))), _TORN, (
            layout.decision(7).encode(),)),
        Parser("application", lambda data: AppTransaction.from_extra({"lakelock.application": text(data)}), (), (
            b'{"id": "a", "version": 1}',)),
        Parser("schema", lambda data: TableSchema.from_avro_json(text(data)), (*_TORN, SchemaError), (
            b'{"type": "record", "name": "r", "fields": [{"name": "a", "type": ["null", "long"]}]}',)),
        Parser("bloom-dynamic", _bloom(DYNAMIC), _TORN, (_FILTER,)),
        Parser("bloom-simple", _bloom(SIMPLE), _TORN, (_FILTER,)),
        Parser("lock-file", LockFile.from_bytes, _TORN, (LockFile(False, 5, "owner", 1, 2, 1500, WRITER).to_bytes(),)),
        Parser("lock-table", LockTable.from_bytes, _TORN, (LockTable().enqueued(_ENTRY, 5).to_bytes(),)),
        Parser("lock-token", _stored(layout.LOCK_TOKEN, _token_block), _TORN, (b"1000000",)),
        Parser("redis-value", _redis_value, (), (
            json.dumps({"grant": "g", "ear": "e", "lease_ms": 5, "writer": _JSON}).encode(),)),
        Parser("log-file", _log_file, (*_TORN, SchemaError, TableError), tuple(_logs())),
        Parser("positions", _positions, (), tuple(_bitmaps())),
        Parser("hfile", _hfile, _TORN, tuple(_hfiles())),
        Parser("hfile search", _hfile_search, _TORN, tuple(_hfiles())),
        Parser("metadata-record", _metadata_record, _TORN, tuple(_metadata_records())),
        Parser("column-statistics", lambda data: StatsIndex.parse(data, "index.json").of(_COLUMNS), _TORN, (
            b'{"indexDefinitions": {"column_stats": {"sourceFields": ["a", "b"], "version": "V2"}}}',)),
        Parser("old-archive", _old_archive, _TORN, tuple(_old_archives())),
        Parser("base-file", base_files.read, _TORN, tuple(map(base_files.sample, ("zstd", "none")))),
        Parser("recorded-lock", _stored(layout.LOCK_IDENTITY, recorded_provider), (StorageError, TableError), (
            b'{"format": 1, "provider": "storage:x"}',)),
        Parser("audit-record", _stored(f"{layout.AUDIT}/{AT}-x.ended", read_audit), (), (
            json.dumps({"at_ms": 1, "action": "a", "by": _JSON, "lock": "l", "token": 1, "holder": "", "reason": "",
                        "outcome": "done", "ended_ms": 2}).encode(),)),
        Parser("dynamodb-item", _item, (LockError,), (
            b"key S k\nownerName S o\nrecordVersionNumber S v\nleaseDuration S 5\ntoken N 1\nwriter S {}",)),
        Parser("zookeeper-node", _contender, (), (json.dumps({"writer": _JSON, "leaseMs": 5}).encode(),)),
        Parser("settings-toml", _settings(".toml"), (SettingsError,), (b'[lock]\nprovider = "storage"\nwait_s = 5\n',)),
        Parser("settings-hudi", _settings(".properties"), (SettingsError,), (
            b"hoodie.write.lock.provider=org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider\n"
            b"hoodie.write.lock.zookeeper.url=h\nhoodie.write.lock.zookeeper.base_path=/b\n",)),
        Parser("settings-option", _option, (SettingsError,), (b"lock.wait_s=5", b"lock.options.wait_replicas=1")),
        Parser("statement", lambda data: text_of(statement_of(text(data))), (InputError,), (
            b"UPDATE goods AS g SET a = g.b * 2, `c d` = 'it''s' WHERE f(x, y -> y)", b"DELETE FROM goods WHERE a IN (1, 2);",
            b"MERGE INTO g USING (SELECT 1 AS a) s ON g.a = s.a WHEN MATCHED AND s.a > 1 THEN UPDATE SET *\n"
            b"WHEN NOT MATCHED THEN INSERT (a) VALUES (CASE WHEN s.a THEN 1 END) WHEN NOT MATCHED BY SOURCE THEN DELETE",
            b"INSERT INTO g (a) VALUES (1) -- end", b"INSERT OVERWRITE g BY NAME WITH x AS (SELECT 1) SELECT * FROM x")),
        Parser("statement-markers", lambda data: filled_in(text(data), {"a": "1"}), (InputError,), (
            b"DELETE FROM goods WHERE a = :a AND b = data:a AND c = ':a' AND `:a` /* :a */ IN (:a)",)),
        Parser("table-uri", _uri, (SettingsError,), (b"s3a://bucket//t/../u/", b"file:///lake/./t", b"abfss://c@a.dfs/t")),
        Parser("dynamodb-uri", lambda data: place_of(text(data), MemoryStorage()), (SettingsError,), (
            b"dynamodb://locks/a%20b", b"dynamodb://locks?implicit=true")),
        Parser("redis-uri", _redis_uri, (SettingsError,), (
            b"redis://u:p@h:1/0?key=a", b"redis+sentinel://h:1,h:2/master/0", b"redis+cluster://h")),
        Parser("zookeeper-uri", lambda data: parse_place(text(data), MemoryStorage()), (SettingsError, TableError), (
            b"zookeeper://h:2181,g/lake/t", b"zookeeper://h/a/t?", b"zookeeper://h?implicit=true&base_path=/d")),
        Parser("metastore-uri", lambda data: Place.of(text(data), "", "file:///t"), (SettingsError,), (
            b"hive_metastore://h:9083,g/db/t", b"hive_metastore://[::1]/a%2Fb/t")),
        Parser("json", JsonObject.parse, (ValueError,), (b"{}",)),
    )
}  # fmt: skip
