"""The options of Delta, Hudi and Spark's own formats, what they are here, and in which use of a table an option has an effect.

A spelling is used where it means the same. Where it does not, it is a `SettingsError` that says what to type instead: no
option is passed over in silence, and none gets the guess of a near name that means something else. An option that only tunes
another engine changes no result here: it is passed over with a warning. An option that does nothing in a use of the table is
an error there.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from lakelock.errors import SettingsError
from lakelock.table.instants import has_zone


class Use(Enum):
    """What Spark does with a table."""

    BATCH_READ = "a read in a batch"
    STREAM_READ = "a stream from a table"
    BATCH_WRITE = "a write of a batch"
    STREAM_WRITE = "a stream into a table"


READS = (Use.BATCH_READ, Use.STREAM_READ)
WRITES = (Use.BATCH_WRITE, Use.STREAM_WRITE)
_USES: dict[str, tuple[Use, ...]] = {
    **dict.fromkeys(("max_files_per_trigger", "skip_change_commits"), (Use.STREAM_READ,)),
    **dict.fromkeys(("as_of", "until", "include_meta", "change_feed", "since"), READS),
    "query_type": (Use.BATCH_READ,),
    **dict.fromkeys(("txn_replay", "queryname"), (Use.STREAM_WRITE,)),
    "checkpointlocation": (Use.STREAM_READ, Use.STREAM_WRITE),
    **dict.fromkeys(("operation", "partitions_to_delete"), WRITES),
    **dict.fromkeys(("overwrite", "partitionoverwritemode", "overwrite_schema", "txn_app_id", "txn_version", "tag"), WRITES),
}
"""The options that are not for every use. Those of a stream that it cannot have, such as `as_of`, have errors of their own."""
_NOTHING = {"": "", "include_meta": "false", "change_feed": "false", "skip_change_commits": "false", "query_type": "snapshot"}
_NOTHING |= {"overwrite": "table", "partitionoverwritemode": "static", "overwrite_schema": "false", "txn_replay": "false"}


def without_effect(given: Mapping[str, str], uses: tuple[Use, ...]) -> Iterator[SettingsError]:
    """An error for each option, as spelled here, whose value asks for something that none of these uses does."""
    for name, value in given.items():
        effective = _USES.get(name, uses)
        # Spark asks a temporary view's source to read with all of the view's options, those of its INSERTs included.
        passing = (*effective, Use.BATCH_READ) if Use.BATCH_WRITE in effective else effective
        if not set(passing) & set(uses) and value.strip().lower() not in ("", _NOTHING.get(name)):
            yield SettingsError(
                f"the option {name} does nothing in {_listed(uses)}",
                hint=f"leave it out here: it is an option of {_listed(effective)}",
                key=name,
            )


def _listed(uses: tuple[Use, ...]) -> str:
    return " and ".join(use.value for use in uses)


OPERATIONS = ("insert", "bulk_insert", "upsert", "delete", "insert_overwrite", "insert_overwrite_table", "delete_partition")
"""Hudi's operations of a write that there are here."""
UPSERTS_BY_DEFAULT = ("hoodie.datasource.write.recordkey.field", "hoodie.table.recordkey.fields")
"""Where one of these names the key of a write, Hudi's operation is `upsert` unless it is named."""
ALL = tuple(Use)
_OF_CATALOG = "owner"
_NOT_TAKEN = "lakelock does not take "


@dataclass(frozen=True)
class Spelling:
    """One option as others spell it.

    `ours` is the option or setting of the same meaning; `only` says of which values that is true, and `only_text` says it for
    people. Values in `same` ask for what happens here anyway. `instead` is what to type for all other values. In the uses in
    `tunes` all values leave the result as it is.
    """

    peer: str
    name: str
    ours: str = ""
    same: tuple[str, ...] = ()
    instead: str = ""
    only: Callable[[str], bool] | None = None
    only_text: str = ""
    tunes: tuple[Use, ...] = ()

    def translated(self, value: str) -> tuple[str, str] | None:
        """Our option and its value, None where the value asks for nothing in particular; `SettingsError` with `instead`."""
        if value.strip().lower() in self.same:
            return None
        if self.ours and (self.only is None or self.only(value)):
            return self.ours, value
        what = f"{self.peer}'s option {self.name}" + (f"={value}" if self.same or self.only else "")
        raise SettingsError(f"{_NOT_TAKEN}{what}", hint=self.instead, key=self.name)


