"""What `lakelock doctor` says about a table's contents: commits and their files, the file index, and record keys.

Every commit can be read, the files it names are there, and no two rewrote a file group unaware of each other. The file
index names the files that a listing shows, and no other; so does Hudi's metadata table where there is one. With `--keys`,
no key stands twice; that reads the keys of all rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakelock.cli.doctor_services import Check, DoctorContext
from lakelock.errors import LakelockError
from lakelock.occ.create import recorded_index
from lakelock.occ.file_index import FileIndex
from lakelock.occ.footprint import CommitSummary
from lakelock.occ.foreign import overlaps
from lakelock.occ.live_logs import logging_commits
from lakelock.occ.log import DecisionLog
from lakelock.occ.publish import SHARE_THE_LOCK
from lakelock.storage import Listed, Storage
from lakelock.table import layout
from lakelock.table.archive import read_commit
from lakelock.table.base_files import BaseFile
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.eligibility import VERSIONS
from lakelock.table.index import parsed_index
from lakelock.table.instants import Instant
from lakelock.table.key_search import string_hashes
from lakelock.table.layout import FileGroupId
from lakelock.table.log_files import LogFile
from lakelock.table.merged_slices import logs_of, with_logs
from lakelock.table.metadata_records import COLUMN_STATS, FILES, PARTITION_STATS, RECORD_INDEX, unkept
from lakelock.table.metadata_stats import StatsIndex, file_stats, missed
from lakelock.table.metadata_table import MetadataTable, list_partition
from lakelock.table.properties import TableProperties, read_properties
from lakelock.table.record_index import has_definition, keys_in, place_in
from lakelock.table.schema import TableSchema
from lakelock.table.snapshot import DataFile, Snapshot, read_replaced, read_snapshot
from lakelock.table.timeline import read_timeline
from lakelock.texts import counted

NEWEST_COMMITS = 1_000
"""How many commits are read: the timeline of a table that is never archived can have any length."""
SHOWN_WRONG = 5


def check_contents(context: DoctorContext) -> Iterator[Check]:
    """The newest commits can be read, and the newest file of each file group is as long as its commit says."""
    every = sorted(read_timeline(context.shown).commits)
    commits = every[-NEWEST_COMMITS:]
    calls = [partial(_read, context, instant) for instant in commits]
    found = context.runtime.gather(calls, limit=context.settings.listing.parallel_requests)
    broken = [error for error in found if isinstance(error, LakelockError)]
    for error in broken[:SHOWN_WRONG]:
        yield Check("contents", "failed", error.message, error.hint)
    newest = newest_files(metadata for metadata in found if isinstance(metadata, CommitMetadata))
    sizes = {item.key: item.size_bytes for item in context.storage.list("")}
    undone = {path for each in context.undone for path in each.gone}
    for each in context.undone[:SHOWN_WRONG]:
        again = "; then write their rows again" if each.gone else ""
        hint = f"{context.next('repair')}{again}. {SHARE_THE_LOCK}"
        yield Check("contents", "failed" if each.gone else "warning", str(each), hint)
    wrong = [_wrong(path, size, sizes) for path, size in newest if sizes.get(path) != size and path not in undone]
    hint = "readers fail or miss rows: restore the file from a backup or an older version of the object"
    for text in wrong[:SHOWN_WRONG]:
        yield Check("contents", "failed", text, hint)
    if len(broken) > SHOWN_WRONG or len(wrong) > SHOWN_WRONG:
        total = f"{counted(len(broken), 'commit')} and {counted(len(wrong), 'file')}"
        yield Check("contents", "failed", f"damaged in total: {total}")
    if not broken and not wrong and not context.undone:
        unread = len(every) - len(commits)
        older = f"; not read: {counted(unread, 'older commit')}" if unread else ""
        files = counted(len(newest), "file")
        read = f"{counted(len(commits), 'commit')} can be read, and nothing is missing of {files}"
        yield Check("contents", "ok", f"{read}{older}")
    others = [
        CommitSummary.of(instant.requested, instant.completion or "", metadata, None)
        for instant, metadata in zip(commits, found, strict=True)
        if isinstance(metadata, CommitMetadata)
    ]
    for overlap in overlaps(others)[:SHOWN_WRONG]:
        yield Check("contents", "warning", str(overlap), context.next("audit"))


def newest_files(commits: Iterable[CommitMetadata]) -> list[tuple[str, int]]:
    """Path and size of the newest file of each file group that is not replaced, by commits in the order of their instants."""
    newest: dict[FileGroupId, tuple[str, int]] = {}
    for commit in commits:
        for group in commit.replaced_groups:
            newest.pop(group, None)
        files = [
            stat for stat in commit.stats if stat.path and LogFile.parse(stat.path) is None
        ]  # a base file stands for its group
        newest.update((stat.group, (stat.path or "", stat.file_size_bytes or 0)) for stat in files)
    return list(newest.values())


def _read(context: DoctorContext, instant: Instant) -> CommitMetadata | LakelockError:
    try:
        return read_commit(context.shown, instant)
    except LakelockError as error:
        return error


def _wrong(path: str, size: int, sizes: Mapping[str, int]) -> str:
    if path not in sizes:
        return f"{path} is missing"
    return f"{path} has {sizes[path]:,} bytes, but its commit wrote {size:,}"


SHOWN_FILES = 5
COMPARED_FILES = 200
"""Of so many files, the newest, statistics are compared with the files' own."""
MOST_INDEX_BYTES = 64 << 20
"""A record index of more bytes is not compared: all of its keys are in memory at once."""
MOST_UNCOMPACTED = 100
"""Delta commits of Hudi's metadata table from which on readers of it are noticeably slow; Java compacts after 10."""


