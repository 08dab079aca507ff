"""Whether lakelock may read or write a table as its properties describe it, and if not, why and what helps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from lakelock.errors import TableError
from lakelock.table.properties import METADATA_INFLIGHT, METADATA_PARTITIONS, TableProperties
from lakelock.table.snapshot import Snapshot

READABLE_VERSIONS = (8, 9)
WRITABLE_VERSION = 9
KEY_GENERATORS = frozenset({"SIMPLE", "SIMPLE_AVRO", "COMPLEX", "COMPLEX_AVRO", "NON_PARTITION", "NON_PARTITION_AVRO"})
_MERGE_MODES = frozenset({"EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING"})


@dataclass(frozen=True)
class Refusal:
    """Why a table is not read or written, and what the owner or the other writer can do about it."""

    reason: str
    hint: str

    def __str__(self) -> str:
        return self.reason


def why_not_readable(properties: TableProperties) -> Refusal | None:
    """Why lakelock does not read this table, None when it does."""
    return next(_read_refusals(properties), None)


@lru_cache(maxsize=8)  # asked at each transaction, of the same value as long as the properties file does not change
def why_not_writable(properties: TableProperties) -> Refusal | None:
    """Why lakelock does not write this table, None when it does."""
    return why_not_readable(properties) or next(_write_refusals(properties), None)


def check_readable(properties: TableProperties) -> None:
    """Raise `TableError` unless lakelock can read the table."""
    _check(properties, why_not_readable, "read")


def check_writable(properties: TableProperties) -> None:
    """Raise `TableError` unless lakelock can write the table."""
    _check(properties, why_not_writable, "write")


def bucket_index_refusal(snapshot: Snapshot) -> Refusal | None:
    """Why not to write a table whose file ids are bucket numbers: hoodie.properties does not tell, the files do."""
    prefixes = {file.file_id[:8] for file in snapshot.files}
    if not prefixes or not all(len(p) == 8 and p.isascii() and p.isdigit() and p.startswith("000") for p in prefixes):
        return None
    return _BUCKETS


def check_no_buckets(properties: TableProperties, snapshot: Snapshot) -> None:
    """Raise `TableError` if the files show a bucket index, which `check_writable` cannot see."""
    refusal = bucket_index_refusal(snapshot)
    if refusal is not None:
        raise TableError(f"lakelock does not write the table {properties.name}: {refusal.reason}", hint=refusal.hint)


_BUCKETS = Refusal(
    "its file groups are buckets of Hudi's bucket index, which lakelock does not fill",
    "write it with Hudi, or rewrite it into a table with the default index",
)


def _check(properties: TableProperties, judge: Callable[[TableProperties], Refusal | None], verb: str) -> None:
    refusal = judge(properties)
    if refusal is not None:
        raise TableError(f"lakelock does not {verb} the table {properties.name}: {refusal.reason}", hint=refusal.hint)


def _read_refusals(table: TableProperties) -> Iterator[Refusal]:
    upgrade = "let a Hudi 1.1 or 1.2 writer upgrade it: hoodie.write.table.version=9 and hoodie.write.auto.upgrade=true"
    if table.version not in READABLE_VERSIONS:
        newer = table.version > WRITABLE_VERSION
        yield Refusal(
            f"it has table version {table.version or 'unknown'}; lakelock reads {' and '.join(map(str, READABLE_VERSIONS))}",
            "use a newer lakelock; to keep other tables at 9, set hoodie.write.table.version=9 and "
            "hoodie.write.auto.upgrade=false in every Hudi writer"
            if newer
            else upgrade,
        )
    if table.layout != 2:
        yield Refusal(f"its timeline has layout {table.layout or 'unknown'}; lakelock reads layout 2", upgrade)
    if table.text("hoodie.timeline.path", "timeline") != "timeline":
        yield Refusal("its hoodie.timeline.path is not `timeline`", "use the default folder of the timeline")
    if table.text("hoodie.timeline.history.path", "history") != "history":
        # What is in that folder tells whether older commits were archived.
        yield Refusal("its hoodie.timeline.history.path is not `history`", "use the default folder of the archive")
    if table.type != "COPY_ON_WRITE":
        yield Refusal(
            f"it is {table.type}: rows live in log files that lakelock does not read",
            "copy it into a copy-on-write table (hoodie.datasource.write.table.type=COPY_ON_WRITE)",
        )
    if table.base_file_format != "PARQUET" or table.flag("hoodie.table.multiple.base.file.formats.enable"):
        yield Refusal("its base files are not all Parquet", "write it with hoodie.table.base.file.format=PARQUET only")
    if table.text("hoodie.table.format", "native").lower() != "native":
        yield Refusal("its hoodie.table.format is not `native`", "read it with the writer's own tools")
    if table.text("hoodie.bootstrap.base.path", ""):
        yield Refusal("it was bootstrapped: its rows live in files of another table", "bootstrap it with FULL_RECORD mode")
    if table.flag("hoodie.datasource.write.drop.partition.columns"):
        yield Refusal(
            "its partition columns are not in the files (hoodie.datasource.write.drop.partition.columns=true)",
            "rewrite it with hoodie.datasource.write.drop.partition.columns=false",
        )


def _write_refusals(table: TableProperties) -> Iterator[Refusal]:
    if table.version != WRITABLE_VERSION:
        yield Refusal(
            f"it has table version {table.version}; lakelock writes {WRITABLE_VERSION}",
            "let a Hudi 1.1 or 1.2 writer upgrade it: hoodie.write.table.version=9 and hoodie.write.auto.upgrade=true",
        )
    if table.metadata_partitions:
        yield Refusal(
            f"its metadata table is on ({METADATA_PARTITIONS} or {METADATA_INFLIGHT}): readers would not see our files",
            "set hoodie.metadata.enable=false in every Hudi writer and let one write once: it removes the metadata table",
        )
    if table.timezone != "UTC":
        yield Refusal(
            f"its instant times are in the zone {table.timezone} of whoever wrote them, not in UTC",
            "create tables with hoodie.table.timeline.timezone=UTC; if all its writers ran in UTC, add that line to "
            "hoodie.properties while nobody writes",
        )
    if not table.flag("hoodie.populate.meta.fields", default=True):
        yield Refusal(
            "its rows carry no record keys (hoodie.populate.meta.fields=false)",
            "rewrite it with hoodie.populate.meta.fields=true",
        )
    yield from _row_refusals(table)


def _row_refusals(table: TableProperties) -> Iterator[Refusal]:
    """Refusals because rows would get other keys, places or versions than the other writers give them."""
    if not table.record_keys:
        yield Refusal("it has no hoodie.table.recordkey.fields", "create it with hoodie.datasource.write.recordkey.field")
    if table.key_generator not in KEY_GENERATORS:
        yield Refusal(
            f"its key generator is {table.key_generator}; lakelock knows SIMPLE, COMPLEX and NON_PARTITION",
            "create it with hoodie.table.keygenerator.type=SIMPLE, COMPLEX or NON_PARTITION, on columns that hold the values",
        )
    if table.flag("hoodie.datasource.write.slash.separated.date.partitioning"):
        yield Refusal(
            "it writes dates as nested folders", "use hoodie.datasource.write.slash.separated.date.partitioning=false"
        )
    if table.merge_mode not in _MERGE_MODES or table.text("hoodie.table.partial.update.mode", ""):
        yield Refusal(
            "it merges rows in its own way (hoodie.record.merge.mode or hoodie.table.partial.update.mode)",
            "use hoodie.record.merge.mode=EVENT_TIME_ORDERING or COMMIT_TIME_ORDERING, without partial updates",
        )
    if table.ordering_field is not None and len(table.ordering_fields) > 1:
        yield Refusal("it orders rows by several columns (hoodie.table.ordering.fields)", "use one ordering column")
    if table.flag("hoodie.table.cdc.enabled"):
        yield Refusal("it keeps change logs (hoodie.table.cdc.enabled=true)", "use hoodie.table.cdc.enabled=false")
    if table.text("hoodie.index.type", "").upper() == "BUCKET" or any(
        k.startswith("hoodie.bucket.index.") for k in table.values
    ):
        yield _BUCKETS