_CHANGES = "LakeTable.for_path(spark, path).changes(since, until=...) is the frame of the rows that have changed"
_FEED = (
    '.option("change_feed", "true").option("since", instant), or LakeTable.changes(since, feed="commits"); '
    "table.history() lists the instants"
)
_SINCE = (
    '.option("since", instant), also "latest" for a stream; it begins after that, where Delta\'s starting version is included; '
    "table.history() lists the instants"
)
_NO_VERSIONS = 'tables here have instants, not version numbers: .option("as_of", instant); table.history() lists them'
_WHERE = "LakeTable.for_path(spark, path).overwrite(df, where=...) replaces the rows that satisfy a condition"
_KNOWS_ITS_FILES = "leave it out: a table knows its files and columns. LakeTable.for_path(spark, path).read(where) skips files"
_NO_SYNC = "set catalog.type, catalog.table and catalog.uris: each commit then tells the metastore what Hudi's sync does"
_TASKS = "leave it out: df.repartition(n) sets the tasks of an append; the other writes choose their own"
_BY_KEY = "leave it out: a table that is made here has the key generator that fits key and partition_by, others keep their own"
_OPERATION = f"use {', '.join(OPERATIONS)}; LakeTable.for_path(spark, path) has merge(df, on), update and more"
_UPKEEP = "upkeep cleans and archives beside live writers: upkeep.auto and upkeep.every_commits say when"
_OWN_WAY = "leave it out: markers, timeline and row groups are lakelock's own"
_CHANGED_ROWS = (
    '.option("change_feed", "true") tells what was changed and deleted, and .option("skip_change_commits", "true") passes over '
    "commits that did so"
)
_SIZES = (
    "leave it out: write.target_file_bytes and write.target_file_rows bound a file, "
    "and table.optimize().execute() joins small files"
)

