"""Bloom filters, byte for byte as Hudi's."""

from __future__ import annotations

import base64
import hashlib

import numpy as np
import pyarrow as pa
import pytest

from lakelock.errors import CorruptTableError
from lakelock.table.parquet_footers import SIMPLE, BloomFilter, bit_positions, dimensions, nominal_error_rate, quick_dimensions


def positions(key: str, hashes: int, size: int) -> list[int]:
    ((_, chain),) = bit_positions(pa.array([key]), hashes, size)
    return [int(position[0]) for position in chain]


@pytest.mark.parametrize(("key", "murmur"), [("a", -1838653602), ("abc", 1775488903), ("abcd", 646393889), ("é", -384040333)])
def test_the_hash_is_hadoops_murmur(key: str, murmur: int) -> None:
    assert positions(key, 1, 2**31 - 1) == [abs(murmur)]


def test_each_hash_seeds_the_next() -> None:
    assert positions("a", 3, 2587966) == [1197742, 96836, 620118]


def test_the_bytes_are_javas() -> None:
    data = BloomFilter.of([pa.array(["a"]), pa.array(["b"])], entries=60_000, fpp=1e-9).serialize()
    assert len(data) == 323534
    assert data[:38].hex() == "ffffffff0000001e0100277d3e0000ea600000000200000001ffffffff0000001e0100277d3e"
    assert hashlib.sha256(data).hexdigest() == "cb48b55afb63d1cf486afca94c1c95d710721f2a01557855ae77ff8ea8b61f2a"


def test_sizes_are_javas() -> None:
    assert dimensions(60_000, 1e-9) == (30, 2587966)
    assert dimensions(1000, 0.01) == (7, 9586)


def test_a_filter_survives_its_text() -> None:
    keys = pa.array([f"key-{i}" for i in range(5000)] + ["", "ü", "x" * 70_000])
    bloom = BloomFilter.of([keys.slice(0, 10), keys.slice(10)], entries=10, fpp=0.01)
    read = BloomFilter.parse(bloom.to_text())
    assert (read.hashes, read.size_bits, read.capacity, read.keys) == (7, bloom.size_bits, 5003, 5003)
    assert read.might_contain(keys).all()
    absent = pa.array([f"other-{i}" for i in range(20_000)])
    rate = read.might_contain(absent).mean()
    assert 0.003 < rate < 0.02


def test_a_quick_filter_has_fewer_hashes_a_tenth_more_bits_and_errs_as_rarely() -> None:
    assert quick_dimensions(1000, 0.01) == (4, 10523)
    keys, absent = (pa.array([f"{kind}-{i}" for i in range(20_000)]) for kind in ("key", "other"))
    bloom = BloomFilter.parse(BloomFilter.of([keys], entries=10, fpp=0.01, quick=True).to_text())
    assert bloom.might_contain(keys).all()
    assert 0.003 < bloom.might_contain(absent).mean() < 0.02


@pytest.mark.parametrize(("fpp", "quick"), [(0.01, False), (0.01, True), (1e-6, False), (1e-6, True)])
def test_the_first_bytes_tell_the_error_rate(fpp: float, quick: bool) -> None:
    text = BloomFilter.of([], entries=1000, fpp=fpp, quick=quick).to_text()
    assert nominal_error_rate(text) == pytest.approx(fpp, rel=0.05)
    assert nominal_error_rate(base64.b64encode(base64.b64decode(text)[25:]), SIMPLE) < 0.1


def test_a_filter_with_more_keys_serves_until_it_is_a_tenth_too_small() -> None:
    first, more = (pa.array([f"{kind}-{i}" for i in range(count)]) for kind, count in (("key", 1000), ("new", 100)))
    bloom = BloomFilter.of([first], entries=10, fpp=0.01, quick=True)
    assert bloom.serves(100, 1100, entries=10, fpp=0.01) and not bloom.serves(101, 1101, entries=10, fpp=0.01)
    assert not bloom.serves(0, 499, entries=10, fpp=0.01)  # most of its keys are not in the file any more
    assert not bloom.serves(0, 1000, entries=10, fpp=0.001)
    assert not BloomFilter.of([first], entries=10, fpp=0.01).serves(0, 1000, entries=10, fpp=0.01)
    grown = bloom.with_keys([more])
    assert grown.keys == 1100 and grown.might_contain(first).all() and grown.might_contain(more).all()


def test_any_row_of_a_grown_filter_can_hold_a_key() -> None:
    first, second = (BloomFilter.of([pa.array([key])], entries=10, fpp=0.01) for key in ("one", "two"))
    grown = BloomFilter(first.hashes, first.size_bits, 10, 1, first.rows + second.rows)
    assert BloomFilter.parse(grown.to_text()).might_contain(pa.array(["one", "two", "three"])).tolist() == [True, True, False]


def test_simple_filters_are_read_too() -> None:
    bloom = BloomFilter.of([pa.array(["one"])], entries=10, fpp=0.01)
    text = base64.b64encode(bloom.serialize()[25:])
    assert BloomFilter.parse(text, SIMPLE).might_contain(pa.array(["one", "two"])).tolist() == [True, False]


def test_an_empty_filter_holds_nothing() -> None:
    bloom = BloomFilter.parse(BloomFilter.of([], entries=10, fpp=0.01).to_text())
    assert not bloom.might_contain(pa.array(["a", "b"])).any()
    assert bloom.might_contain(pa.array([], pa.string())).tolist() == []


@pytest.mark.parametrize("text", ["", "%%%", "AAAA", "/////wAAAB4BACd9PgAA6mAAAAACAAAAAQ=="])
def test_damage_is_reported(text: str) -> None:
    with pytest.raises(CorruptTableError, match="f.parquet holds a damaged bloom filter"):
        BloomFilter.parse(text, source="f.parquet")


def test_long_and_large_strings_hash_alike() -> None:
    keys = [f"{'ab' * (i % 40)}{i}" for i in range(1000)]
    small, large = (BloomFilter.of([pa.array(keys, kind)], entries=1, fpp=0.01) for kind in (pa.string(), pa.large_string()))
    assert np.array_equal(small.rows[0], large.rows[0])
