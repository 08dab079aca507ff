"""Base files that somebody damaged or made up, and sources that fail: whose error is raised."""

from __future__ import annotations

import errno
import io
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.api import BaseFile, TableSchema
from tests.property.base_files import SCHEMA, read, sample

from lakelock.errors import CorruptTableError, StorageUnavailable
from lakelock.table.base_files import KeyRange
from lakelock.table.schema import COMMIT_TIME, META_COLUMNS, RECORD_KEY


class Failing(io.BytesIO):
    """Bytes whose source fails from the n-th read on."""

    def __init__(self, data: bytes, error: BaseException, good_reads: int) -> None:
        super().__init__(data)
        self._error, self._left = error, good_reads

    def read(self, size: int | None = -1, /) -> bytes:
        self._left -= 1
        if self._left < 0:
            raise self._error
        return super().read(size)


def parquet(columns: dict[str, list[object]]) -> io.BytesIO:
    output = io.BytesIO()
    pq.write_table(pa.table(columns), output)
    return output


def meta(**columns: list[object]) -> dict[str, list[object]]:
    return {**{name: ["x"] for name in META_COLUMNS}, **columns}


def test_a_file_with_changed_bytes_is_read_or_refused_with_its_name() -> None:
    randomly, whole, refused = random.Random(1), sample("none"), 0
    for _ in range(100):
        data = bytearray(whole)
        for _ in range(3):
            data[randomly.randrange(len(data))] = randomly.choice([0, 0x7F, 0xFF, randomly.randrange(256)])
        refusal = None
        try:
            read(bytes(data))
        except CorruptTableError as error:
            refusal = error
        if refusal is not None:
            refused += 1
            assert refusal.details["file"] == "p=1/a.parquet"
    assert 20 < refused < 100


@pytest.mark.parametrize("good_reads", [0, 1])
@pytest.mark.parametrize(
    "error",
    [
        StorageUnavailable("the store is silent"),
        OSError(errno.EIO, "the disk is broken"),
        FileNotFoundError(errno.ENOENT, "gone"),
        ConnectionResetError("hung up"),
        MemoryError("full"),
        KeyboardInterrupt(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_of_the_source_is_raised_as_it_is(error: BaseException, good_reads: int) -> None:
    source = Failing(sample("none"), error, good_reads)
    with pytest.raises(type(error)) as raised, BaseFile(source, "f") as base:
        list(base.batches(SCHEMA))
    assert raised.value is error


def test_a_file_that_ends_too_early_for_its_footer_is_refused(tmp_path: Path) -> None:
    whole = sample("none")
    start = whole.rindex(b"PAR1") - int.from_bytes(whole[-8:-4], "little") - 4
    (tmp_path / "f").write_bytes(b"PAR1" + whole[start:])
    with (
        pytest.raises(CorruptTableError, match="base file f cannot be read"),
        BaseFile((tmp_path / "f").open("rb"), "f") as base,
    ):
        list(base.batches(SCHEMA))


@pytest.mark.parametrize("key", [[None], [b"\xff\xfe"], [7]], ids=["null", "no text", "number"])
def test_rows_whose_key_is_no_text_are_not_rewritten(key: list[object]) -> None:
    schema = TableSchema.from_arrow(pa.schema([("v", pa.int64())]))
    table = pa.table(meta(v=[1]))
    found = pa.array(key) if isinstance(key[0], int) else pa.array(key, pa.binary()).view(pa.string())
    table = table.set_column(table.schema.get_field_index(RECORD_KEY), RECORD_KEY, found)
    output = io.BytesIO()
    pq.write_table(table, output)
    with BaseFile(output, "f") as base:
        if isinstance(key[0], int):
            assert next(base.key_batches()).to_pylist() == ["7"]
        else:
            with pytest.raises(CorruptTableError):
                list(base.stamped_batches(schema))


@pytest.mark.parametrize("lacking", [RECORD_KEY, COMMIT_TIME])
def test_a_file_without_a_meta_column_that_is_needed_is_refused(lacking: str) -> None:
    columns = meta(v=[1])
    del columns[lacking]
    with pytest.raises(CorruptTableError, match="lacks Hudi's meta columns"), BaseFile(parquet(columns), "f") as base:
        list(base.key_batches())


def test_a_key_range_of_half_characters_rules_out_no_key() -> None:
    assert KeyRange("\ud800", "\udbff").may_hold(pa.array(["a", "b"])).all()
