"""HFiles of version 3, in which Hudi's metadata table keeps its records: keys in ascending order, each with a value.

All numbers are big-endian. A file is blocks of entries, an index of the blocks, an index of other blocks, the file info
(names and values), and a trailer of 4096 bytes that says where these are. Each block has a header of 33 bytes. Its
payload is followed by room for checksums: four bytes for each 16384 bytes begun. hudi-rs counts on this room, Java does not.
In a file of Hudi 1.0, which HBase writes, the checksums are there; they are not checked, as GZIP has one itself.

Keys are in the order of their bytes, but Java puts them in the order of its strings: above U+E000 the two differ, and Java does
not find such keys itself. Files of either order are read.
"""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import IO

from lakelock.errors import RESTORE_OR_ROLL_BACK, CorruptTableError

Entry = tuple[bytes, bytes]
"""A key and its value."""

SCHEMA_INFO = "schema"
"""The name in the file info under which Hudi keeps the Avro schema of the values."""
MIN_KEY_INFO, MAX_KEY_INFO = "minRecordKey", "maxRecordKey"
"""The names in the file info under which a base file has its first and last key."""

_TRAILER_BYTES = 4096
_TAIL_BYTES = 64 * 1024
_CHUNK_BYTES = 16 * 1024
_BLOCK_BYTES = 1024 * 1024
MOST_KEY_BYTES = 32_767
"""No entry has a longer key: its length takes two bytes."""
_MOST_OF_A_CHARACTER = 4
_GZIP, _PLAIN = 1, 2
_DATA, _INDEX, _INFO, _TRAILER = b"DATABLK*", b"IDXROOT2", b"FILEINF2", b'TRABLK"$'
_HEADER = struct.Struct(">8siiqbii")
_SUFFIX = b"\0" + struct.pack(">q", 2**63 - 1) + b"\x04"
"""Behind each key: no column family, the latest time, and that the entry was put."""
_COMPARATOR = b"org.apache.hudi.io.storage.HoodieHBaseKVComparator"
_PROTOBUF = b"PBUF"


@dataclass(frozen=True)
class HFile:
    """What is in a file: its entries in their order, and its file info."""

    entries: tuple[Entry, ...] = field(repr=False)
    info: Mapping[str, bytes] = field(repr=False)


def read_hfile(data: bytes, source: str) -> HFile:
    """The content of a whole file; `CorruptTableError` that names `source` for anything but one with ascending keys."""
    try:
        return _read(data)
    except (ValueError, IndexError, OverflowError, struct.error, zlib.error) as error:
        raise _damaged(source, error) from error


def is_too_long(key: str) -> bool:
    """Whether no entry can have this key."""
    return len(key) > MOST_KEY_BYTES // _MOST_OF_A_CHARACTER and len(key.encode()) > MOST_KEY_BYTES


def _damaged(source: str, error: Exception) -> CorruptTableError:
    return CorruptTableError(
        f"{source} is no HFile that lakelock can read: {error}",
        hint=f"the file was torn or altered; {RESTORE_OR_ROLL_BACK}",
        file=source,
    )


def find_in_hfile(source: IO[bytes], keys: Collection[bytes], name: str) -> HFile:
    """The entries of these keys, and the file info; of a large file only the blocks are read that may have one of them.

    `CorruptTableError` that names the file for anything but an HFile with one level of index.
    """
    try:
        return _found(source, sorted(keys))
    except (ValueError, IndexError, OverflowError, struct.error, zlib.error) as error:
        raise _damaged(name, error) from error


def _found(source: IO[bytes], keys: Sequence[bytes]) -> HFile:
    size = source.seek(0, io.SEEK_END)
    source.seek(max(0, size - _TAIL_BYTES))
    tail = source.read()
    trailer = _trailer(tail)
    gzipped, index_at = _is_gzipped(trailer), trailer.get(2, 0)
    if trailer.get(8, 1) != 1:
        raise ValueError(f"its index has {trailer[8]} levels")
    if index_at < size - len(tail):
        source.seek(index_at)
        tail = source.read(size - index_at)
    start = size - len(tail)
    info, _ = _block(tail, trailer.get(1, 0) - start, gzipped, _INFO)
    index, _ = _block(tail, index_at - start, gzipped, _INDEX)
    blocks = list(_index_entries(index))
    firsts = [key for key, _, _ in blocks]
    wanted: dict[int, set[bytes]] = {}
    for key in keys:
        ends = {bisect_right(firsts, key)}
        if max(key, default=0) >= _FROM_E000:
            ends.add(bisect_right(firsts, _as_in_java(key), key=_as_in_java))
        for end in ends - {0}:
            wanted.setdefault(end - 1, set()).add(key)
    entries: list[Entry] = []
    for number, mine in sorted(wanted.items()):
        _, at, length = blocks[number]
        if not 0 <= at <= at + length <= size:
            raise ValueError("its index names a block that is not in it")
        source.seek(at)
        payload, _ = _block(source.read(length), 0, gzipped, _DATA)
        entries += (entry for entry in _entries(payload) if entry[0] in mine)
    return HFile(tuple(entries), _info(info))


