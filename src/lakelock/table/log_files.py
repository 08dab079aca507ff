"""Log files of merge-on-read tables: their names, their blocks, and the rows and deletes in the blocks.

Names are `.<file id>_<instant>.log.<version>_<write token>`, as Hudi 1.x has them. Blocks are those of `HoodieLogFormat`
(format version 1): blocks of Avro rows (`HoodieAvroDataBlock`, version 3) hold the number of rows, and each row behind
its length; delete blocks (`HoodieDeleteBlock`, version 3 of its content) hold the deleted keys, and since when by event
time. All numbers are big-endian. A block may name the positions of its rows in the base file, in their order.
"""

from __future__ import annotations

import base64
import io
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import IO, Any, NamedTuple

import fastavro
import numpy as np
import numpy.typing as npt

from lakelock.errors import RESTORE_OR_ROLL_BACK, CorruptTableError, TableError
from lakelock.table.avro import checked_schema
from lakelock.table.layout import FileGroupId, in_partition

_NAME = re.compile(r"\.([^_/]+)_([0-9]{17}(?:[0-9]{6})?|[0-9]{14})\.log\.([0-9]{1,9})(?:_([^_/]+))?", re.ASCII).fullmatch


class LogFile(NamedTuple):
    """One log file; since table version 8 `instant` is that of the commit which wrote it. Their order is that of reading."""

    partition: str
    file_id: str
    instant: str
    version: int
    token: str
    size_bytes: int = 0

    @classmethod
    def parse(cls, path: str, size_bytes: int = 0) -> LogFile | None:
        """The log file that a relative path names, None for anything else, such as a log of changes (`.cdc`)."""
        partition, _, name = path.rpartition("/")
        match = _NAME(name)
        return cls(partition, match[1], match[2], int(match[3]), match[4] or "", size_bytes) if match else None

    @property
    def name(self) -> str:
        token = f"_{self.token}" if self.token else ""
        return f".{self.file_id}_{self.instant}.log.{self.version}{token}"

    @property
    def key(self) -> str:
        """Where the file is; also its relative path in commit metadata."""
        return in_partition(self.partition, self.name)

    @property
    def group(self) -> FileGroupId:
        return FileGroupId(self.partition, self.file_id)


MAGIC = b"#HUDI#"
FORMAT = 1
_MOST_ENTRIES = 64
_HINT = f"the file was torn or altered; {RESTORE_OR_ROLL_BACK}"


class BlockKind(IntEnum):
    """What a block holds, under Hudi's numbers."""

    COMMAND = 0
    DELETE = 1
    CORRUPT = 2
    AVRO = 3
    HFILE = 4
    PARQUET = 5
    CDC = 6


class BlockHeader(IntEnum):
    """The entries of a block's header that readers look at, under Hudi's numbers."""

    INSTANT = 0
    TARGET_INSTANT = 1
    SCHEMA = 2
    COMMAND = 3
    COMPACTED_INSTANTS = 4
    RECORD_POSITIONS = 5
    IS_PARTIAL = 7
    BASE_INSTANT = 8


@dataclass(frozen=True)
class Block:
    """One block. `source` names its file and place for messages."""

    kind: BlockKind
    header: Mapping[int, str]
    content: bytes = field(repr=False)
    source: str = ""

    @property
    def instant(self) -> str:
        """The instant that wrote it."""
        return self.header.get(BlockHeader.INSTANT, "")


def blocks_of(file: IO[bytes], size_bytes: int, name: str) -> Iterator[Block]:
    """The blocks of a log file of this size, one at a time, in their order.

    `CorruptTableError` for a torn block. Java skips it as the remains of a failed write. Here only files of commits are read,
    which are whole, so to skip a block would lose rows silently.
    """
    at = 0
    while at < size_bytes:
        source = f"{name} at byte {at}"
        (length,) = struct.unpack(">q", _exactly(file, len(MAGIC) + 8, source, MAGIC))
        at += len(MAGIC) + 8
        if not 0 < length <= size_bytes - at:
            raise _torn(source, f"its block of {length} bytes does not fit into the file")
        yield _block(_exactly(file, length, source), source)
        at += length


def _exactly(file: IO[bytes], count: int, source: str, start: bytes = b"") -> bytes:
    """The next bytes without the `start` that they must have."""
    data = file.read(count)
    if len(data) != count or not data.startswith(start):
        raise _torn(source, "there is no whole block")
    return data[len(start) :]