def check_metadata_table(context: DoctorContext) -> Iterator[Check]:
    """The files of the newest slices are the same, and as long, by Hudi's metadata table and by a listing and the commits."""
    properties, storage = read_properties(context.storage), context.storage
    if FILES not in properties.metadata_partitions or properties.version not in VERSIONS:
        return
    io, timeline = context.io(storage), read_timeline(storage)
    # In this order: what the timeline shows was in the metadata table before.
    table = MetadataTable.look(io, timeline)
    drop = f"{context.next('adopt', '--drop-metadata-table')} drops it; Java's next write by its defaults builds it anew"
    if not table.timeline.instants:
        found = f"{layout.PROPERTIES} says that there is a metadata table, and {layout.METADATA_TABLE} is not there"
        yield Check("metadata", "failed", f"{found}: Java's next write fails", drop)
        return
    listed = [
        Listed(layout.in_partition(partition, name), size_bytes, 0)
        for partition, files in table.files().items()
        for name, size_bytes in files.items()
    ]
    bases = read_snapshot(io, timeline)
    slices = with_logs(bases, logs_of(logging_commits(io, timeline))) if properties.is_merge_on_read else ()
    logged = {slice_.as_file.group: slice_.as_file for slice_ in slices}
    current: list[DataFile | LogFile] = [*bases.files, *(log for file in logged.values() for log in file.logs)]
    shown = {file.key: file.size_bytes for file in current}
    in_metadata = {file.key: file.size_bytes for file in Snapshot.of(timeline, listed, read_replaced(io, timeline)).files}
    in_metadata |= {file.key: file.size_bytes for file in listed if LogFile.parse(file.key) and file.key in shown}
    problems = [
        _differs(key, in_metadata, shown)
        for key in sorted(in_metadata.keys() | shown.keys())
        if in_metadata.get(key) != shown.get(key)
    ]
    for problem in problems[:SHOWN_FILES]:
        yield Check("metadata", "failed", f"Hudi's metadata table {problem}", drop)
    if len(problems) > SHOWN_FILES:
        yield Check("metadata", "failed", f"Hudi's metadata table is wrong about {counted(len(problems), 'file')}")
    if table.uncompacted >= MOST_UNCOMPACTED:
        found = f"Hudi's metadata table was not compacted for {counted(table.uncompacted, 'commit')}: its readers get slower"
        yield Check("metadata", "warning", found, f"{context.next('upkeep')} compacts it")
    kept = properties.metadata_partitions
    missed = [] if problems else list(_missed(context, table, kept, current))
    others = unkept(kept)
    if RECORD_INDEX in kept and not problems:
        by_event_time = properties.is_merge_on_read and properties.ordering_field is not None
        if by_event_time or sum(item.size_bytes for item in list_partition(storage, RECORD_INDEX)) > MOST_INDEX_BYTES:
            others.append(RECORD_INDEX)
        else:
            files = {**{file.group: file for file in bases.files}, **logged}
            missed += _misplaced(context, table, [*files.values()])
    for problem in missed[:SHOWN_FILES]:
        yield Check("metadata", "failed", problem, drop)
    if not problems and not missed:
        more = f"; not compared: {', '.join(others)}" if others else ""
        definitions = storage.get(layout.INDEX_DEFINITIONS)
        if RECORD_INDEX not in kept and definitions is not None and has_definition(definitions.data):
            more += "; its record index was removed, and Java's next write with its option builds it anew"
        yield Check("metadata", "ok", f"Hudi's metadata table lists each of {counted(len(shown), 'file')}{more}")