SPELLINGS: tuple[Spelling, ...] = (
    Spelling(
        "Delta", "timestampAsOf", "as_of", only=has_zone, only_text="with a zone: `2026-11-20T12:00:00Z`",
        instead='Delta reads a time without a zone in the session\'s: write .option("as_of", "2026-11-20 12:00") in UTC, '
        "or add the zone, as in 2026-11-20T12:00:00+01:00",
    ),
    Spelling("Delta", "versionAsOf", instead=_NO_VERSIONS),
    Spelling("Delta", "readChangeFeed", "change_feed", same=("false",)),
    Spelling("Delta", "readChangeData", "change_feed", same=("false",)),
    Spelling("Delta", "startingVersion", instead=_SINCE),
    Spelling("Delta", "startingTimestamp", instead=_SINCE),
    Spelling("Delta", "endingVersion", instead='.option("until", instant), which is included'),
    Spelling(
        "Delta", "endingTimestamp", "until", only=has_zone, only_text="with a zone: `2026-11-20T12:00:00Z`",
        instead='.option("until", "2026-11-20 12:00") in UTC, or add the zone, as in 2026-11-20T12:00:00+01:00',
    ),
    Spelling("Delta", "maxFilesPerTrigger", "max_files_per_trigger"),
    Spelling("Delta", "maxBytesPerTrigger", instead=".option(\"max_files_per_trigger\", n)"),
    Spelling("Delta", "skipChangeCommits", "skip_change_commits"),
    *(
        Spelling("Delta", name, same=("false",), instead=_CHANGED_ROWS)
        for name in ("ignoreChanges", "ignoreDeletes")
    ),
    Spelling("Delta", "replaceWhere", instead=_WHERE),
    Spelling("Delta", "mergeSchema", "write.merge_schema"),
    Spelling("Delta", "overwriteSchema", "overwrite_schema", same=("false",)),
    Spelling("Delta", "userMetadata", "tag"),
    Spelling("Delta", "txnAppId", "txn_app_id"),
    Spelling("Delta", "txnVersion", "txn_version"),
    Spelling("Delta", "dataChange", same=("true",), instead="table.optimize().execute() is the write that changes no row"),
    Spelling("Delta", "optimizeWrite", same=("false",), instead=_SIZES, tunes=ALL),
    Spelling("Delta", "clusterBy", instead="table.optimize(sort_by=[...]).execute() sorts the rows of the files that it joins"),
    Spelling("Delta", "delta.*", instead="leave it out: properties of Delta's tables have no effect here"),
    Spelling("Hudi", "as.of.instant", "as_of"),
    Spelling(
        "Hudi", "hoodie.datasource.query.type", "query_type", same=("snapshot",),
        only=lambda value: value.strip().lower() == "read_optimized", only_text="read_optimized", instead=_CHANGES,
    ),
    Spelling("Hudi", "hoodie.datasource.query.incremental.format", instead=_FEED),
    Spelling("Hudi", "hoodie.datasource.read.begin.instanttime", instead=_CHANGES),
    Spelling("Hudi", "hoodie.datasource.read.end.instanttime", instead=_CHANGES),
    Spelling(
        "Hudi", "hoodie.datasource.write.operation", "operation", instead=_OPERATION,
        only=lambda value: value.strip().lower() in OPERATIONS, only_text=" ".join(f"`{name}`" for name in OPERATIONS),
    ),
    Spelling("Hudi", "hoodie.datasource.write.partitions.to.delete", "partitions_to_delete"),
    Spelling("Hudi", "hoodie.datasource.write.recordkey.field", "key"),
    Spelling("Hudi", "hoodie.table.recordkey.fields", "key"),
    Spelling("Hudi", "hoodie.datasource.write.partitionpath.field", "partition_by"),
    Spelling("Hudi", "hoodie.table.partition.fields", "partition_by"),
    Spelling("Hudi", "hoodie.datasource.write.precombine.field", "order_by"),
    Spelling("Hudi", "hoodie.table.precombine.field", "order_by"),
    Spelling("Hudi", "hoodie.table.ordering.fields", "order_by"),
    Spelling("Hudi", "hoodie.table.name", "name"),
    Spelling("Hudi", "hoodie.write.table.version", "table_version"),
    Spelling("Hudi", "hoodie.datasource.write.table.name", "name"),
    Spelling("Hudi", "hoodie.datasource.write.hive_style_partitioning", "hive_style"),
    Spelling("Hudi", "hoodie.datasource.write.table.type", "table_type"),
    Spelling("Hudi", "hoodie.table.type", "table_type"),
    Spelling("Hudi", "hoodie.datasource.write.keygenerator.class", instead=_BY_KEY),
    Spelling("Hudi", "hoodie.datasource.write.keygenerator.type", instead=_BY_KEY),
    Spelling(
        "Hudi", "hoodie.datasource.write.payload.class", same=("org.apache.hudi.common.model.defaulthoodierecordpayload",),
        instead="leave it out: the newest row by order_by wins. table.merge(df, on) says anything else",
    ),
    Spelling(
        "Hudi", "hoodie.datasource.write.insert.drop.duplicates", same=("false",),
        instead="LakeTable.for_path(spark, path).merge(df, on).when_not_matched_insert_all() inserts only keys that are new",
    ),
    Spelling(
        "Hudi", "hoodie.combine.before.insert", same=("false",),
        instead="drop the duplicates before writing, df.dropDuplicates([key]), or use LakeTable.upsert",
    ),
    Spelling(
        "Hudi", "hoodie.metadata.enable", same=("false",), tunes=ALL,
        instead="leave it out: the metadata table of a table that has one is kept true, and lakelock makes none",
    ),
    *(
        Spelling("Hudi", name, tunes=ALL, instead="a read takes the table's file index, and skips files by it")
        for name in ("hoodie.file.index.enable", "hoodie.enable.data.skipping")
    ),
    Spelling(
        "Hudi", "hoodie.datasource.write.reconcile.schema", same=("false",),
        instead='.option("mergeSchema", "true") adds and widens columns; missing_columns of an upsert is for missing ones',
    ),
    *(
        Spelling("Hudi", f"hoodie.{name}", tunes=ALL, instead=_TASKS)
        for name in (
            *(f"{operation}.shuffle.parallelism" for operation in ("insert", "upsert", "bulkinsert", "delete")),
            *(f"{index}.index.parallelism" for index in ("bloom", "simple", "global.simple")),
            *(f"{step}.parallelism" for step in ("finalize.write", "rollback", "cleaner", "archive")),
            "bulkinsert.sort.mode", "datasource.write.row.writer.enable",
        )
    ),
    *(
        Spelling("Hudi", f"hoodie.{name}", tunes=ALL, instead=instead)
        for names, instead in (
            (("clean.automatic", "clean.async", "clean.async.enabled", "archive.automatic", "archive.async"), _UPKEEP),
            (("clustering.inline", "clustering.async.enabled", "parquet.small.file.limit"), _SIZES),
            (("embed.timeline.server", "write.markers.type", "parquet.block.size", "parquet.page.size"), _OWN_WAY),
        )
        for name in names
    ),
    Spelling("Hudi", "hoodie.parquet.max.file.size", "write.target_file_bytes"),
    Spelling("Hudi", "hoodie.datasource.hive_sync.*", same=("false",), instead=_NO_SYNC),
    Spelling("Hudi", "hoodie.datasource.meta.sync.*", same=("false",), instead=_NO_SYNC),
    Spelling("Spark", "compression", "write.compression"),
    Spelling("Spark", "maxRecordsPerFile", "write.target_file_rows"),
    *(
        Spelling("Spark", name, instead=_KNOWS_ITS_FILES)
        for name in ("basePath", "recursiveFileLookup", "pathGlobFilter", "modifiedBefore", "modifiedAfter", "inferSchema")
    ),
    Spelling(
        "Spark", _OF_CATALOG,
        instead="Spark's catalog keeps neither path nor options of such a table: CREATE TEMPORARY VIEW t USING lakelock "
        "OPTIONS (path '...'), or LakeTable.create(spark, path, ...)",
    ),
)  # fmt: skip
"""Every spelling. A name that ends in `*` stands for all that begin so."""

