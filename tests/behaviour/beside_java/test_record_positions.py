"""Log files that name the positions of their rows in the base file: as lakelock writes them, and how they are read."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.api import ArrowEngine, BaseFile, Coordinator, FileGroupId, MemoryStorage, Storage, StorageLocation, TableSchema
from tests.behaviour.foreign import Peer
from tests.behaviour.tables import SCHEMA, new_table, writer
from tests.hand_made import HandMade

from lakelock.settings import WriteSettings
from lakelock.table.base_files import Stamp
from lakelock.table.log_files import Block, BlockHeader, BlockKind, blocks_of, deletes_in, positions_in
from lakelock.table.log_rows import whole_rows
from lakelock.table.log_writing import BasePositions, LogChanges
from lakelock.table.properties import MERGE_ON_READ, TableProperties
from lakelock.table.rewriting import ARROW

KEY = "_hoodie_record_key"


@pytest.fixture
def storage() -> Storage:
    made = MemoryStorage()
    new_table(made, table_type=MERGE_ON_READ)
    return made


def many(keys: list[str], value: int = 0) -> pa.Table:
    return pa.table([keys, [value] * len(keys), ["1"] * len(keys)], schema=SCHEMA)


def named_rows(storage: Storage) -> list[list[str] | None]:
    """For each block of the newest slices: the keys of the base file's rows at its positions, which are its keys; or None."""
    found: list[list[str] | None] = []
    for slice_ in ArrowEngine(writer(storage)).coordinator.shown().logged:
        assert slice_.base is not None
        with BaseFile(storage.open_input(slice_.base.key), slice_.base.key) as base:
            stored = pa.chunked_array([chunk for part in base.key_batches() for chunk in part.chunks], pa.string())
        for log in slice_.logs:
            for block in blocks_of(storage.open_input(log.key), log.size_bytes, log.key):
                rows = block.kind is BlockKind.PARQUET
                keys = whole_rows(block, [KEY]).column(KEY).to_pylist() if rows else [key for key, _ in deletes_in(block)]
                positions = positions_in(block, len(stored))
                if positions is not None:
                    assert block.header[BlockHeader.BASE_INSTANT] == slice_.base.instant
                    assert stored.take(pa.array(positions)).to_pylist() == keys
                found.append(keys if positions is not None else None)
    return found


def test_every_append_names_the_positions_of_its_rows_also_where_log_files_lie_on_the_base_file(storage: Storage) -> None:
    engine = ArrowEngine(writer(storage))
    keys = [f"k{7 * number % 100:02}" for number in range(100)]  # not in their order
    engine.insert(many(keys))
    engine.upsert(many(["k11", "k50", "k02"], 1))
    engine.delete(pc.field("id").isin(["k50", "k03", "k04"]))
    engine.update({"v": pc.add(pc.field("v"), 2)}, pc.field("id").isin(["k02", "k90"]))
    by = keys.index
    assert named_rows(storage) == [
        sorted(["k11", "k50", "k02"], key=by), sorted(["k50", "k03", "k04"], key=by), sorted(["k02", "k90"], key=by),
    ]  # fmt: skip
    found = engine.read()
    shown = dict(zip(found.column("id").to_pylist(), found.column("v").to_pylist(), strict=True))
    assert {key: v for key, v in shown.items() if v} == {"k11": 1, "k02": 3, "k90": 2} and len(shown) == 97


def test_a_row_that_is_in_another_log_file_only_has_no_position_and_neither_has_its_log_file(storage: Storage) -> None:
    engine = ArrowEngine(writer(storage))
    engine.insert(many([f"k{number:02}" for number in range(50)]))
    (file,) = engine.coordinator.snapshot().files
    Peer(storage).append(file.group, many(["n"]))
    engine.upsert(many(["n", "k01"], 1))
    assert named_rows(storage) == [None, None]
    assert sum(engine.read().column("v").to_pylist()) == 2


GROUP = FileGroupId("", "11111111-1111-4111-8111-111111111111-0")
COLUMNS = pa.schema([("id", pa.string()), ("v", pa.int64())])


def T(second: int, ms: int = 0) -> str:  # noqa: N802
    return f"202606010000{second:02d}{ms:03d}"


def numbered(keys: str, value: int) -> pa.Table:
    return pa.table([list(keys), [value] * len(keys)], schema=COLUMNS)


@pytest.fixture
def made(tmp_path: Path) -> HandMade:
    """A table of one base file with eight rows in four row groups."""
    settings = WriteSettings(row_group_rows=2)
    found = HandMade(tmp_path, TableProperties.new("t", ["id"], []), TableSchema.from_arrow(COLUMNS), settings).create()
    found.commit(T(1), T(1, 500), bases={GROUP: numbered("hgfedcba", 0)})
    return found