def _block(data: bytes, source: str) -> Block:
    """The block in these bytes, which follow its length and end with its length once more."""
    try:
        version, kind = struct.unpack_from(">ii", data)
        if version != FORMAT:
            raise ValueError(f"its format is {version}, and {FORMAT} is known")
        header, at = _entries(data, 8)
        (length,) = struct.unpack_from(">q", data, at)
        content = data[at + 8 : at + 8 + length]
        _, end = _entries(data, at + 8 + length)
        (whole,) = struct.unpack_from(">q", data, end)
        if length != len(content) or end + 8 != len(data) or whole != len(MAGIC) + len(data):
            raise ValueError("its lengths contradict each other")
        return Block(BlockKind(kind), header, content, source)
    except (ValueError, struct.error) as error:
        raise _torn(source, str(error)) from error


def _entries(data: bytes, at: int) -> tuple[dict[int, str], int]:
    """The entries of a header or footer, by their numbers, and where they end."""
    (count,) = struct.unpack_from(">i", data, at)
    if not 0 <= count <= _MOST_ENTRIES:
        raise ValueError(f"a header has {count} entries")
    at += 4
    found: dict[int, str] = {}
    for _ in range(count):
        number, length = struct.unpack_from(">ii", data, at)
        at += 8
        if not 0 <= length <= len(data) - at:
            raise ValueError("an entry of a header is longer than the block")
        found[number] = data[at : at + length].decode("utf-8")
        at += length
    return found, at


def block_bytes(kind: BlockKind, header: Mapping[int, str], content: bytes) -> bytes:
    """One block of a log file, as `blocks_of` reads it."""
    entries = struct.pack(">i", len(header))
    for number, text in header.items():
        entry = text.encode()
        entries += struct.pack(">ii", number, len(entry)) + entry
    body = struct.pack(">ii", FORMAT, kind) + entries + struct.pack(">q", len(content)) + content + struct.pack(">i", 0)
    return MAGIC + struct.pack(">q", len(body) + 8) + body + struct.pack(">q", len(MAGIC) + len(body) + 8)


_PLAIN_COOKIE, _RUNS_COOKIE, _FIRST_BUCKET = 12346, 12347, struct.pack("<QI", 1, 0)
_CONTAINER, _MOST_IN_ARRAY, _LEAST_WITH_OFFSETS = 1 << 16, 4096, 4


def positions_text(positions: npt.NDArray[Any]) -> str:
    """Positions in a base file, ascending and distinct, as the header `RECORD_POSITIONS` has them.

    That is Base64 of a Roaring bitmap in the portable form for numbers of 64 bits (`Roaring64NavigableMap.serializePortable`
    after `runOptimize`), byte by byte as Java writes it.
    """
    highs, starts = np.unique(positions >> 16, return_index=True)
    parts = [_container(values) for values in np.split((positions & 0xFFFF).astype("<u2"), starts[1:])]
    runs, sizes = np.array([is_run for _, is_run, _ in parts]), [len(data) for _, _, data in parts]
    head = struct.pack("<II", _PLAIN_COOKIE, len(parts))
    if runs.any():
        head = struct.pack("<I", _RUNS_COOKIE | (len(parts) - 1) << 16) + np.packbits(runs, bitorder="little").tobytes()
    head += np.column_stack([highs, [count - 1 for count, _, _ in parts]]).astype("<u2").tobytes()
    if not runs.any() or len(parts) >= _LEAST_WITH_OFFSETS:
        head += (len(head) + 4 * len(parts) + np.cumsum([0, *sizes[:-1]])).astype("<u4").tobytes()
    return base64.b64encode(_FIRST_BUCKET + head + b"".join(data for *_, data in parts)).decode()


