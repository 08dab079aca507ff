"""The blocks of a log file, as Hudi writes them (`HoodieLogFormat`, format version 1). All numbers are big-endian."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import IO

from lakelock.errors import CorruptTableError
from lakelock.table.damage import RESTORE_OR_ROLL_BACK

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


class Header(IntEnum):
    """The entries of a block's header that readers look at, under Hudi's numbers."""

    INSTANT = 0
    TARGET_INSTANT = 1
    SCHEMA = 2
    COMMAND = 3
    COMPACTED_INSTANTS = 4
    IS_PARTIAL = 7


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
        return self.header.get(Header.INSTANT, "")


def blocks_of(file: IO[bytes], size_bytes: int, name: str) -> Iterator[Block]:
    """The blocks of a log file of this size, one at a time, in their order.

    `CorruptTableError` for a torn block. Java skips such a block as the rest of a failed write; here only files of commits are
    read, and those are whole, so rows would be missing without a word.
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


def _torn(source: str, why: str) -> CorruptTableError:
    return CorruptTableError(f"the log file {source} cannot be read: {why}", hint=_HINT, file=source.rpartition(" at ")[0])
