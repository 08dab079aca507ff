"""A redo with Spark: the files that did not collide are copied by tasks of their own, the others are written again (ADR 19)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from types import MappingProxyType

import pyarrow as pa

from lakelock.engine.file_tasks import Files, Target, copy_file
from lakelock.occ.write_context import WriteContext
from lakelock.spark_plugin.writing.attempt import Attempt
from lakelock.spark_plugin.writing.late_tasks import while_wanted
from lakelock.spark_plugin.writing.reports import REPORT_SCHEMA, REPORTS_ONLY, reporting, this_task
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.index import bucket_of
from lakelock.table.layout import FileGroupId
from lakelock.table.schema import TableSchema
from lakelock.table.snapshot import DataFile
from lakelock.texts import counted

NOTHING: Mapping[int, object] = MappingProxyType({})


@dataclass(frozen=True)
class Kept:
    """What an attempt took over: a copy for some of the base files, by their number, and for the new rows of some targets.

    The new rows of a target may be in one of the copies for a base file: then the target has no file here.
    """

    files: Mapping[int, WriteStat] = field(default_factory=dict)
    new: Mapping[Target, Sequence[WriteStat]] = field(default_factory=dict)

    @property
    def stats(self) -> tuple[WriteStat, ...]:
        """All copies."""
        return (*self.files.values(), *chain.from_iterable(self.new.values()))


@dataclass(frozen=True)
class Redoing:
    """One attempt's part in a redo: what it may take over, and what the next may take over from it."""

    attempt: Attempt
    schema: TableSchema
    before: Files
    mine: Files

    @classmethod
    def of(cls, attempt: Attempt, schema: TableSchema) -> Redoing:
        """Of an attempt that writes files with this schema."""
        tx = attempt.tx
        before, mine = attempt.memory.begin(tx.instant, tx.redo.earlier, schema, attempt.properties)
        return cls(attempt, schema, before, mine)

    @property
    def context(self) -> WriteContext:
        """What tasks need. To ask for it is to begin to write."""
        return self.attempt.context(self.schema)

    def claimed_and_kept(
        self,
        files: Sequence[DataFile],
        numbers: Iterable[int],
        new: Mapping[Target, object],
        new_buckets: Iterable[FileGroupId] = (),
        joined: Mapping[int, object] = NOTHING,
    ) -> Kept:
        """Claim the base files of these numbers and the new buckets, then copy what the attempt before made of the same rows.

        `new` has something that tells the keys of each target's new rows, to compare. A base file never changes, and the rows
        of the call that go into it follow from its keys; only new rows may have come with it. Where also others do not follow
        from the keys, `joined` tells them, by the number of the file.
        """
        numbers, there = sorted(numbers), {file.key for file in files}
        same = {target: made for target, keys in new.items() if (made := self._made_of(target, keys, there)) is not None}
        self.attempt.tx.writes_to(partition for partition, _ in new)
        likely = (number for number in numbers if self.before.joined.get(files[number].key) == joined.get(number))
        known = {number: stat for number in likely if (stat := self._made_from(files[number], same)) is not None}
        self._claim(files, numbers, known, new_buckets)
        copies = self._copies([*known.values(), *chain.from_iterable(same.values())])
        kept = {number: copies[stat.path] for number, stat in known.items() if stat.path in copies}
        there = {files[number].key for number in kept}
        whole = {
            target: [copies[stat.path] for stat in made]
            for target, made in same.items()
            if self._adopter_in(there, target) and all(stat.path in copies for stat in made)
        }
        return Kept(kept, whole)

    def _adopter_in(self, keys: Set[str], target: Target) -> bool:
        adopter = self.before.adopted.get(target[0])
        return adopter is None or adopter in keys

    def _made_of(self, target: Target, keys: object, there: Set[str]) -> Sequence[WriteStat] | None:
        return self.before.made_of(target, keys) if self._adopter_in(there, target) else None

    def _made_from(self, base: DataFile, same: Mapping[Target, object]) -> WriteStat | None:
        adopts = self.before.adopted.get(base.partition) == base.key
        return None if adopts and (base.partition, None) not in same else self.before.made_from(base)

    def _claim(
        self, files: Sequence[DataFile], numbers: Sequence[int], known: Mapping[int, object], new: Iterable[FileGroupId]
    ) -> None:
        """Without early conflict detection a redo claims only what collided, so redos queue for it before they copy."""
        tx = self.attempt.tx
        again = tx.redo.earlier is not None
        collided = (files[number].group for number in numbers if again and number not in known)
        tx.claim((files[number].group for number in numbers), new, always=collided)

    def _copies(self, files: Sequence[WriteStat]) -> dict[str | None, WriteStat]:
        """The copies of these files that could be made, by the path of the original."""
        if not files:
            return {}
        attempt, tasks = self.attempt, min(len(files), 2 * self.attempt.tasks)
        stage = reporting(REPORT_SCHEMA, partial(copy_stage, self.context, tuple(files)))
        numbers = attempt.spark.range(0, len(files), 1, tasks)
        what = f"keeping {counted(len(files), 'file')} of the attempt before"
        copies = attempt.written(numbers.mapInArrow(stage, REPORTS_ONLY), what)
        by_group = {copy.group: copy for copy in copies}
        return {file.path: by_group[file.group] for file in files if file.group in by_group}

    def note(
        self,
        files: Sequence[DataFile],
        written: Iterable[WriteStat],
        kept: Kept,
        new: Mapping[Target, object],
        adopted: Mapping[str, int] | None = None,
        joined: Mapping[int, object] = NOTHING,
    ) -> tuple[WriteStat, ...]:
        """Note what this attempt has written, for the next one; all its files.

        `adopted`: by partition, the number of the base file whose next slice has the partition's new rows, too.
        """
        mine, bases, in_buckets = self.mine, {file.group: file for file in files}, self.attempt.properties.bucket_index
        written, made = tuple(written), {target: [*stats] for target, stats in kept.new.items()}
        for stat in written:
            if (base := bases.get(stat.group)) is not None:
                mine.rewritten[base.key] = stat
            else:
                bucket = bucket_of(stat.file_id or "") if in_buckets is not None else None
                made.setdefault((stat.partition_path or "", bucket), []).append(stat)
        mine.rewritten.update((files[number].key, stat) for number, stat in kept.files.items())
        mine.joined.update((files[number].key, rows) for number, rows in joined.items())
        mine.adopted.update((p, key) for p, key in self.before.adopted.items() if (p, None) in kept.new)
        for partition, number in (adopted or {}).items():
            mine.adopted[partition] = files[number].key
            made[partition, None] = []
        mine.new.update((target, (new.get(target), stats)) for target, stats in made.items())
        self.attempt.tx.redo.kept = len(kept.stats)
        return (*kept.stats, *written)


def copy_stage(context: WriteContext, files: Sequence[WriteStat], batches: Iterator[pa.RecordBatch]) -> Iterator[WriteStat]:
    """On an executor: copy the files whose numbers came to this task, and report the copies of those that can be copied."""
    task = this_task()
    numbers = (number for batch in batches for number in batch.column(0).to_pylist())
    copies = (copy_file(context, files[number], task) for number in numbers)
    yield from while_wanted(context, (copy for copy in copies if copy is not None))