def _container(values: npt.NDArray[Any]) -> tuple[int, bool, bytes]:
    """How many numbers of 16 bits these are, whether they are stored as runs, and the bytes: whatever is smallest."""
    breaks = np.flatnonzero(np.diff(values.astype(np.int32)) != 1)
    first, last = values[np.concatenate([[0], breaks + 1])], values[np.concatenate([breaks, [len(values) - 1]])]
    if 2 + 4 * len(first) < min(2 * len(values), _CONTAINER // 8):
        runs = np.column_stack([first, last - first]).astype("<u2")
        return len(values), True, struct.pack("<H", len(first)) + runs.tobytes()
    if len(values) <= _MOST_IN_ARRAY:
        return len(values), False, values.tobytes()
    flags = np.zeros(_CONTAINER, np.bool_)
    flags[values] = True
    return len(values), False, np.packbits(flags, bitorder="little").tobytes()


def positions_in(block: Block, most: int) -> npt.NDArray[np.int64] | None:
    """The positions that a block names of its rows, ascending and distinct; None if it names none, or more than `most`.

    They refer to the base file of the instant `BASE_INSTANT`. Damaged positions count as none: a block that also names keys can
    be read without them.
    """
    try:
        return _positions(base64.b64decode(block.header.get(BlockHeader.RECORD_POSITIONS, ""), validate=True), most)
    except (ValueError, struct.error):
        return None


def _positions(data: bytes, most: int) -> npt.NDArray[np.int64]:
    if not data.startswith(_FIRST_BUCKET):
        raise ValueError("it has numbers of more than 32 bits, or none")
    at = len(_FIRST_BUCKET)
    (cookie,) = struct.unpack_from("<I", data, at)
    if cookie == _PLAIN_COOKIE:
        (count,), at = struct.unpack_from("<I", data, at + 4), at + 8
        runs = np.zeros(min(count, _CONTAINER), np.uint8)
    elif cookie & 0xFFFF == _RUNS_COOKIE:
        count, at = (cookie >> 16) + 1, at + 4
        runs = np.unpackbits(np.frombuffer(data, np.uint8, (count + 7) // 8, at), bitorder="little")
        at += (count + 7) // 8
    else:
        raise ValueError("it is no Roaring bitmap")
    if not 0 < count <= _CONTAINER:
        raise ValueError(f"it has {count} containers")
    heads = np.frombuffer(data, "<u2", 2 * count, at).reshape(count, 2).astype(np.int64)
    if int(heads[:, 1].sum()) + count > most:
        raise ValueError(f"it has more than {most} numbers")
    at += 4 * count + (4 * count if cookie == _PLAIN_COOKIE or count >= _LEAST_WITH_OFFSETS else 0)
    found, start = np.empty(int(heads[:, 1].sum()) + count, np.int64), 0
    for (high, less), is_run in zip(heads.tolist(), runs.tolist(), strict=False):
        values, at = _contained(data, at, less + 1, is_run=bool(is_run))
        np.add(values, high << 16, out=found[start : start + less + 1])
        start += less + 1
    if at != len(data) or (np.diff(found) <= 0).any():
        raise ValueError("its numbers do not ascend, or do not fill it")
    return found


def _contained(data: bytes, at: int, count: int, *, is_run: bool) -> tuple[npt.NDArray[np.int64], int]:
    """The numbers of a container that has so many, and where it ends."""
    if is_run:
        (runs,) = struct.unpack_from("<H", data, at)
        first, more = np.frombuffer(data, "<u2", 2 * runs, at + 2).reshape(runs, 2).astype(np.int64).T
        if int(more.sum()) + runs != count:
            raise ValueError("the runs of a container have other lengths than it says")
        values = np.repeat(first - np.cumsum(more + 1) + more + 1, more + 1) + np.arange(count)
        at += 2 + 4 * runs
    elif count <= _MOST_IN_ARRAY:
        values, at = np.frombuffer(data, "<u2", count, at).astype(np.int64), at + 2 * count
    else:
        flags = np.unpackbits(np.frombuffer(data, np.uint8, _CONTAINER // 8, at), bitorder="little")
        values, at = np.flatnonzero(flags.view(np.bool_)), at + _CONTAINER // 8
    if len(values) != count or values[-1] >= _CONTAINER:
        raise ValueError("a container has other numbers than it says")
    return values, at


def _torn(source: str, why: str) -> CorruptTableError:
    return CorruptTableError(f"the log file {source} cannot be read: {why}", hint=_HINT, file=source.rpartition(" at ")[0])


def schema_of(block: Block) -> tuple[dict[str, Any], Any]:
    """The schema in a block's header, as JSON and parsed; `CorruptTableError` for one that no writer would make."""
    return checked_schema(block.header.get(BlockHeader.SCHEMA, ""), block.source)


def records_in(block: Block, parsed: Any) -> Iterator[dict[str, Any]]:
    """The rows, read by the parsed schema; `CorruptTableError` for anything but what it says."""
    content = block.content
    stream = io.BytesIO(content)
    # fastavro raises whatever the bytes make it stumble over.
    try:
        version, count = struct.unpack(">ii", stream.read(8))
        if version not in (1, 2, 3):
            raise ValueError(f"its version is {version}, and 3 is known")
        for _ in range(count):
            (length,) = struct.unpack(">i", stream.read(4))
            end = stream.tell() + length
            record = fastavro.schemaless_reader(stream, parsed, None)
            if stream.tell() != end or not isinstance(record, dict):
                raise ValueError("a row has another length than it says")
            yield record
    except GeneratorExit:
        raise
    except Exception as error:
        raise CorruptTableError(f"{block.source} cannot be decoded: {error}", hint=_HINT, file=block.source) from error
    if stream.tell() != len(content):
        raise CorruptTableError(f"{block.source} holds more than its rows", hint=_HINT, file=block.source)


_VERSION = 3
_VALUES = {
    "BooleanWrapper": "boolean",
    "IntWrapper": "int",
    "LongWrapper": "long",
    "FloatWrapper": "float",
    "DoubleWrapper": "double",
    "BytesWrapper": "bytes",
    "StringWrapper": "string",
    "DateWrapper": "int",
    "DecimalWrapper": {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15},
    "TimeMicrosWrapper": "long",
    "TimestampMicrosWrapper": "long",
}
"""How an ordering value is wrapped, in the order of Hudi's union (`HoodieDeleteRecordList.avsc`)."""
_WRAPPERS = [{"type": "record", "name": name, "fields": [{"name": "value", "type": value}]} for name, value in _VALUES.items()]
_LIST = fastavro.parse_schema(
    {
        "type": "array",
        "items": {
            "type": "record",
            "name": "HoodieDeleteRecord",
            "fields": [
                {"name": "recordKey", "type": ["null", "string"]},
                {"name": "partitionPath", "type": ["null", "string"]},
                {"name": "orderingVal", "type": ["null", *_WRAPPERS]},
            ],
        },
    }
)


def deletes_in(block: Block) -> Iterator[tuple[str, Any]]:
    """The record keys that a block deletes, each with its value by event time, None for a delete that always counts.

    `TableError` for the Java objects that Hudi before 0.14 wrote there.
    """
    try:
        version, length = struct.unpack_from(">ii", block.content)
    except struct.error as error:
        raise _damaged(block, error) from error
    if version != _VERSION:
        raise TableError(
            f"{block.source}: its deletes have the old format {version}, and lakelock reads {_VERSION}",
            hint="compact the table with Hudi 1.1 or newer: call run_compaction(op => 'scheduleAndExecute', path => '…')",
        )
    stream = io.BytesIO(block.content[8:])
    # fastavro raises whatever the bytes make it stumble over.
    try:
        found: Any = fastavro.schemaless_reader(stream, _LIST, None, return_record_name=True)
    except Exception as error:
        raise _damaged(block, error) from error
    if stream.tell() != length or length != len(block.content) - 8:
        raise _damaged(block, "it holds more or less than its deletes")
    for record in found:
        if record["recordKey"] is None:
            raise _damaged(block, "a delete has no record key")
        yield record["recordKey"], _order(record["orderingVal"])


def deletes_bytes(keys: Iterable[str], partition: str) -> bytes:
    """The content of a block that deletes these keys of a partition unconditionally, as `deletes_in` reads it."""
    order = ("IntWrapper", {"value": 0})
    items = [{"recordKey": key, "partitionPath": partition, "orderingVal": order} for key in keys]
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, _LIST, items)
    return struct.pack(">ii", _VERSION, stream.tell()) + stream.getvalue()


def _order(wrapped: Any) -> Any:
    """The value in a wrapper. Hudi's value for none is the number 0 as an `int`."""
    if wrapped is None:
        return None
    name, fields = wrapped
    return None if name.rpartition(".")[2] == "IntWrapper" and fields["value"] == 0 else fields["value"]


def _damaged(block: Block, why: object) -> CorruptTableError:
    return CorruptTableError(f"the deletes of {block.source} cannot be read: {why}", hint=_HINT, file=block.source)
