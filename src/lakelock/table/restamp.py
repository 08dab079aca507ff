"""Copying a base file for another instant: new values in two meta columns, all other column chunks byte for byte.

Nothing but the dictionaries of `_hoodie_commit_time` and `_hoodie_file_name` is decoded, so a copy costs little more than
reading and writing its bytes. Memory is bounded by the footer, a chunk of one of these columns and a buffer. Format:
`parquet.thrift` of Apache Parquet; numbers below are its field ids.

The order of the chunks stays. parquet-java assigns a row group to a split by the offset of its first column, so to move
a first column to the end of the file would lose rows without an error.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO

import pyarrow as pa

from lakelock.table.base_files import Stamp
from lakelock.table.parquet_footers import BOUNDS, Reader, Struct, drop_bounds, encoded, range_of_chunk
from lakelock.table.schema import COMMIT_TIME, FILE_NAME

_MAGIC = b"PAR1"
_TAIL_BYTES = 1 << 16
_BUFFER_BYTES = 8 << 20
_CODECS = {0: None, 1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_PLAIN, _PLAIN_DICTIONARY, _RLE_DICTIONARY = 0, 2, 8


class CannotRestamp(Exception):
    """The file is not one that can be spliced, so its rows must be written anew. What was copied of it is of no use."""


@dataclass(frozen=True)
class _Values:
    """In one column: what becomes of a value, and whether no other value occurs in the column."""

    old: bytes
    new: bytes
    alone: bool

    def in_dictionary(self, values: bytes) -> bytes:
        """A page of values, each after its length."""
        found, at = [], 0
        while at < len(values):
            end = at + 4 + int.from_bytes(values[at : at + 4], "little")
            if end > len(values):
                raise CannotRestamp("a value is longer than its page")
            found.append(_with_length(self.new) if values[at + 4 : end] == self.old else values[at:end])
            at = end
        return b"".join(found)

    def in_plain_page(self, page: bytes) -> bytes:
        """A plain page with the value replaced. No value holds the zero bytes of a length, so no match spans two."""
        if len(self.old) != len(self.new):
            raise CannotRestamp("values of another length in pages without a dictionary")
        return page.replace(_with_length(self.old), _with_length(self.new))

    def in_bounds(self, statistics: Struct) -> None:
        """Replace the value in the bounds; the new instant is later than all others in the file, as the old one was.

        In a column without other values, a bound that is not the value was truncated: then all bounds are removed.
        """
        for number in BOUNDS:
            if number not in statistics:
                continue
            if statistics[number][1] == self.old:
                statistics[number][1] = self.new
            elif self.alone:
                drop_bounds(statistics)
                return


def restamp(source: IO[bytes], output: IO[bytes], old: Stamp, new: Stamp) -> None:
    """Write the base file `source`, which bears the stamp `old`, as one with the stamp `new`.

    The rows that `old` wrote get the new instant and keep their sequence numbers; all rows get the new file name.
    `CannotRestamp` for files that are not understood in every detail, and unless the new instant is later.
    """
    if not old.instant < new.instant or len(old.instant) != len(new.instant):
        raise CannotRestamp("the new instant must be the later one, or bounds would be wrong")
    values = {
        COMMIT_TIME.encode(): _Values(old.instant.encode(), new.instant.encode(), alone=False),
        FILE_NAME.encode(): _Values(old.file_name.encode(), new.file_name.encode(), alone=True),
    }
    try:
        _copy(source, output, _read_footer(source), values)
    except (ValueError, KeyError, IndexError, TypeError, pa.ArrowException) as error:
        raise CannotRestamp(f"{old.file_name}: {error}") from error


def _read_footer(source: IO[bytes]) -> Struct:
    size = source.seek(0, 2)
    tail = _read(source, max(0, size - _TAIL_BYTES), min(size, _TAIL_BYTES))
    if tail[-4:] != _MAGIC:
        raise CannotRestamp("no Parquet, or an encrypted footer")
    length = int.from_bytes(tail[-8:-4], "little")
    if length + 8 > size:
        raise CannotRestamp("a footer that is longer than the file")
    data = tail[-8 - length : -8] if length + 8 <= len(tail) else _read(source, size - 8 - length, length)
    footer = Reader(data).struct()
    if 8 in footer or 9 in footer:
        raise CannotRestamp("encrypted columns")
    return footer


def _copy(source: IO[bytes], output: IO[bytes], footer: Struct, values: Mapping[bytes, _Values]) -> None:
    output.write(_MAGIC)
    at = len(_MAGIC)
    groups: list[Struct] = footer[4][1][1]
    chunks = [(group, chunk) for group in groups for chunk in group[1][1][1]]
    for group, chunk in sorted(chunks, key=lambda both: range_of_chunk(both[1])[0]):
        if 8 in chunk or 9 in chunk or 3 not in chunk or 1 in chunk:
            raise CannotRestamp("an encrypted column, or one in another file")
        meta: Struct = chunk[3][1]
        start, count = range_of_chunk(chunk)
        wanted = values.get(b".".join(meta[3][1][1]))
        if wanted is None:
            _transfer(source, output, start, count)
            _move(meta, at - start)
        else:
            count = _copy_stamped(_read(source, start, count), output, at, group, meta, wanted)
        for number in (10, 14, 15):  # index pages and bloom filters of Parquet's own, which are not copied
            meta.pop(number, None)
        for number in (4, 5, 6, 7):  # page indexes: offsets and bounds of pages
            chunk.pop(number, None)
        if chunk[2][1]:
            chunk[2][1] += at - start
        at += count
    for group in groups:
        if 5 in group:
            group[5][1] = range_of_chunk(group[1][1][1][0])[0]
    data = encoded(footer)
    output.write(data + struct.pack("<i", len(data)) + _MAGIC)


def _copy_stamped(data: bytes, output: IO[bytes], at: int, group: Struct, meta: Struct, values: _Values) -> int:
    """Write a chunk with other values and correct what the footer says of it; its new length."""
    changed, grown, to_first_page = _stamped(data, meta[4][1], values)
    output.write(changed)
    _resize(group, meta, compressed=len(changed) - len(data), uncompressed=grown)
    if 11 in meta:
        meta[11][1] = at
    meta[9][1] = at + to_first_page
    if 12 in meta:
        values.in_bounds(meta[12][1])
    if len(values.old) != len(values.new):
        meta.pop(16, None)  # size statistics
    return len(changed)


def _move(meta: Struct, by: int) -> None:
    for number in (9, 11):
        if number in meta:
            meta[number][1] += by


def _resize(group: Struct, meta: Struct, *, compressed: int, uncompressed: int) -> None:
    meta[7][1] += compressed
    meta[6][1] += uncompressed
    group[2][1] += uncompressed
    if 6 in group:
        group[6][1] += compressed


def _stamped(data: bytes, codec_id: int, values: _Values) -> tuple[bytes, int, int]:
    """The pages of a chunk with other values; by how much they grow uncompressed; where the first data page begins."""
    name = _CODECS[codec_id]
    codec = None if name is None else pa.Codec(name)
    out, at, grown, to_first_page = bytearray(), 0, 0, -1
    while at < len(data):
        reader = Reader(data, at)
        header = reader.struct()
        head_bytes, before = reader.at - at, header[2][1]
        page = data[reader.at : reader.at + header[3][1]]
        at = reader.at + header[3][1]
        kind = header[1][1]
        if header[3][1] < 0:
            raise CannotRestamp("a page of negative length")
        if kind not in (_DATA_PAGE, _DICTIONARY_PAGE):
            raise CannotRestamp(f"a page of type {kind}")
        if kind == _DATA_PAGE and to_first_page < 0:
            to_first_page = len(out)
        if kind == _DICTIONARY_PAGE or header[5][1][2][1] == _PLAIN:
            plain = bytes(codec.decompress(page, before)) if codec else page
            changed = values.in_dictionary(plain) if kind == _DICTIONARY_PAGE else values.in_plain_page(plain)
            if changed != plain:
                page = bytes(codec.compress(changed)) if codec else changed
                header[2][1], header[3][1] = len(changed), len(page)
        elif header[5][1][2][1] not in (_PLAIN_DICTIONARY, _RLE_DICTIONARY):
            raise CannotRestamp(f"a page in the encoding {header[5][1][2][1]}")
        if kind == _DATA_PAGE and 5 in header[5][1]:
            values.in_bounds(header[5][1][5][1])
        if 4 in header:
            header[4][1] = struct.unpack("<i", struct.pack("<I", zlib.crc32(page)))[0]
        head = encoded(header)
        grown += len(head) - head_bytes + header[2][1] - before
        out += head + page
    if to_first_page < 0:
        raise CannotRestamp("a column chunk without data pages")
    return bytes(out), grown, to_first_page


def _with_length(value: bytes) -> bytes:
    return len(value).to_bytes(4, "little") + value


def _read(source: IO[bytes], start: int, count: int) -> bytes:
    source.seek(start)
    data = source.read(count)
    if len(data) != count:
        raise CannotRestamp("it ends too soon")
    return data


def _transfer(source: IO[bytes], output: IO[bytes], start: int, count: int) -> None:
    """Copy a range, a buffer at a time."""
    while count:
        data = _read(source, start, min(count, _BUFFER_BYTES))
        output.write(data)
        start, count = start + len(data), count - len(data)