_FROM_E000 = 0xEE
"""The least byte of UTF-8 with which a character from U+E000 on begins."""


def _as_in_java(key: bytes) -> bytes:
    """What is in the order of Java's strings, which are compared by units of UTF-16."""
    return key.decode("utf-8", "replace").encode("utf-16-be")


def _ascend(keys: Iterable[bytes]) -> bool:
    return all(key < later for key, later in pairwise(keys))


def _index_entries(payload: bytes) -> Iterator[tuple[bytes, int, int]]:
    """For each block its first key, where it is, and its size with its header."""
    at = 0
    while at < len(payload):
        offset, size = struct.unpack_from(">qi", payload, at)
        length, start = _hadoop_int(payload, at + 12)
        (key,) = struct.unpack_from(">h", payload, start)
        at = start + length
        if size < 0 or not 0 <= key <= length - 2 or at > len(payload):
            raise ValueError("its index is cut off")
        yield payload[start + 2 : start + 2 + key], offset, size


def _is_gzipped(trailer: Mapping[int, int]) -> bool:
    found = {_GZIP: True, _PLAIN: False}.get(trailer.get(12, _PLAIN))
    if found is None:
        raise ValueError(f"its compression is number {trailer[12]}")
    return found


def _read(data: bytes) -> HFile:
    trailer = _trailer(data)
    gzipped = _is_gzipped(trailer)
    info, _ = _block(data, trailer.get(1, 0), gzipped, _INFO)
    found = _info(info)
    if "MAX_TAGS_LEN" in found:
        raise ValueError("its entries have tags")
    entries: list[Entry] = []
    at, end = 0, trailer.get(2, 0)
    while at < end:
        payload, at = _block(data, at, gzipped)
        entries.extend(_entries(payload))
    keys = [key for key, _ in entries]
    if not _ascend(keys) and not _ascend(map(_as_in_java, keys)):
        raise ValueError("its keys do not ascend")
    if len(entries) != trailer.get(7, 0):
        raise ValueError(f"it has {len(entries)} entries, and its trailer says {trailer.get(7, 0)}")
    return HFile(tuple(entries), found)


def _trailer(data: bytes) -> dict[int, int]:
    """The numbers in the trailer, under their field numbers in Hudi's `TrailerProto`."""
    at = len(data) - _TRAILER_BYTES
    if at < 0 or not data.startswith(_TRAILER, at):
        raise ValueError("it has no trailer")
    # The byte before is the minor version, which differs between the writers.
    if data[-3:] != b"\0\0\x03":
        raise ValueError(f"its version is {int.from_bytes(data[-3:], 'big')}, and 3 is known")
    length, start = _varint(data, at + len(_TRAILER))
    return {number: value for number, value in _fields(data[start : start + length]) if isinstance(value, int)}


def _block(data: bytes, at: int, gzipped: bool, expected: bytes = b"") -> tuple[bytes, int]:
    """The payload of the block there, empty for one without entries, and where the block ends."""
    magic, size, plain, _, _, _, size_without_checksums = _HEADER.unpack_from(data, at)
    start, end = at + _HEADER.size, at + _HEADER.size + size
    if size < 0 or plain < 0 or not _HEADER.size <= size_without_checksums <= _HEADER.size + size or end > len(data):
        raise ValueError(f"the sizes of its block at byte {at} are wrong")
    if expected and magic != expected:
        raise ValueError(f"the block at byte {at} is {magic!r}, not {expected!r}")
    if not expected and magic != _DATA:
        if magic.startswith(b"DATABLK"):
            raise ValueError(f"its blocks are encoded ({magic!r})")
        return b"", end
    payload = data[start : at + size_without_checksums]
    if gzipped and payload:
        payload = zlib.decompressobj(31).decompress(payload, plain + 1)
    if len(payload) != plain:
        raise ValueError(f"its block at byte {at} has another length than it says")
    return payload, end


def _entries(payload: bytes) -> Iterator[Entry]:
    at = 0
    while at < len(payload):
        whole, value = struct.unpack_from(">ii", payload, at)
        (key,) = struct.unpack_from(">h", payload, at + 8)
        start = at + 10
        if key < 0 or value < 0 or whole != 2 + key + len(_SUFFIX) or payload[start + key + 9] != _SUFFIX[-1]:
            raise ValueError(f"an entry is not one that Hudi puts, {at} bytes into its block")
        there = start + key + len(_SUFFIX)
        _, end = _hadoop_int(payload, there + value)
        if end > len(payload):
            raise ValueError("an entry is longer than its block")
        yield payload[start : start + key], payload[there : there + value]
        at = end


def _info(payload: bytes) -> dict[str, bytes]:
    if not payload.startswith(_PROTOBUF):
        raise ValueError("its file info is not in Protocol Buffers")
    length, start = _varint(payload, len(_PROTOBUF))
    found: dict[str, bytes] = {}
    for _, pair in _fields(payload[start : start + length]):
        both = dict(_fields(pair)) if isinstance(pair, bytes) else {}
        name, value = both.get(1, b""), both.get(2, b"")
        if isinstance(name, int) or isinstance(value, int):
            raise ValueError("its file info has a number where a name or value belongs")
        found[name.decode()] = value
    return found


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message in Protocol Buffers: numbers and bytes, which are all that HFiles have."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        size, at = _varint(data, at)
        if tag & 7 == 0:
            yield tag >> 3, size
        elif tag & 7 == 2 and at + size <= len(data):
            yield tag >> 3, data[at : at + size]
            at += size
        else:
            raise ValueError("a message of it is cut off")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number of it is too long")