def _missed(
    context: DoctorContext, table: MetadataTable, partitions: Sequence[str], files: Sequence[DataFile | LogFile]
) -> Iterator[str]:
    """The newest of these files of which Java's readers would miss rows by the statistics, as sentences."""
    storage, data = context.storage, table.data
    definitions = storage.get(layout.INDEX_DEFINITIONS)
    if COLUMN_STATS not in partitions or definitions is None or not data.commits:
        return
    schema = TableSchema.of_commit(read_commit(storage, data.commits[-1]).schema_json or "").arrow
    columns = StatsIndex.parse(definitions.data, layout.INDEX_DEFINITIONS).of(schema)
    by_file = table.records(COLUMN_STATS)
    by_partition = table.records(PARTITION_STATS) if PARTITION_STATS in partitions else {}
    covered = {str(record["ColumnStatsMetadata"][1]["columnName"]) for record in by_partition.values()}
    newest = sorted(files, key=lambda file: file.instant)[-COMPARED_FILES:]
    for file in newest:
        with storage.open_input(file.key) as source:
            found = file_stats(source, file.key, columns, schema)
        if by_partition:  # of what no partition has statistics, readers skip nothing
            found = {column: each for column, each in found.items() if column in covered or each.nulls < each.values}
        what = missed(file.partition, file.name, found, by_file, by_partition)
        if what:
            yield f"Java's readers miss rows of {file.key} by the metadata table's {what}"


def _misplaced(context: DoctorContext, table: MetadataTable, files: Sequence[DataFile]) -> Iterator[str]:
    """What the record index says wrongly of the keys of the newest files, and of file groups that are not there."""
    there = {file.group for file in files}
    places: dict[FileGroupId, set[str]] = {}
    for key, record in table.records(RECORD_INDEX).items():
        places.setdefault(place_in(record), set()).add(key)
    for group in sorted(places.keys() - there):
        yield f"Hudi's record index has {_few(places[group])} in the file group {group}, which is not there"
    for file in sorted(files, key=lambda file: file.newest_instant)[-COMPARED_FILES:]:
        keys, indexed = set(keys_in(context.storage, file)), places.get(file.group, set())
        if keys - indexed:
            yield f"{file.key} has {_few(keys - indexed)}, and not so Hudi's record index: Java would insert a second row"
        if indexed - keys:
            yield f"Hudi's record index has {_few(indexed - keys)} in {file.key}, which has not"


def _few(keys: set[str]) -> str:
    shown = ", ".join(repr(key[:100]) for key in sorted(keys)[:SHOWN_FILES])
    return f"{counted(len(keys), 'key')} ({shown}{', ...' if len(keys) > SHOWN_FILES else ''})"


def _differs(key: str, in_metadata: Mapping[str, int], shown: Mapping[str, int]) -> str:
    if key not in in_metadata:
        return f"does not list {key}: readers that use it miss its rows"
    if key not in shown:
        return f"lists {key}, which is not there, or which another file has replaced"
    return f"has {key} with {in_metadata[key]:,} bytes, and it has {shown[key]:,}"


def check_index(context: DoctorContext) -> Iterator[Check]:
    """The newest checkpoint and the commits after it, compared with a listing of all files."""
    problems: list[str] = []
    storage = context.shown
    index = FileIndex(
        context.io(storage),
        context.settings,
        DecisionLog(storage),
        problems.append,
    )
    timeline = read_timeline(storage)
    state = index.state_at(timeline)
    for problem in problems:
        yield Check("index", "warning", problem, "nothing to do: the next checkpoint replaces it")
    if state is None:
        found = "off" if not index.is_on else "no checkpoint yet"
        yield Check("index", "ok", f"{found}; the files are listed")
        return
    files = Snapshot(slices=state).files
    there = {item.key: item.size_bytes for item in storage.list("")}
    undone = {key for each in context.undone for key in each.gone}  # the check of contents says so
    gone = [file.key for file in files if there.get(file.key) != file.size_bytes and file.key not in undone]
    # A commit made since the timeline was listed is newer than everything in it.
    named = {file.key for file in files}
    newest = {file.group: file.instant for file in files}
    strays = []
    for key in there:
        file = DataFile.parse(key)
        if file is None or key in named or not timeline.is_visible(file.instant) or state.is_replaced(file.group):
            continue
        if file.instant >= newest.get(file.group, file.instant):
            strays.append(key)
    if gone:
        restore = context.next("restore", "AS_OF")
        hint = f"restore these files from a backup, or the table to a state without them: {restore}"
        yield Check("index", "failed", f"{len(gone)} of {counted(len(files), 'file')} not there as named: {_some(gone)}", hint)
    if strays:
        hint = f"late attempts of tasks left them; {context.next('markers reap')} removes those that are announced"
        found = f"no commit names {counted(len(strays), 'file')} that other readers show: {_some(strays)}"
        yield Check("index", "warning", found, hint)
    if not gone and not strays and not undone:
        later = counted(len(state.effects), "commit")
        after = f"{later} after a checkpoint" if state.base.coverage.instants else "no checkpoint yet"
        yield Check("index", "ok", f"the commits and a listing agree on {counted(len(files), 'file')}; {after}")


