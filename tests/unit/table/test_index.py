"""Which file holds which key."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.api import BaseFile, BaseFileWriter, DataFile, MemoryStorage, Stamp, TableIO, TableSchema
from tests.faulty_storage import CountingStorage

from lakelock.settings import WriteSettings
from lakelock.table import base_files as base_reader
from lakelock.table import key_search as index
from lakelock.table.key_search import held, tag
from lakelock.table.record_keys import record_keys
from lakelock.testing.runtime import ManualRuntime

SCHEMA = TableSchema.from_arrow(pa.schema([("id", pa.string())]))
INSTANT = "20260101000000000"


def stored(storage: MemoryStorage, name: str, keys: list[str], *, fpp: float = 0.01) -> DataFile:
    file = DataFile("p", name, "0-0-0", INSTANT)
    settings = WriteSettings(row_group_rows=100, bloom_entries=10, bloom_fpp=fpp)
    with storage.open_output(file.key) as output:
        writer = BaseFileWriter(output, SCHEMA, Stamp("t", INSTANT, "p", file.name), settings)
        rows = pa.table({"id": pa.array(keys, pa.string())})
        writer.add_new(rows, record_keys(rows, ["id"]))
        writer.close()
    return file


def numbered(start: int, stop: int, step: int = 1) -> list[str]:
    return [f"k{i:05}" for i in range(start, stop, step)]


@pytest.mark.parametrize(
    "looked_up", [numbered(0, 1000, 7), numbered(0, 2000), ["k00500"], ["k00500", "k00500", "z", "k00001"], []]
)
def test_every_key_is_found_where_it_is_and_nowhere_else(looked_up: list[str]) -> None:
    storage = MemoryStorage()
    content = {"even": numbered(0, 1000, 2), "odd": numbered(1, 1000, 2), "tail": [*numbered(900, 1200), "k00901"], "none": []}
    files = [stored(storage, name, keys) for name, keys in content.items()]
    tags = tag(pa.chunked_array([looked_up[:3], looked_up[3:]], pa.string()), files, TableIO(storage))
    found = {holding.file.file_id: [looked_up[i] for i in holding.positions] for holding in tags.holdings}
    expected = {name: [key for key in looked_up if key in set(keys)] for name, keys in content.items()}
    assert found == {name: keys for name, keys in expected.items() if keys}
    for holding in tags.holdings:
        theirs, mine = content[holding.file.file_id], [looked_up[i] for i in holding.positions]
        assert holding.at.tolist() == [at for at, key in enumerate(theirs) if key in set(looked_up)]
        assert [mine[number] for number in holding.nth] == [theirs[at] for at in holding.at]
    everything = {key for keys in content.values() for key in keys}
    assert [looked_up[i] for i in tags.missing] == [key for key in looked_up if key not in everything]


def test_few_keys_are_ruled_out_by_the_footer_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    files = [stored(storage, "f", numbered(0, 5000, 2), fpp=1e-9)]
    monkeypatch.setattr(base_reader.BaseFile, "key_batches", lambda self: pytest.fail("read the rows"))
    absent = numbered(1, 600, 2)
    for keys in (absent, ["a", "z"]):
        assert tag(pa.array(keys), files, TableIO(storage)).missing.tolist() == list(range(len(keys)))


def test_filters_that_would_let_many_keys_pass_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    file = stored(storage, "f", numbered(0, 5000, 2))
    monkeypatch.setattr(base_reader.BaseFile, "bloom", lambda self: pytest.fail("asked the filter"))
    with BaseFile(storage.open_input(file.key), "f") as base:
        assert held(pa.array(numbered(0, 600)), base).sum() == 300


def test_each_file_is_opened_once_with_its_known_size_and_footers_are_read_together() -> None:
    storage = CountingStorage(MemoryStorage())
    files = [stored(storage, f"f{number}", numbered(number * 10, number * 10 + 10)) for number in range(200)]
    sizes = {listed.key: listed.size_bytes for listed in storage.inner.list("")}
    files = [file._replace(size_bytes=sizes[file.key]) for file in files]
    together: list[int] = []
    runtime = ManualRuntime()
    runtime.gather = lambda calls, *, limit: together.append(len(calls)) or [call() for call in calls]  # type: ignore[method-assign]
    storage.reset()
    opened: list[int] = []
    inner_open = storage.inner.open_input
    storage.inner.open_input = lambda key, *, size_bytes=0: opened.append(size_bytes) or inner_open(key)  # type: ignore[method-assign]
    tags = tag(pa.array(numbered(5, 1995, 10)), files, TableIO(storage, runtime, 16))
    assert len(tags.holdings) == 199 and not len(tags.missing)
    assert storage.requests["open_input"] == len(files) and sorted(opened) == sorted(sizes.values())
    assert sum(together) == len(files) and max(together) > 1


def test_the_keys_of_large_files_are_read_one_file_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "SMALL_ROWS", 10)
    storage = MemoryStorage()
    files = [stored(storage, f"f{number}", numbered(number * 100, number * 100 + 100)) for number in range(3)]
    tags = tag(pa.array(numbered(50, 250)), files, TableIO(storage))
    assert [(held.file.file_id, len(held.positions), held.rows) for held in tags.holdings] == [
        ("f0", 50, 100), ("f1", 100, 100), ("f2", 50, 100),
    ]  # fmt: skip
