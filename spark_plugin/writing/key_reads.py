"""Record keys that a write looked up, as a question about the files of others: does one of them hold such a key?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from lakelock.clock import Runtime, SystemRuntime
from lakelock.errors import StorageError
from lakelock.occ.footprint import ReadKind
from lakelock.occ.write_context import WriteContext
from lakelock.spark_plugin.writing.attempt import Attempt
from lakelock.spark_plugin.writing.parcels import Parcels
from lakelock.spark_plugin.writing.reports import REPORT, REPORT_SCHEMA, REPORTS_ONLY, Batches, received, reporting
from lakelock.spark_plugin.writing.tagging import CHUNK_ROWS, KeysByPartition, keys_by_partition
from lakelock.storage import Storage
from lakelock.table.base_files import BaseFile
from lakelock.table.key_search import held
from lakelock.table.pruning import StatisticsOf
from lakelock.table.snapshot import DataFile


@dataclass(frozen=True)
class LookedUp:
    """The key and partition columns of the rows that a write looked up, packed in a persisted frame, and how many they are."""

    frame: DataFrame
    parcels: Parcels
    context: WriteContext
    count: int

    def keys(self) -> KeysByPartition:
        """The record keys, collected on the driver."""
        stage = reporting(REPORT_SCHEMA, partial(_keys_stage, self.context, self.parcels))
        found: dict[str, list[pa.Array]] = {}
        for report in self._reports(stage):
            assert isinstance(report, tuple)
            found.setdefault(report[0], []).append(report[1])
        return {partition: pa.concat_arrays(parts) for partition, parts in found.items()}

    def first_in(self, files: Sequence[DataFile], *, anywhere: bool = False) -> str | None:
        """The first match, found by the executors; `anywhere` also in files of other partitions than the key's."""
        search = partial(_search_stage, self.context, self.parcels, tuple(files), anywhere=anywhere)
        stage = reporting(REPORT_SCHEMA, search)
        return next((str(report) for report in self._reports(stage)), None)

    def _reports(self, stage: Callable[[Batches], Batches]) -> list[object]:
        return received(self.frame.mapInArrow(stage, REPORTS_ONLY).select(REPORT).collect())


class KeysRead:
    """The keys that a write looked up, found or not."""

    kind = ReadKind.KEYS

    def __init__(
        self,
        description: str,
        partitions: frozenset[str] | None,
        attempt: Attempt,
        looked_up: LookedUp,
        keys: KeysByPartition | None = None,
    ) -> None:
        """In these partitions; None: each key in all of them. `keys`: the same keys, if the driver has them already."""
        self.description = description
        self._partitions, self._looked_up, self._keys = partitions, looked_up, keys
        self._storage, self._runtime = attempt.storage, attempt.runtime

    def concerns(self, partition: str) -> bool:
        return self._partitions is None or partition in self._partitions

    def candidates(self, files: Sequence[DataFile], statistics: StatisticsOf) -> Sequence[DataFile]:
        return files

    def matches(self, files: Sequence[DataFile]) -> str | None:
        mine, anywhere = [file for file in files if self.concerns(file.partition)], self._partitions is None
        if not mine:
            return None
        try:
            if self._keys is None:
                return self._looked_up.first_in(mine, anywhere=anywhere)
            parallel = self._looked_up.context.settings.listing.parallel_requests
            keys = in_every_partition(self._keys, mine) if anywhere else self._keys
            return first_held(keys, mine, self._storage, self._runtime, parallel)
        except StorageError as error:
            return error.message


def in_every_partition(keys: KeysByPartition, files: Iterable[DataFile]) -> KeysByPartition:
    """All of the keys, for each partition of the files."""
    together = pa.concat_arrays(list(keys.values()))
    return dict.fromkeys((file.partition for file in files), together)


def first_held(
    keys: KeysByPartition, files: Iterable[DataFile], storage: Storage, runtime: Runtime, parallel: int
) -> str | None:
    """The first of `keys` that a file of its partition holds, as text for people. Several files are read at a time."""
    concerned = [file for file in files if file.partition in keys]
    for start in range(0, len(concerned), parallel):
        looks = [partial(_held_in, keys[file.partition], file, storage) for file in concerned[start : start + parallel]]
        found = next((text for text in runtime.gather(looks, limit=parallel) if text is not None), None)
        if found is not None:
            return found
    return None


def _held_in(keys: pa.Array, file: DataFile, storage: Storage) -> str | None:
    with BaseFile(storage.open_input(file.key), file.key) as base:
        found = np.flatnonzero(held(keys, base))
    if not len(found):
        return None
    key = keys[int(found[0])].as_py()
    return f"{file.partition}: {key}" if file.partition else str(key)


def _keys_stage(context: WriteContext, parcels: Parcels, batches: Iterator[pa.RecordBatch]) -> Iterator[object]:
    for rows in parcels.unpacked_keys(batches, CHUNK_ROWS):
        yield from keys_by_partition(context, rows).items()


def _search_stage(
    context: WriteContext, parcels: Parcels, files: Sequence[DataFile], batches: Iterator[pa.RecordBatch], *, anywhere: bool
) -> Iterator[object]:
    storage, parallel = context.location.open(), context.settings.listing.parallel_requests
    for rows in parcels.unpacked_keys(batches, CHUNK_ROWS):
        keys = keys_by_partition(context, rows)
        found = first_held(in_every_partition(keys, files) if anywhere else keys, files, storage, SystemRuntime(), parallel)
        if found is not None:
            yield found
            return
