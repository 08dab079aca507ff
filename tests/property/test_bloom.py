"""The vectorised hash against a plain one, and filters that never forget."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakelock.table.parquet_footers import BloomFilter, bit_positions

KEYS = st.lists(st.text(max_size=40), min_size=1, max_size=50)


def murmur(data: bytes, seed: int) -> int:
    """Hadoop's MurmurHash, written down as simply as can be."""
    m, value = 0x5BD1E995, (seed ^ len(data)) & 0xFFFFFFFF
    whole = len(data) // 4 * 4
    for start in range(0, whole, 4):
        block = int.from_bytes(data[start : start + 4], "little") * m & 0xFFFFFFFF
        block = (block ^ block >> 24) * m & 0xFFFFFFFF
        value = value * m & 0xFFFFFFFF ^ block
    rest = len(data) - whole
    for back in range(rest):
        byte = data[len(data) - 1 - back]
        value ^= (byte - 256 if byte > 127 else byte) << 8 * back & 0xFFFFFFFF
    if rest:
        value = value * m & 0xFFFFFFFF
    value = (value ^ value >> 13) * m & 0xFFFFFFFF
    return value ^ value >> 15


@given(KEYS, st.integers(1, 2**31 - 1))
def testbit_positions_are_those_of_the_plain_hash(keys: list[str], size: int) -> None:
    found: dict[int, list[int]] = {}
    for where, chain in bit_positions(pa.array(keys), 4, size):
        for row in chain:
            for index, position in zip(where.tolist(), row.tolist(), strict=True):
                found.setdefault(index, []).append(position)
    for index, key in enumerate(keys):
        value, expected = 0, []
        for _ in range(4):
            value = murmur(key.encode(), value)
            expected.append(abs(value - 2**32 if value >= 2**31 else value) % size)
        assert found[index] == expected


@given(KEYS, KEYS, st.sampled_from([0.5, 0.1, 0.01, 1e-9]))
def test_a_filter_never_forgets_a_key(keys: list[str], others: list[str], fpp: float) -> None:
    bloom = BloomFilter.parse(BloomFilter.of([pa.array(keys)], entries=1, fpp=fpp).to_text())
    answers = bloom.might_contain(pa.array(keys + others))
    assert answers[: len(keys)].all()
