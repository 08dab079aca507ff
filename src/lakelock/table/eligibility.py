"""Whether lakelock may read or write a table as its properties describe it, and if not, why and what helps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from lakelock.errors import CorruptTableError, TableError
from lakelock.parsing import JsonObject
from lakelock.table.index import (
    ENGINE,
    EXPRESSIONS,
    HASH_FIELD,
    INDEX_TYPE,
    NUM_BUCKETS,
    bucket_of,
    bucket_of_group,
)
from lakelock.table.layout import FileGroupId
from lakelock.table.metadata_records import FILES, unkept
from lakelock.table.properties import (
    COPY_ON_WRITE,
    KNOWN_KEY_GENERATORS,
    KNOWN_MERGE_MODES,
    MERGE_ON_READ,
    METADATA_INFLIGHT,
    METADATA_PARTITIONS,
    NEWEST_VERSION,
    TRANSFORMS,
    TableProperties,
)
from lakelock.table.snapshot import Snapshot
from lakelock.texts import counted

VERSIONS = (8, 9)
"""Of Hudi 1.0, and of Hudi 1.1 and later. They differ in properties, not in the timeline or in files."""
OLD_VERSION, OLD_LAYOUT = 6, 1
"""Of Hudi 0.14 and 0.15: read as `layout_one.storage` shows it."""
NO_METADATA_TABLE = "hoodie.metadata.enable=false"
IN_UTC = "hoodie.table.timeline.timezone=UTC"


@dataclass(frozen=True)
class Refusal:
    """Why a table is not read or written, and what its owner can do about it: every piece of advice is tested.

    `hint` mends the table as it is. `made_with` is the option of a Java writer that keeps a new table free of this reason.
    """

    reason: str
    hint: str = ""
    made_with: str = ""

    def __str__(self) -> str:
        return self.reason


@lru_cache(maxsize=8)
def why_not_readable(properties: TableProperties) -> tuple[Refusal, ...]:
    """Every reason why lakelock does not read this table; none when it does."""
    return tuple(_read_refusals(properties))


@lru_cache(maxsize=8)  # asked at each transaction, of the same value as long as the properties file does not change
def why_not_writable(properties: TableProperties) -> tuple[Refusal, ...]:
    """Every reason why lakelock does not write this table; none when it does."""
    return (*why_not_readable(properties), *_write_refusals(properties))


def why_not_merged(properties: TableProperties) -> Refusal | None:
    """Why the rows of a merge-on-read table cannot be merged as Hudi merges them."""
    if properties.merge_mode not in KNOWN_MERGE_MODES or properties.text("hoodie.table.partial.update.mode", ""):
        return Refusal("it merges rows in its own way (hoodie.record.merge.mode or hoodie.table.partial.update.mode)")
    own = next((key for key in sorted(properties.values) if key.startswith("hoodie.record.merge.property.")), "")
    if own:
        return Refusal(f"it marks deleted rows in a way of its own ({own})")
    if properties.ordering_field is not None and len(properties.ordering_fields) > 1:
        return Refusal("it orders rows by several columns (hoodie.table.ordering.fields)")
    if "." in (properties.ordering_field or ""):
        return Refusal(
            f"it orders rows by {properties.ordering_field}, a field of another column (hoodie.table.ordering.fields)"
        )
    if not properties.flag("hoodie.populate.meta.fields", default=True):
        return Refusal("its rows carry no record keys (hoodie.populate.meta.fields=false)")
    return None


def require_slices(properties: TableProperties, what: str) -> None:
    """`TableError` for a merge-on-read table whose file slices with log files cannot be taken for base files."""
    if not properties.is_merge_on_read:
        return
    old = [Refusal(f"it is MERGE_ON_READ of table version {OLD_VERSION}")] if properties.version == OLD_VERSION else []
    found = [*old, *filter(None, [why_not_merged(properties)]), *_merge_on_read_refusals(properties)]
    if found:
        raise TableError(
            f"{what} is not available for {properties.name}: {found[0]}",
            hint="table.read() gives its rows as they are now, table.read(as_of=...) as they were",
        )


def advice(refusals: Sequence[Refusal]) -> str:
    """The hint that removes all of these reasons; empty if there is none."""
    if all(refusal.hint for refusal in refusals):
        return "; then ".join(dict.fromkeys(refusal.hint for refusal in refusals))
    if all(refusal.made_with for refusal in refusals):
        # Without IN_UTC the new table would be refused for Java's default zone.
        options = dict.fromkeys((IN_UTC, *(refusal.made_with for refusal in refusals)))
        return f"copy its rows into a new table that Java makes with {', '.join(options)}"
    return ""


@lru_cache(maxsize=8)
def why_columns_misfit(history: bytes, source: str) -> Refusal | None:
    """Why not to read a table with this history of columns, which Java keeps under `hoodie.schema.on.read.enable`.

    It knows columns by ids. Here they are found by their names, so none may have changed its name, or have that of another.
    """
    names, ids = dict[object, set[str]](), dict[str, set[object]]()
    try:
        for schema in JsonObject.parse(history).children("schemas") if history else ():
            for number, name in _numbered_columns(schema.fields):
                names.setdefault(number, set()).add(name)
                ids.setdefault(name, set()).add(number)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptTableError(f"{source} is no history of columns: {error!r:.200}", file=source) from error
    others = {name for same in names.values() if len(same) > 1 for name in same}
    others |= {name for name, same in ids.items() if len(same) > 1}
    if not others:
        return None
    found = f"columns of it were renamed, or removed and added again, without writing its files: {', '.join(sorted(others))}"
    return Refusal(f"{found} ({BY_IDS})")


BY_IDS = "hoodie.schema.on.read.enable=true"


def _numbered_columns(kind: Any, where: str = "") -> Iterator[tuple[object, str]]:
    """The ids of columns, and of fields inside them, each with its name."""
    if not isinstance(kind, dict):
        return
    for field in kind["fields"] if kind["type"] == "record" else ():
        yield field["id"], f"{where}{field['name']}"
        yield from _numbered_columns(field["type"], f"{where}{field['name']}.")
    yield from _numbered_columns(kind.get("element"), where)
    yield from _numbered_columns(kind.get("value"), where)


def check_columns(properties: TableProperties, history: bytes, source: str) -> None:
    """Raise `TableError` if columns have to be found by ids."""
    refusal = why_columns_misfit(history, source)
    if refusal is not None:
        hint = f"read it with Java under {BY_IDS}, drop the _hoodie_ columns, and write the rows into a new table"
        raise _refused(properties, "read", [refusal], hint)


def check_readable(properties: TableProperties) -> None:
    """Raise `TableError` unless lakelock can read the table."""
    refusals = why_not_readable(properties)
    if refusals:
        raise _refused(properties, "read", refusals, advice(refusals))


def check_writable(properties: TableProperties) -> None:
    """Raise `TableError`, which names every reason, unless lakelock can write the table."""
    refusals = why_not_writable(properties)
    if refusals:
        raise _refused(properties, "write", refusals, next_step(properties, refusals))


def next_step(properties: TableProperties, refusals: Sequence[Refusal]) -> str:
    """What a user who wants to write the table can do now."""
    readable = "" if why_not_readable(properties) else "it can be read meanwhile"
    return "; ".join(filter(None, (advice(refusals), readable)))


def why_files_misfit(properties: TableProperties, snapshot: Snapshot) -> Refusal | None:
    """Why lakelock does not write a table with these files, although `check_writable` allows it by the properties.

    The files look like buckets and no bucket index is known, or they do not fit the one that is.
    """
    index = properties.bucket_index
    if index is None:
        # One partition tells, unless its few file ids look like buckets by chance.
        sample = snapshot.in_partition(snapshot.partitions[0]) if snapshot.partitions else ()
        if not look_like_buckets(file.file_id for file in sample):
            return None
        return _UNKNOWN_BUCKETS if look_like_buckets(file.file_id for file in snapshot.files) else None
    seen: set[FileGroupId] = set()
    for file in snapshot.files:
        bucket, group = bucket_of(file.file_id), bucket_of_group(file.group)
        if bucket is None or bucket >= index.count:
            return Refusal(f"its rows lie in {counted(index.count, 'bucket')}, and {file.key} is not one of them", _NO_BUCKETS)
        if group in seen:
            return Refusal(f"two file groups of one partition are bucket {bucket}: {file.key} is one", _TWO_OF_A_BUCKET)
        seen.add(group)
    return None


def look_like_buckets(file_ids: Iterable[str]) -> bool:
    """Whether all of these file ids begin with a number as buckets have it. A random file id hardly ever does."""
    prefixes = {file_id[:8] for file_id in file_ids}
    return bool(prefixes) and all(bucket_of(prefix) is not None and prefix.startswith("000") for prefix in prefixes)


def check_files(properties: TableProperties, snapshot: Snapshot) -> None:
    """Raise `TableError` if the files of the table do not fit its index, which `check_writable` cannot see."""
    refusal = why_files_misfit(properties, snapshot)
    if refusal is not None:
        raise _refused(properties, "write", [refusal], next_step(properties, [refusal]))


_NO_BUCKETS = "if only the options of this write name a bucket index, leave out index, write.index and hoodie.index.*"
_TWO_OF_A_BUCKET = "roll back the later of their two commits with Hudi's procedure rollback_to_instant; Java asks for the same"
_UNKNOWN_BUCKETS = Refusal(
    "its file groups are buckets of Hudi's bucket index, and nothing says how many there are",
    'tell lakelock\'s writers by the setting write.index = "bucket:N", where N is hoodie.bucket.index.num.buckets of its Java '
    "writers",
    f"{INDEX_TYPE}=SIMPLE",
)


def _refused(table: TableProperties, verb: str, refusals: Sequence[Refusal], hint: str) -> TableError:
    if len(refusals) == 1:
        return TableError(f"lakelock does not {verb} the table {table.name}: {refusals[0]}", hint=hint)
    reasons = "".join(f"\n  {number}. {refusal}" for number, refusal in enumerate(refusals, 1))
    return TableError(f"lakelock does not {verb} the table {table.name}, for {len(refusals)} reasons:{reasons}", hint=hint)


_UPGRADE = (
    "let a Hudi 1.1 or 1.2 writer upgrade it, with hoodie.write.table.version=9, hoodie.write.auto.upgrade=true and "
    f"{NO_METADATA_TABLE} in its next write"
)
_DOWNGRADE = (
    "stop that writer, and let its release of Hudi take the upgrade back: CALL downgrade_table(table => '...', to_version => "
    "'NINE'); set hoodie.write.table.version=9 and hoodie.write.auto.upgrade=false in every Hudi writer. A newer lakelock may "
    "know that version: pip install --upgrade lakelock"
)
_VERSION_9 = "hoodie.write.table.version=9"


def _read_refusals(table: TableProperties) -> Iterator[Refusal]:
    old = table.version == OLD_VERSION
    if not old and table.version not in VERSIONS:
        read = ", ".join(map(str, (OLD_VERSION, *VERSIONS)))
        found = f"it has table version {table.version or 'unknown'}; lakelock reads {read}"
        if table.version > NEWEST_VERSION:
            found += ". A Hudi writer of a later release has upgraded it, by its default hoodie.write.auto.upgrade=true"
            yield Refusal(found, _DOWNGRADE, _VERSION_9)
        else:
            yield Refusal(found, _UPGRADE, _VERSION_9) if table.version else Refusal(found)
    if table.layout != (OLD_LAYOUT if old else 2):
        found = f"its timeline has layout {table.layout or 'unknown'}, which does not go with table version {table.version}"
        yield Refusal(found, _UPGRADE, _VERSION_9) if table.layout == OLD_LAYOUT else Refusal(found)
    if table.text("hoodie.timeline.path", "timeline") != "timeline":
        yield Refusal("its hoodie.timeline.path is not `timeline`")
    if table.text("hoodie.timeline.history.path", "history") != "history":
        # What is in that folder tells whether older commits were archived.
        yield Refusal("its hoodie.timeline.history.path is not `history`")
    if table.type not in (COPY_ON_WRITE, MERGE_ON_READ):
        yield Refusal(f"its hoodie.table.type is {table.type}")
    if table.base_file_format != "PARQUET" or table.flag("hoodie.table.multiple.base.file.formats.enable"):
        yield Refusal("its base files are not all Parquet")
    if table.text("hoodie.table.format", "native").lower() != "native":
        yield Refusal("its hoodie.table.format is not `native`")
    if table.text("hoodie.bootstrap.base.path", ""):
        yield Refusal("it was bootstrapped: its rows live in files of another table")
    if table.flag("hoodie.datasource.write.drop.partition.columns"):
        yield Refusal(
            "its partition columns are not in the files (hoodie.datasource.write.drop.partition.columns=true)",
            made_with="hoodie.datasource.write.drop.partition.columns=false",
        )


def _write_refusals(table: TableProperties) -> Iterator[Refusal]:
    if table.version == OLD_VERSION:
        yield Refusal(f"it has table version {OLD_VERSION}, of Hudi 0.14 and 0.15", _UPGRADE, _VERSION_9)
    if table.is_merge_on_read:
        yield from _merge_on_read_refusals(table)
    yield from _metadata_refusals(table)
    if not table.flag("hoodie.populate.meta.fields", default=True):
        yield Refusal(
            "its rows carry no record keys (hoodie.populate.meta.fields=false)", made_with="hoodie.populate.meta.fields=true"
        )
    yield from _row_refusals(table)


def _merge_on_read_refusals(table: TableProperties) -> Iterator[Refusal]:
    """Reasons of merge-on-read tables besides those of all tables."""
    if table.ordering_field is not None:
        # Whether a delete, or a row older than the stored one, counts would depend on whether a compaction came in between.
        yield Refusal(
            "it is MERGE_ON_READ and orders the versions of a row by event time (hoodie.record.merge.mode, "
            "hoodie.table.ordering.fields)",
            made_with="hoodie.record.merge.mode=COMMIT_TIME_ORDERING",
        )
    if table.keys_span_partitions:
        yield Refusal("it is MERGE_ON_READ and has index=global, by which rows move from one partition to another")
    if table.text("hoodie.table.storage.layout", "default").lower() != "default":
        yield Refusal("its hoodie.table.storage.layout is not `default`")
    own = next((key for key in sorted(table.values) if key.startswith("hoodie.record.merge.property.")), "")
    if own:
        yield Refusal(f"it marks deleted rows in a way of its own ({own})")


_INDEXES = (
    ("secondary_index_", "hoodie.metadata.index.secondary.enable=false"),
    ("expr_index_", "hoodie.metadata.index.expression.enable=false"),
    ("bloom_filters", "hoodie.metadata.index.bloom.filter.enable=false"),
)
"""How the names of indexes in a metadata table begin, and what makes a Java writer build none; that is its default."""


def _metadata_refusals(table: TableProperties) -> Iterator[Refusal]:
    """Refusals because lakelock could not keep the metadata table true."""
    drop = "run `lakelock adopt --drop-metadata-table` while no writer runs: Java's next write builds a new one"
    underway = table.metadata_partitions_underway
    others = unkept(table.metadata_partitions)
    if underway:
        found = f"a Hudi writer is building {', '.join(underway)} in its metadata table ({METADATA_INFLIGHT})"
        yield Refusal(found, f"let that writer end; if it has died, {drop}")
    elif others:
        # A Java writer that is under way fails if they go meanwhile, so lakelock does not remove them by itself.
        found = f"its metadata table has indexes that lakelock does not keep: {', '.join(others)} ({METADATA_PARTITIONS})"
        off = ", ".join(dict.fromkeys(option for name in others for prefix, option in _INDEXES if name.startswith(prefix)))
        hint = f"run `lakelock adopt --remove-indexes` while no writer runs, and set {off} in every Hudi writer"
        yield Refusal(found, hint, off)
    elif table.metadata_partitions and FILES not in table.metadata_partitions:
        yield Refusal(f"its metadata table has no partition `{FILES}` ({METADATA_PARTITIONS})", drop)


def _row_refusals(table: TableProperties) -> Iterator[Refusal]:
    """Refusals because other writers would give rows other keys, places or versions."""
    if table.key_generator not in KNOWN_KEY_GENERATORS:
        yield Refusal(f"its key generator is {table.key_generator}; lakelock knows SIMPLE, COMPLEX and NON_PARTITION")
    if "COMPLEX" in table.key_generator and len(table.record_keys) == 1 and table.initial_version != table.version:
        yield Refusal(
            f"it was upgraded from table version {table.initial_version}, and releases of Hudi differ in how they spell keys "
            "of one column under the complex key generator",
            made_with=_VERSION_9,
        )
    # Avro allows no other dots in names.
    inside = dict.fromkeys(name for name, _ in table.needed_columns if "." in name)
    if inside:
        yield Refusal(f"its key, partition or ordering columns are fields of other columns: {', '.join(inside)}")
    if table.text(TRANSFORMS, "") and not table.transforms:
        yield Refusal(f"its partitions are computed in a way that this version does not know ({table.text(TRANSFORMS, '')})")
    if table.flag("hoodie.datasource.write.slash.separated.date.partitioning"):
        yield Refusal("it writes dates as nested folders (hoodie.datasource.write.slash.separated.date.partitioning=true)")
    if table.merge_mode not in KNOWN_MERGE_MODES or table.text("hoodie.table.partial.update.mode", ""):
        yield Refusal("it merges rows in its own way (hoodie.record.merge.mode or hoodie.table.partial.update.mode)")
    if table.ordering_field is not None and len(table.ordering_fields) > 1:
        yield Refusal("it orders rows by several columns (hoodie.table.ordering.fields)")
    if table.flag("hoodie.table.cdc.enabled"):
        yield Refusal("it keeps change logs (hoodie.table.cdc.enabled=true)", made_with="hoodie.table.cdc.enabled=false")
    yield from _index_refusals(table)


def _index_refusals(table: TableProperties) -> Iterator[Refusal]:
    engine, simple = table.text(ENGINE, "SIMPLE").upper(), f"{INDEX_TYPE}=SIMPLE"
    if engine != "SIMPLE":
        yield Refusal(f"its buckets are of {ENGINE}={engine}; lakelock writes those of SIMPLE", made_with=simple)
    elif table.text(EXPRESSIONS, ""):
        yield Refusal(f"its numbers of buckets differ by partition ({EXPRESSIONS})", made_with=simple)
    elif table.bucket_index is None and (
        table.text(INDEX_TYPE, "").upper() == "BUCKET" or any(key.startswith("hoodie.bucket.index.") for key in table.values)
    ):
        yield Refusal(f"it has a bucket index, but no {NUM_BUCKETS} and {HASH_FIELD} that fit its key", made_with=simple)
