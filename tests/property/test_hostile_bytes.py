"""Every parser, given anybody's bytes: a value or a clear error, never another exception, never a path out of the table."""

from __future__ import annotations

import contextlib
import json
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakelock.data_locks.lock_table import LockTable
from lakelock.errors import CorruptTableError, LakelockError, LockError, SettingsError, StorageError, TableError
from lakelock.identity import WriterIdentity
from lakelock.json_object import JsonObject
from lakelock.markers.claims import Claim
from lakelock.markers.heartbeat import HeartbeatRecord
from lakelock.markers.names import parse_batch, parse_marker
from lakelock.occ.decisions import Decision, DecisionKind, DecisionLog
from lakelock.occ.footprint import AppTransaction
from lakelock.providers.dynamodb_item import LockItem
from lakelock.providers.lock_file import LockFile
from lakelock.providers.redis_address import RedisAddress
from lakelock.providers.zookeeper_place import parse_place
from lakelock.settings import Settings
from lakelock.settings_file import read_settings_file
from lakelock.storage_keys import checked
from lakelock.storage_memory import MemoryStorage
from lakelock.table import layout
from lakelock.table.bloom import DYNAMIC, SIMPLE, BloomFilter
from lakelock.table.instants import parse_file_name
from lakelock.table.schema import TableSchema

WRITER = WriterIdentity("id", "app", "host", 1, "user")

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([10**400, "..", "/etc/passwd", 2**63, -1])
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)
raw = st.binary(max_size=60) | st.sampled_from(
    [b"[" * 100_000, b'{"a":' * 50_000, b"1" * 5_000, b"\xef\xbb\xbf{}", b"\xff\xfe", b"{}"]
)


def documents(sample: bytes) -> st.SearchStrategy[bytes]:
    """JSON like `sample` with some fields of another kind, or missing, and anything at all."""
    fields: dict[str, Any] = json.loads(sample)

    def changed(changes: dict[str, Any]) -> bytes:
        return json.dumps({name: changes.get(name, value) for name, value in fields.items()}).encode()

    return st.dictionaries(st.sampled_from(sorted(fields)), values, max_size=3).map(changed) | raw


CLAIM = Claim("20261121092737397", WRITER, "UPSERT").to_bytes()
HEARTBEAT = HeartbeatRecord("20261121092737397", WRITER, "UPSERT", 3, 60.0, 2, "w").to_bytes()
LOCK_FILE = LockFile(False, 5, "owner", 1, 2, 1500, WRITER).to_bytes()
DECISION = Decision(
    7, DecisionKind.COMMIT, "20261121092737397", "commit", "w", WRITER, "UPSERT", "20261121092737398", b""
).to_bytes()

KINDS: list[tuple[Callable[[bytes], object], bytes, tuple[type[LakelockError], ...]]] = [
    (Claim.from_bytes, CLAIM, ()),
    (HeartbeatRecord.from_bytes, HEARTBEAT, ()),
    (LockFile.from_bytes, LOCK_FILE, (CorruptTableError,)),
    (LockTable.from_bytes, LockTable().to_bytes(), (CorruptTableError,)),
    (lambda data: Decision.from_bytes(data + b"\n", "d"), DECISION.rstrip(b"\n"), (CorruptTableError, TableError)),
    (lambda data: AppTransaction.from_extra({"lakelock.application": text(data)}), b'{"id": "a", "version": 1}', ()),
    (
        lambda data: TableSchema.from_avro_json(text(data)),
        b'{"type": "record", "name": "r", "fields": []}',
        (CorruptTableError, TableError),
    ),
]


def text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