def _some(keys: list[str]) -> str:
    return ", ".join(sorted(keys)[:SHOWN_FILES])


PASS_BYTES = 128 << 20
"""How many bytes of keys are in memory at once: the keys of a larger partition are read several times, a share each time."""
_SHOWN = 5


def check_keys(context: DoctorContext) -> Iterator[Check]:
    """The keys that more than one row of a partition has, or of the table where a key is in one partition at most."""
    properties = read_properties(context.storage)
    configured = parsed_index(context.settings.write.index) if context.settings.write.index else None
    properties = properties.indexed(recorded_index(context.storage) or configured)
    if not properties.record_keys:
        yield Check("keys", "ok", "the table has no key columns")
        return
    if properties.is_merge_on_read:
        yield Check("keys", "ok", "not looked at: in a merge-on-read table later versions of a row lie beside it")
        return
    snapshot = read_snapshot(context.io(context.shown), read_timeline(context.shown))
    apart: dict[str, list[DataFile]] = {}
    for file in snapshot.files:
        apart.setdefault("" if properties.keys_span_partitions else file.partition, []).append(file)
    twice, examples, rows = 0, list[str](), 0
    for files in apart.values():
        count, keys, seen = _twice(context.shown, files)
        twice, rows = twice + count, rows + seen
        if keys and len(examples) < _SHOWN:
            examples += _examples_of(context.shown, files, keys[: _SHOWN - len(examples)])
    if not twice:
        yield Check("keys", "ok", f"each of {counted(rows, 'row')} has a key of its own in its {_where(properties)}")
        return
    more = f"; and {twice - len(examples)} more" if twice > len(examples) else ""
    yield Check("keys", "failed", f"{counted(twice, 'key')} in several rows: {'; '.join(examples)}{more}", _mend(properties))


def _where(properties: TableProperties) -> str:
    return "partition" if properties.partition_fields and not properties.keys_span_partitions else "table"


def _mend(properties: TableProperties) -> str:
    names = ", ".join(f'"{name}"' for name in properties.record_keys)
    if not properties.partition_fields or properties.keys_span_partitions:
        return f"keep one row of each key: table.overwrite(table.read().dropDuplicates([{names}]))"
    where = f"\"{properties.partition_fields[0]} = '...'\""
    again = f"table.overwrite(table.read({where}).dropDuplicates([{names}]), {where})"
    return f"keep one row of each key in the partitions named, one after the other: {again}"


def _twice(storage: Storage, files: Sequence[DataFile]) -> tuple[int, list[str], int]:
    """How many keys stand several times in these files, some of them, and how many rows there are."""
    passes = 1 + sum(file.size_bytes for file in files) // PASS_BYTES
    count, examples, rows = 0, list[str](), 0
    for number in range(passes):
        parts: list[pa.Array] = []
        for file in files:
            with BaseFile(storage.open_input(file.key), file.key) as base:
                rows += base.rows if number == 0 else 0
                for keys in base.key_batches():
                    found = keys.combine_chunks()
                    if passes > 1:
                        found = found.filter(pa.array(string_hashes(found) % np.uint32(passes) == number))
                    parts.append(found)
        mine = pa.chunked_array(parts, pa.string())
        if pc.count_distinct(mine).as_py() == len(mine):
            continue
        tallied = pc.value_counts(mine)
        several = tallied.field("values").filter(pc.greater(tallied.field("counts"), 1))
        count += len(several)
        examples += several.slice(0, _SHOWN - len(examples)).to_pylist()
    return count, examples, rows


def _examples_of(storage: Storage, files: Sequence[DataFile], keys: Sequence[str]) -> list[str]:
    """Each key with the files that have it."""
    there: dict[str, list[str]] = {key: [] for key in keys}
    wanted = pa.array(keys, pa.string())
    for file in files:
        with BaseFile(storage.open_input(file.key), file.key) as base:
            held = {key for batch in base.key_batches() for key in batch.filter(pc.is_in(batch, value_set=wanted)).to_pylist()}
        for key in held:
            there[key].append(file.key)
    return [f"{key[:100]!r} in {', '.join(names[:3])}" for key, names in there.items()]