_BY_NAME = {spelling.name.lower(): spelling for spelling in SPELLINGS}
_BY_PREFIX = {name[:-1]: spelling for name, spelling in _BY_NAME.items() if name.endswith("*")}


def spelling_of(name: str) -> Spelling | None:
    """The spelling with this name, in any case; None for a name that no engine has."""
    name = name.lower()
    return _BY_NAME.get(name) or next((found for prefix, found in _BY_PREFIX.items() if name.startswith(prefix)), None)


@dataclass
class Translated:
    """Options in our spelling, with lower-case names: what is refused (`problems`), and what is `passed_over`, and why."""

    options: dict[str, str] = field(default_factory=dict)
    problems: list[SettingsError] = field(default_factory=list)
    passed_over: dict[str, str] = field(default_factory=dict)

    def warn(self) -> None:
        """One warning that names all that was passed over."""
        if self.passed_over:
            lines = "\n  ".join(f"{name}: {why}" for name, why in self.passed_over.items())
            warnings.warn(f"options that change no result here are passed over:\n  {lines}", UserWarning, stacklevel=4)


def translated(given: Mapping[str, str], uses: Iterable[Use] = ALL) -> Translated:
    """Each option in our spelling. Hudi has several names for some, which may stand side by side if they say the same."""
    found = Translated()
    of_catalog = [key for key in given if key.lower() == _OF_CATALOG]
    given = {key: given[key] for key in of_catalog} or given  # what else Spark's catalog says with it is no option
    written: dict[str, tuple[str, Spelling | None]] = {}
    for key, value in given.items():
        spelling = spelling_of(key)
        if spelling is not None and spelling.tunes and set(uses) <= set(spelling.tunes):
            if value.strip().lower() not in spelling.same:
                found.passed_over[spelling.name] = spelling.instead
            continue
        try:
            meant = (key.lower(), value) if spelling is None else spelling.translated(value)
        except SettingsError as error:
            found.problems.append(error)
            continue
        if meant is None:
            continue
        name, value = meant
        if name in written:
            other, its = written[name]
            if found.options[name] != value or not (spelling and its and spelling.peer == its.peer):
                same = SettingsError(f"{other} and {key} are the same option", hint="give one of them", key=name)
                found.problems.append(same)
        found.options[name], written[name] = value, (key, spelling)
    return found


def normalised(given: Mapping[str, str], uses: Iterable[Use] = ALL) -> dict[str, str]:
    """Options in our spelling, with lower-case names; `SettingsError` that names all that mean something else here."""
    found = translated(given, uses)
    refuse(found.problems)
    found.warn()
    return found.options


def refuse(problems: Sequence[SettingsError]) -> None:
    """`SettingsError` that says all of this at once, if it is anything."""
    if len(problems) == 1:
        raise problems[0]
    if problems:
        lines = "\n  ".join(f"{each.message.removeprefix(_NOT_TAKEN)}; {each.hint}" for each in problems)
        raise SettingsError(
            f"{_NOT_TAKEN}{len(problems)} of these options:\n  {lines}",
            hint="correct these options, and leave out those that have no counterpart",
            keys=[problem.details.get("key", "") for problem in problems],
        )