@pytest.mark.parametrize(("parser", "sample", "errors"), KINDS)
@given(data=st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_a_record_is_read_or_refused(
    parser: Callable[[bytes], object], sample: bytes, errors: tuple[type[LakelockError], ...], data: st.DataObject
) -> None:
    parser(sample)
    with contextlib.suppress(*errors):
        parser(data.draw(documents(sample)))


@given(raw)
def test_a_boundary_is_read_or_refused(data: bytes) -> None:
    storage = MemoryStorage()
    storage.put(layout.DECISIONS_BOUNDARY, data)
    with contextlib.suppress(CorruptTableError, TableError):
        assert DecisionLog(storage).boundary() >= 0


@pytest.mark.parametrize("kind", [DYNAMIC, SIMPLE])
@given(
    data=st.binary(max_size=60)
    | st.lists(st.sampled_from([0, 1, 2, 2**31 - 1, -1]), max_size=8).map(lambda ns: pack(f">{len(ns)}i", *ns))
)
def test_a_bloom_filter_is_read_or_refused_without_taking_more_memory_than_it_has_bytes(kind: str, data: bytes) -> None:
    with contextlib.suppress(CorruptTableError):
        assert BloomFilter.parse(b64encode(data), kind).size_bits <= 8 * len(data)


@given(raw)
def test_json_gives_an_object_or_a_value_error(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(JsonObject.parse(data).fields, dict)


@given(st.dictionaries(st.sampled_from(["n", "t"]), values))
def test_a_field_is_what_was_asked_for_or_a_value_error(fields: dict[str, Any]) -> None:
    found = JsonObject(fields)
    with contextlib.suppress(ValueError):
        assert abs(found.whole("n")) <= 2**63
    with contextlib.suppress(ValueError):
        assert abs(found.number("n")) < float("inf")
    with contextlib.suppress(ValueError):
        assert isinstance(found.text("t"), str)


@given(st.text(max_size=60) | st.text("./\\%\0a=-_", max_size=30))
def test_a_name_in_the_table_never_leads_out_of_it(name: str) -> None:
    parse_file_name(name)
    with contextlib.suppress(CorruptTableError):
        marker = parse_marker(name, "m")
        checked(f"{marker.partition}/x" if marker.partition else "x")
    with contextlib.suppress(StorageError):
        assert not {"", ".", ".."} & set(checked(name).split("/"))


@given(raw | st.lists(st.text(max_size=30)).map(lambda lines: "\n".join(lines).encode("utf-8", "surrogatepass")))
def test_a_batch_of_markers_is_read_as_far_as_it_goes_or_refused(data: bytes) -> None:
    with contextlib.suppress(CorruptTableError):
        parse_batch(data, "b")


attributes = st.dictionaries(
    st.sampled_from(["key", "ownerName", "leaseDuration", "recordVersionNumber", "isReleased", "token", "writer"]),
    st.dictionaries(st.sampled_from(["S", "N", "B", "NULL"]), st.text(max_size=8), max_size=1),
)


@given(attributes)
def test_an_item_of_another_lock_client_is_read(item: dict[str, dict[str, str]]) -> None:
    with contextlib.suppress(LockError):
        assert LockItem.parse(item).lease_s >= 0


@pytest.mark.parametrize("suffix", [".toml", ".properties"])
@given(data=raw | st.text(max_size=80).map(lambda t: t.encode("utf-8", "surrogatepass")) | st.just(b"a." * 3_000 + b"b = 1"))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_settings_file_is_read_or_refused(suffix: str, data: bytes, tmp_path: Path) -> None:
    file = tmp_path / f"settings{suffix}"
    file.write_bytes(data)
    with contextlib.suppress(SettingsError):
        read_settings_file(file)
    with contextlib.suppress(SettingsError):
        Settings.resolve(file=file)


@given(
    st.dictionaries(st.sampled_from(["lock.wait_s", "lock.provider", "redis.wait_replicas", "write.batch_rows", "x"]), scalars)
)
def test_an_option_of_any_kind_is_taken_or_refused(options: dict[str, object]) -> None:
    with contextlib.suppress(SettingsError):
        Settings.resolve(options)


uris = st.sampled_from(["redis://", "rediss://", "redis+sentinel://", "redis+cluster://", "zookeeper://"]).flatmap(
    lambda scheme: (st.text(max_size=30) | st.text("abc123:/@,?&=%[]#.-_\t ", max_size=40)).map(lambda rest: scheme + rest)
)


@given(uris)
@settings(max_examples=200)
def test_the_uri_of_a_lock_service_is_understood_or_refused(uri: str) -> None:
    with contextlib.suppress(SettingsError):
        if uri.startswith("zookeeper"):
            parse_place(uri, MemoryStorage())
        else:
            RedisAddress.parse(uri)