def read(made: HandMade) -> dict[str, int]:
    with Coordinator.open(StorageLocation.of(str(made.path))) as coordinator:
        rows = ArrowEngine(coordinator).read()
    found = dict(zip(rows.column("id").to_pylist(), rows.column("v").to_pylist(), strict=True))
    assert len(found) == rows.num_rows
    return found


def test_rows_and_deletes_of_one_change_are_both_named_by_their_places_in_the_whole_file(made: HandMade) -> None:
    with Coordinator.open(StorageLocation.of(str(made.path))) as coordinator:
        (file,) = coordinator.snapshot().files
        upserts, gone = made.keyed(numbered("bdg", 1)), ARROW.among(made.keyed(numbered("aef", 0)))
        found = ARROW.changed_in(
            file, coordinator.table.storage, made.schema, Stamp("t", T(2), "", "file_0-0-0"), made.settings, 1.0,
            upserts=upserts, delete_mask=gone, ordering_field=None,
        )  # fmt: skip
    assert found is not None and found.changes is not None and found.changes.positions is not None
    base, upserted, deleted = found.changes.positions
    assert (base, upserted.tolist(), deleted.tolist()) == (T(1), [1, 4, 6], [2, 3, 7])
    assert found.changes.upserts is not None and found.changes.upserts.keys.to_pylist() == ["g", "d", "b"]
    assert list(found.changes.deleted) == ["f", "e", "a"]


def test_by_position_row_groups_are_passed_over_and_rows_of_others_are_shown_once(made: HandMade) -> None:
    made.commit(T(2), T(2, 500), logs={GROUP: LogChanges(made.keyed(numbered("hgb", 2)), ["e"])})
    made.commit(T(3), T(3, 500), logs={GROUP: LogChanges(made.keyed(numbered("eb", 3)), ["g", "f"])})
    assert read(made) == {"h": 2, "e": 3, "d": 0, "c": 0, "b": 3, "a": 0}


@pytest.mark.parametrize("what", ["another base file", "too many", "too far", "no bitmap", "none"])
def test_positions_that_make_no_sense_are_not_used(made: HandMade, what: str) -> None:
    """The first log file names wrong ones, the second right ones."""
    named = BasePositions(
        T(0) if what == "another base file" else T(1), np.array([0, 100 if what == "too far" else 1]), np.array([])
    )
    made.commit(T(2), T(2, 500), logs={GROUP: LogChanges(made.keyed(numbered("ab", 2)), positions=named)})
    (log,) = made.path.glob(".*.log.*")
    (block,) = list(blocks_of(log.open("rb"), log.stat().st_size, "log"))
    text = block.header[BlockHeader.RECORD_POSITIONS]
    raw = bytearray(base64.b64decode(text))
    raw[-4:] = {"too many": b"\1\0\0\0", "no bitmap": b"\0\0\0\0"}.get(what, bytes(raw[-4:]))
    other = base64.b64encode(raw).decode() if what != "none" else "A" * len(text)
    log.write_bytes(log.read_bytes().replace(text.encode(), other.encode()))
    made.commit(T(3), T(3, 500), logs={GROUP: LogChanges(made.keyed(numbered("h", 3)))})
    assert read(made) == {"h": 3, "g": 0, "f": 0, "e": 0, "d": 0, "c": 0, "b": 2, "a": 2}


def test_a_header_that_names_fewer_positions_than_rows_is_not_used(made: HandMade) -> None:
    good = BasePositions(T(1), np.array([7, 6]), np.array([5]))
    made.commit(T(2), T(2, 500), logs={GROUP: LogChanges(made.keyed(numbered("ab", 2)), ["c"], good)})
    (log,) = made.path.glob(".*.log.*")
    rows, gone = blocks_of(log.open("rb"), log.stat().st_size, "log")
    assert isinstance(gone, Block)
    long, short = (block.header[BlockHeader.RECORD_POSITIONS].encode() for block in (rows, gone))
    data = log.read_bytes()
    assert data.count(long) == data.count(short) == 1
    # The block of rows gets the positions of the deletes, so its entry is shorter and all lengths around it are.
    less = len(long) - len(short)
    at = data.index(long)
    header = data[: at - 4] + len(short).to_bytes(4, "big") + short + data[at + len(long) :]
    start = int.from_bytes(data[6:14], "big")
    whole = header[:6] + (start - less).to_bytes(8, "big") + header[14:]
    end = 14 + start - less
    whole = whole[: end - 8] + (6 + start - less).to_bytes(8, "big") + whole[end:]
    log.write_bytes(whole)
    assert read(made) == {"h": 0, "g": 0, "f": 0, "e": 0, "d": 0, "b": 2, "a": 2}
