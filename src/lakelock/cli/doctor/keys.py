"""What `lakelock doctor --keys` says about record keys: whether one stands twice. It reads the keys of all rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakelock.cli.doctor.context import Check, DoctorContext
from lakelock.occ.recorded_index import recorded_index
from lakelock.storage import Storage
from lakelock.table.base_files import BaseFile
from lakelock.table.index import parsed_index
from lakelock.table.key_search import string_hashes
from lakelock.table.properties import TableProperties, read_properties
from lakelock.table.snapshot import DataFile, read_snapshot
from lakelock.table.timeline import read_timeline
from lakelock.texts import counted

PASS_BYTES = 128 << 20
"""How many bytes of keys are in memory at once: the keys of a larger partition are read several times, a share each time."""
_SHOWN = 5


def check_keys(context: DoctorContext) -> Iterator[Check]:
    """The keys that more than one row of a partition has, or of the table where a key is in one partition at most."""
    properties = read_properties(context.storage)
    told = parsed_index(context.settings.write.index) if context.settings.write.index else None
    properties = properties.indexed(recorded_index(context.storage) or told)
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
            examples += _told(context.shown, files, keys[: _SHOWN - len(examples)])
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


def _told(storage: Storage, files: Sequence[DataFile], keys: Sequence[str]) -> list[str]:
    """Each key with the files that have it."""
    there: dict[str, list[str]] = {key: [] for key in keys}
    wanted = pa.array(keys, pa.string())
    for file in files:
        with BaseFile(storage.open_input(file.key), file.key) as base:
            held = {key for batch in base.key_batches() for key in batch.filter(pc.is_in(batch, value_set=wanted)).to_pylist()}
        for key in held:
            there[key].append(file.key)
    return [f"{key[:100]!r} in {', '.join(names[:3])}" for key, names in there.items()]
