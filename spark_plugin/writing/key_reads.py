"""Record keys that a write looked up, as a question about the files of others: does one of them hold such a key?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from lakelock.errors import StorageError
from lakelock.occ.conflicts.reads import ReadKind
from lakelock.occ.write_context import WriteContext
from lakelock.spark_plugin.writing.parcels import Parcels
from lakelock.spark_plugin.writing.reports import REPORT, REPORT_SCHEMA, REPORTS_ONLY, Batches, received, reporting
from lakelock.spark_plugin.writing.tagging import CHUNK_ROWS
from lakelock.storage import Storage
from lakelock.table.base_files.reader import BaseFile
from lakelock.table.index import held
from lakelock.table.keyed import Keyed
from lakelock.table.partitions import partition_paths
from lakelock.table.snapshot import DataFile

FEW_KEYS = 1_000_000
"""Up to this many keys the driver fetches them once and looks itself, which is quicker than a Spark job each time."""

KeysByPartition = Mapping[str, pa.Array]


@dataclass(frozen=True)
class LookedUp:
    """The key and partition columns of the rows that a write looked up, packed in a persisted frame, and how many they are."""

    frame: DataFrame
    parcels: Parcels
    context: WriteContext
    count: int

    def keys(self) -> KeysByPartition:
        """The record keys, on the driver."""
        stage = reporting(REPORT_SCHEMA, partial(_keys_stage, self.context, self.parcels))
        found: dict[str, list[pa.Array]] = {}
        for report in self._reports(stage):
            assert isinstance(report, tuple)
            found.setdefault(report[0], []).append(report[1])
        return {partition: pa.concat_arrays(parts) for partition, parts in found.items()}

    def first_in(self, files: Sequence[DataFile]) -> str | None:
        """The first match, found by the executors."""
        stage = reporting(REPORT_SCHEMA, partial(_search_stage, self.context, self.parcels, tuple(files)))
        return next((str(report) for report in self._reports(stage)), None)

    def _reports(self, stage: Callable[[Batches], Batches]) -> list[object]:
        return received(self.frame.mapInArrow(stage, REPORTS_ONLY).select(REPORT).collect())


class KeysRead:
    """The keys that a write looked up, found or not."""

    kind = ReadKind.KEYS

    def __init__(self, description: str, partitions: frozenset[str], storage: Storage, looked_up: LookedUp) -> None:
        self.description = description
        self._partitions, self._storage, self._looked_up = partitions, storage, looked_up
        self._keys: KeysByPartition | None = None

    def concerns(self, partition: str) -> bool:
        return partition in self._partitions

    def matches(self, files: Sequence[DataFile]) -> str | None:
        mine = [file for file in files if file.partition in self._partitions]
        if not mine:
            return None
        try:
            if self._looked_up.count > FEW_KEYS:
                return self._looked_up.first_in(mine)
            if self._keys is None:
                self._keys = self._looked_up.keys()
            return first_held(self._keys, mine, self._storage)
        except StorageError as error:
            return error.message


def first_held(keys: KeysByPartition, files: Iterable[DataFile], storage: Storage) -> str | None:
    """The first of `keys` that a file of its partition holds, as text for people."""
    for file in files:
        wanted = keys.get(file.partition)
        if wanted is None:
            continue
        with BaseFile(storage.open_input(file.key), file.key) as base:
            found = np.flatnonzero(held(wanted, base))
        if len(found):
            key = wanted[int(found[0])].as_py()
            return f"{file.partition}: {key}" if file.partition else str(key)
    return None


def _keys_stage(context: WriteContext, parcels: Parcels, batches: Iterator[pa.RecordBatch]) -> Iterator[object]:
    for rows in parcels.unpacked_keys(batches, CHUNK_ROWS):
        yield from _by_partition(context, rows).items()


def _search_stage(
    context: WriteContext, parcels: Parcels, files: Sequence[DataFile], batches: Iterator[pa.RecordBatch]
) -> Iterator[object]:
    storage = context.location.open()
    for rows in parcels.unpacked_keys(batches, CHUNK_ROWS):
        found = first_held(_by_partition(context, rows), files, storage)
        if found is not None:
            yield found
            return


def _by_partition(context: WriteContext, rows: pa.Table) -> dict[str, pa.Array]:
    keyed = Keyed.of(rows, context.properties)
    keys, paths = keyed.keys.combine_chunks(), partition_paths(rows, context.properties)
    codes = np.asarray(paths.indices)
    names = paths.dictionary.to_pylist()
    return {name: keys.take(pa.array(np.flatnonzero(codes == code))) for code, name in enumerate(names)}