def _hadoop_int(data: bytes, at: int) -> tuple[int, int]:
    """A number as Hadoop's `WritableUtils.writeVLong` has it, and where it ends."""
    (first,) = struct.unpack_from(">b", data, at)
    if first >= -112:
        return first, at + 1
    size = -112 - first if first >= -120 else -120 - first
    value = int.from_bytes(data[at + 1 : at + 1 + size], "big")
    return (value if first >= -120 else ~value), at + 1 + size


def hfile_bytes(
    entries: Iterable[Entry],
    info: Mapping[str, bytes],
    *,
    created_ms: int,
    gzipped: bool = False,
    block_bytes: int = _BLOCK_BYTES,
) -> bytes:
    """An HFile of these entries, whose keys must ascend by their bytes and be distinct. Its index has one level.

    Equal arguments give equal bytes if it is not compressed, so that a process that finishes a commit for another writes the
    same file: releases of zlib compress differently.
    """
    out, index, payload = bytearray(), [], bytearray()
    first = last = b""
    count = plain = keys = values = last_block = 0

    def end_block() -> None:
        nonlocal last_block
        last_block = len(out)
        out.extend(_made(_DATA, bytes(payload), gzipped))
        index.append((first, last_block, len(out) - last_block))
        payload.clear()

    for key, value in entries:
        if count and key <= last:
            raise ValueError(f"keys do not ascend: {last!r}, {key!r}")
        if len(key) > MOST_KEY_BYTES:
            raise ValueError(f"a key of {len(key)} bytes is longer than {MOST_KEY_BYTES}")
        entry = struct.pack(">iih", 2 + len(key) + len(_SUFFIX), len(value), len(key)) + key + _SUFFIX + value + b"\0"
        if payload and len(payload) + len(entry) > block_bytes:
            end_block()
        if not payload:
            first = key
        payload += entry
        count, plain, keys, values, last = count + 1, plain + len(entry), keys + len(key), values + len(value), key
    if payload:
        end_block()
    index_at = len(out)
    out += _made(_INDEX, b"".join(_indexed(*block) for block in index), gzipped) + _made(_INDEX, b"", gzipped)
    info_at = len(out)
    pairs = {
        "KEY_VALUE_VERSION": struct.pack(">i", 1),
        "MAX_MEMSTORE_TS_KEY": bytes(8),
        "hfile.AVG_KEY_LEN": struct.pack(">i", keys // max(count, 1)),
        "hfile.AVG_VALUE_LEN": struct.pack(">i", values // max(count, 1)),
        "hfile.CREATE_TIME_TS": struct.pack(">q", created_ms),
        "hfile.LASTKEY": _sized(last) if count else b"",
        **info,
    }
    message = b"".join(_field(1, _field(1, name.encode()) + _field(2, value)) for name, value in sorted(pairs.items()))
    out += _made(_INFO, _PROTOBUF + _number(len(message)) + message, gzipped)
    numbers = {1: info_at, 2: index_at, 3: plain, 5: len(index), 6: 0, 7: count, 8: 1, 9: 0, 10: last_block}
    trailer = b"".join(_number(number << 3) + _number(value) for number, value in numbers.items())
    trailer += _field(11, _COMPARATOR) + _number(12 << 3) + _number(_GZIP if gzipped else _PLAIN)
    head = _TRAILER + _number(len(trailer)) + trailer
    out += head + bytes(_TRAILER_BYTES - 4 - len(head)) + struct.pack(">i", 3)
    return bytes(out)


def _made(magic: bytes, payload: bytes, gzipped: bool) -> bytes:
    """A block, with zeros in the place of its checksums."""
    stored = gzip.compress(payload, 6, mtime=0) if gzipped else payload
    without = _HEADER.size + len(stored)
    checksums = 4
    # Readers count the chunks of all bytes, those of the checksums among them.
    while 4 * -(-(without + checksums) // _CHUNK_BYTES) > checksums:
        checksums += 4
    header = _HEADER.pack(magic, len(stored) + checksums, len(payload), -1, 0, _CHUNK_BYTES, without)
    return header + stored + bytes(checksums)


def _indexed(key: bytes, at: int, size: int) -> bytes:
    sized = _sized(key)
    size_bytes = (len(sized).bit_length() + 7) // 8
    # As `_hadoop_int` reads it.
    length = b"" if len(sized) <= 127 else struct.pack(">b", -112 - size_bytes)
    return struct.pack(">qi", at, size) + length + len(sized).to_bytes(size_bytes, "big") + sized


def _sized(key: bytes) -> bytes:
    return struct.pack(">h", len(key)) + key


def _number(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, value: bytes) -> bytes:
    return _number(number << 3 | 2) + _number(len(value)) + value
