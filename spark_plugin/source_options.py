"""The options of `format("lakelock")`: what they say of the table and the read or write, and the session's confs.

Spark gives a Python data source nothing but its options: neither the process that plans a write nor the one that commits it
can ask the session. So the driver registers a data source that carries the session's confs under `spark.lakelock.`
(`registration.py`), and the data source never works without them. The tasks can tell whether that was done and is still
current: Spark sends them every conf of the session.

Spark plans reads and commits writes of a data source in processes of their own, a new one for each micro-batch. They run no
code of the user's. PyArrow imports pandas when it converts Python values for the first time, to know pandas' values from
others; in such a process there are none, and the import is most of what the process would spend.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Literal

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StructType

from lakelock.engine.batch import compacts
from lakelock.errors import SettingsError, TableError
from lakelock.identity import job_name
from lakelock.occ.change_feed import position_at
from lakelock.occ.commit_keys import AppTransaction
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.create import Definition, checked_type
from lakelock.occ.open_table import OpenTable
from lakelock.occ.reading import QueryType, ensure_not_future
from lakelock.settings import Settings
from lakelock.settings.hudi import HIVE_KEYS, from_hudi_properties
from lakelock.settings.resolver import SPARK_PREFIX, Resolved, setting_of
from lakelock.spark_plugin.source_option_names import (
    READS,
    SPELLINGS,
    UPSERTS_BY_DEFAULT,
    WRITES,
    Use,
    normalised,
    refuse,
    translated,
    without_effect,
)
from lakelock.spark_plugin.spark_session import application_of, arrow_schema
from lakelock.storage.hadoop import as_spark_reads, completed
from lakelock.storage.location import StorageLocation, canonical_uri
from lakelock.table.index import parsed_index
from lakelock.table.instants import as_of_time
from lakelock.table.properties import COPY_ON_WRITE, NEWEST_VERSION
from lakelock.table.timeline import Timeline
from lakelock.table.transforms import parsed_transform, split_columns
from lakelock.texts import did_you_mean

_NEVER_EMPTY = ("as_of", "partition", "since", "until", "txn_app_id", "txn_version")


def true_or_false(name: str, text: str) -> bool:
    """What the text of an option means, in any case; `SettingsError` for anything but true and false."""
    value = text.lower()
    if value not in ("true", "false"):
        raise SettingsError(f"the option {name} is {value!r}", hint="use true or false")
    return value == "true"


def refuse_empty(given: Mapping[str, str]) -> None:
    """`SettingsError` for an option that chooses rows or numbers a write, and is an empty text, as of a variable not set."""
    for name in _NEVER_EMPTY:
        if name in given and not given[name].strip():
            raise SettingsError(f"the option {name} is an empty text", hint="give it a value, or leave it out", key=name)


CHANGE_OPTIONS = ("change_feed", "since", "until", "max_files_per_trigger", "skip_change_commits")
LATEST = "latest"


@dataclass(frozen=True)
class ChangeOptions:
    """`feed`: the changes of each commit, instead of rows. `since` and `until` are instants, times or versions of the feed."""

    feed: bool = False
    since: str | None = None
    until: str | None = None
    most_files: int | None = None
    skip_change_commits: bool = False

    @classmethod
    def of(cls, given: Mapping[str, str]) -> ChangeOptions:
        """From options with lower-case names; `SettingsError` for a value that means nothing."""
        return cls(
            _feed(given.get("change_feed", "false")),
            _moment(given.get("since", "")),
            _moment(given.get("until", "")),
            _positive(given.get("max_files_per_trigger")),
            true_or_false("skip_change_commits", given.get("skip_change_commits", "false").strip()),
        )

    def check_batch(self, as_of: str | None) -> None:
        """`SettingsError` for what a batch cannot have."""
        if self.feed and as_of is not None:
            hint = "until says where a change feed ends"
            raise SettingsError("a change feed is not read as of a time", hint=hint)
        if self.feed and (self.since is None or self.since == LATEST):
            hint = 'give .option("since", instant), after which it begins; table.history() lists the instants'
            raise SettingsError("a change feed that is read in a batch needs to know where it begins", hint=hint)
        if not self.feed and (self.since or self.until):
            hint = '.option("change_feed", "true") gives the changes; LakeTable.changes(since) the changed rows'
            raise SettingsError("since and until are options of a change feed", hint=hint)

    def check_stream(self, as_of: str | None) -> None:
        """`SettingsError` for what a stream cannot have."""
        if self.until is not None or as_of is not None:
            hint = 'leave it out; .option("since", ...) says where a stream begins, and .trigger(availableNow=True) ends it'
            raise SettingsError("a stream goes on: it takes neither until nor as_of", hint=hint)
        if self.feed and self.skip_change_commits:
            hint = "leave skip_change_commits out, or change_feed"
            raise SettingsError("a change feed tells changes, and skip_change_commits leaves them out", hint=hint)


def position_of_text(table: OpenTable, timeline: Timeline, text: str, zone: str, name: str) -> str:
    """The position that the option `name` means: that of a commit by its instant, a version of the feed, or a time.

    `zone`: that of the table's instants. `InputError` for a time that is still to come.
    """
    return position_at(table, timeline, ensure_not_future(table, zone, as_of_time(text, zone), name))


def _moment(text: str) -> str | None:
    """A moment without the spaces around it; `LATEST` in any case."""
    text = text.strip()
    return LATEST if text.lower() == LATEST else text or None


def _feed(text: str) -> bool:
    value = text.strip().lower()
    if value not in ("true", "false", "commits"):
        hint = 'use true or false; LakeTable.for_path(spark, path).changes(since, feed="net") compares first and last state'
        raise SettingsError(f"the option change_feed is {text!r}", hint=hint)
    return value != "false"


def _positive(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.strip().isdigit()) or int(text) < 1:
        hint = "use a whole number of at least 1; a commit with more files than that still comes whole"
        raise SettingsError(f"the option max_files_per_trigger is {text!r}", hint=hint)
    return int(text)


TABLE_OPTIONS = ("key", "partition_by", "order_by", "name", "hive_style", "index", "table_version", "table_type")


@dataclass(frozen=True)
class StatedTable:
    """The arguments of `LakeTable.create` as options; None where there is no such option. Columns are separated by commas."""

    key: tuple[str, ...] | None = None
    partition_by: tuple[str, ...] | None = None
    order_by: str | None = None
    name: str | None = None
    hive_style: bool | None = None
    index: str | None = None
    table_version: int | None = None
    table_type: str | None = None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> StatedTable:
        """From options with lower-case names; `SettingsError` for a value that means nothing."""
        hive_style = given.get("hive_style", "").strip()
        return cls(
            key=_columns(given.get("key")),
            partition_by=_columns(given.get("partition_by")),
            order_by=given.get("order_by"),
            name=given.get("name"),
            hive_style=true_or_false("hive_style", hive_style) if hive_style else None,
            index=given.get("index"),
            table_version=_version(given.get("table_version", "").strip()),
            table_type=given.get("table_type", "").strip() or None,
        )

    def definition(self, location: StorageLocation, columns: StructType) -> Definition:
        """The table to make for rows with these columns; without a key if no option names one."""
        return Definition.of(
            location,
            arrow_schema(columns),
            key=self.key or (),
            partition_by=self.partition_by or (),
            order_by=self.order_by or None,
            name=self.name,
            hive_style=self.hive_style is not False,
            index=self.index or None,
            table_version=self.table_version or NEWEST_VERSION,
            table_type=self.table_type or COPY_ON_WRITE,
        )

    def check(self, table: Coordinator) -> None:
        """`TableError` if the table is not as the options say, where they say something."""
        wrong = list(self._differences(table))
        if wrong:
            raise TableError(
                f"{table.table.storage.uri} is a table already, and not as the options say:\n  " + "\n  ".join(wrong),
                hint="leave these options out, for the table records what it is; or check the path",
            )

    def _differences(self, table: Coordinator) -> Iterator[str]:
        found = table.properties
        given, computed = self.partition_by, {str(transform).lower(): str(transform) for transform in found.transforms}
        texts = None if given is None else tuple(str(parsed_transform(text) or text) for text in given)
        partition_by = None if texts is None else tuple(computed.get(text.lower(), text) for text in texts)
        index = None if self.index is None else str(parsed_index(self.index).hashing(found.record_keys))
        for what, wanted, has in (
            ("key", self.key, found.record_keys),
            ("partition_by", partition_by, found.partition_by),
            ("order_by", self.order_by, found.ordering_field or ""),
            ("name", self.name, found.name),
            ("hive_style", self.hive_style, found.hive_style if found.partition_fields else self.hive_style),
            ("index", index, str(found.index)),
            ("table_version", self.table_version, found.version),
            ("table_type", None if self.table_type is None else checked_type(self.table_type), found.type),
        ):
            if wanted is not None and wanted != has:
                yield f"{what}: {_shown(wanted)} was given, the table has {_shown(has)}"


def _columns(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(split_columns(text))


def _version(text: str) -> int | None:
    if text and not (text.isascii() and text.isdigit()):
        raise SettingsError(f"table_version is {text!r}, which is no number", hint="write 8 or 9", key="table_version")
    return int(text) if text else None


def _shown(value: object) -> str:
    text = ", ".join(value) if isinstance(value, tuple) else str(value)
    return text or "none"


_FILE = "config"
OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"
"""Spark's own conf for what an overwrite replaces. It applies to `format("lakelock")`, too, and reaches it in the same way."""
OF_READS = ("storage.", "listing.", _FILE)
"""The settings that a read depends on: it takes no lock."""


def conf_in_task() -> dict[str, str]:
    """The session's confs under `spark.lakelock.`, as Spark sent them along with the running task."""
    return {key: value for key, value in _sent_along().items() if key.startswith(SPARK_PREFIX)}


def _sent_along() -> Mapping[str, str]:
    context = TaskContext.get()
    return (context._localProperties if context is not None else None) or {}


APP_NAME, APP_ID = "spark.app.name", "spark.app.id"
"""Under these the driver tells the name of its job, and the id of Spark's application in a cluster."""


def overwrites_partitions(conf: Mapping[str, str]) -> bool:
    """Whether these confs say that an overwrite replaces only the partitions that it has rows for."""
    return conf.get(OVERWRITE_MODE, "").lower() == "dynamic"


def ensure_overwrite_known(known: bool) -> None:
    """In a task of an overwrite: `SettingsError` if the session replaces partitions, or the table, contrary to `known`."""
    if overwrites_partitions(_sent_along()) != known:
        raise SettingsError(
            f'format("lakelock") does not know how the session sets {OVERWRITE_MODE}: Spark gives it only options',
            hint='give it as an option, .option("partitionOverwriteMode", "dynamic") or "static"; or call '
            "lakelock.spark_plugin.register(spark) after setting the conf",
            key=OVERWRITE_MODE,
        )


def chosen_by_options(resolved: Resolved, file: str | None) -> frozenset[str]:
    """The settings that options determine, whatever the session says."""
    given = {key for key, found in resolved.origins.items() if found.origin.startswith("option")}
    return frozenset(given | {_FILE} if file else given)


def ensure_known(
    session: Mapping[str, str], known: Mapping[str, str], chosen: frozenset[str], of: tuple[str, ...] = ()
) -> None:
    """`SettingsError` if the `session` sets, or no longer sets, what is not `known` and no option has `chosen`.

    `of`: only settings whose names begin with one of these matter.
    """
    changed = sorted(key for key in {*session, *known} if session.get(key) != known.get(key))
    unknown = [key for key in changed if _setting(key) not in chosen and (not of or _setting(key).startswith(of))]
    if unknown:
        name = _setting(unknown[0])
        raise SettingsError(
            f'format("lakelock") does not know how the session sets {", ".join(unknown)}: Spark gives it only options',
            hint="call lakelock.spark_plugin.register(spark) after setting the confs, and again after changing them; or give "
            f'the setting as an option: .option("{name}", ...)',
            key=name,
        )


def _setting(conf: str) -> str:
    """The setting that a conf is about, `config` for the file."""
    name = conf[len(SPARK_PREFIX) :].lower()
    return name if name == _FILE else setting_of(name) or name


PLANNERS = ("pyspark.sql.worker.", "pyspark.sql.streaming.")
"""Where the modules are that these processes run: Spark names one when it starts the process."""


def spare_pandas() -> None:
    """In such a process: have PyArrow do without pandas from now on. Code that imports pandas itself still gets it."""
    if "pandas" in sys.modules or not any(argument.startswith(PLANNERS) for argument in sys.orig_argv):
        return
    refusal = _Refusal()
    sys.meta_path.insert(0, refusal)
    try:
        pa.array([])  # PyArrow looks for pandas once, and remembers
    finally:
        sys.meta_path.remove(refusal)


class _Refusal(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError("not needed here", name=name)
        return None


OWN = (
    "path", "as_of", "query_type", "include_meta", "overwrite", "overwrite_schema", "application", "config", "txn_app_id",
    "txn_version", "txn_replay", "tag", "partition", "operation", "partitions_to_delete",
    *TABLE_OPTIONS, *CHANGE_OPTIONS,
)  # fmt: skip
_HADOOP = ("fs.", "google.cloud.", "dfs.")
_OVERWRITE_MODE = "partitionoverwritemode"
_SPARKS = {"checkpointlocation", "queryname"}
_REFUSED = {
    "partitionby": "write partition_by for a new table; an existing one records how it is partitioned: leave partitionBy out",
}
_DESTRUCTIVE = ("overwrite", "overwrite_schema", _OVERWRITE_MODE, "overwriteSchema", "operation", "partitions_to_delete")
_OF_DRIVER = ("upsert", "delete", "insert_overwrite", "insert_overwrite_table", "delete_partition")
_STREAMED = (
    "table = LakeTable.for_path(spark, path), then df.writeStream.foreachBatch(table.upsert_batch) upserts each batch once; "
    "the operation insert appends, and looks up no key"
)
_IN_DRIVER = (
    "call lakelock.spark_plugin.register(spark) in the driver first, which then runs it; or LakeTable.for_path(spark, path): "
    "upsert(df), delete(keys_df), overwrite_partitions(df), overwrite(df). The operation insert appends, and looks up no key"
)


@dataclass(frozen=True)
class SourceOptions:
    """The options, parsed. An unknown one is a `SettingsError` that names the nearest known one."""

    path: str
    settings: Settings
    conf: Mapping[str, str]
    chosen: frozenset[str]
    as_of: str | None
    query_type: QueryType
    include_meta: bool
    overwrite: Literal["table", "partitions"]
    overwrite_chosen: bool
    overwrite_schema: bool
    application: str
    run: str
    txn_app_id: str | None
    txn_version: int | None
    txn_replay: bool
    tag: str
    partition: str | None
    operation: str
    partitions_to_delete: tuple[str, ...]
    stated: StatedTable
    changes: ChangeOptions

    @classmethod
    def parse(
        cls,
        options: Mapping[str, str],
        conf: Mapping[str, str] | None = None,
        uses: tuple[Use, ...] = tuple(Use),
        *,
        in_driver: bool = False,
        warn: bool = False,
    ) -> SourceOptions:
        """`SettingsError` that names all options that cannot be taken.

        `conf`: the known confs of the session that start with `spark.lakelock.`. `uses`: what the options may be for.
        `in_driver`: whether Hudi's operations that look up keys can run. `warn`: of options that are passed over.
        """
        found = translated(options, uses)
        given = found.options
        operation, refused = _operation(options, given, uses, in_driver=in_driver)
        refuse([*found.problems, *_refused(given), *without_effect(given, uses), *refused, *_not_settings(_settings(given))])
        if warn:
            found.warn()
        if not given.get("path"):
            raise SettingsError(
                'format("lakelock") needs a path',
                hint="use .load(path) or .save(path); in SQL: INSERT INTO t WITH ('path' = '...'), "
                "or a temporary view USING lakelock OPTIONS (path '...'). A name in Spark's catalog has no path: DROP TABLE it",
            )
        refuse_empty(given)
        conf = dict(conf or {})
        overwrite, chosen = _overwrite(given, sparks=overwrites_partitions(conf))
        conf.pop(OVERWRITE_MODE, None)
        named = job_name(os.environ, ["spark-data-source"], conf.pop(APP_NAME, ""))
        run = conf.pop(APP_ID, "")
        hadoop = {name: conf.pop(name) for name in list(conf) if name.startswith(_HADOOP)}
        resolved = Settings.resolve(_settings(given), conf, given.get("config"))
        path = as_spark_reads(given["path"], hadoop.get)
        storage = completed(canonical_uri(path), resolved.settings.storage, hadoop.get)
        return cls(
            path=path,
            settings=replace(resolved.settings, storage=storage),
            conf=conf,
            chosen=chosen_by_options(resolved, given.get("config")),
            as_of=given.get("as_of") or None,
            query_type=query_type_of(given.get("query_type")),
            include_meta=true_or_false("include_meta", given.get("include_meta", "false")),
            overwrite=overwrite,
            overwrite_chosen=chosen,
            overwrite_schema=true_or_false("overwrite_schema", given.get("overwrite_schema", "false")),
            application=given.get("application") or named,
            run=run,
            txn_app_id=given.get("txn_app_id"),
            txn_version=_whole(given.get("txn_version")),
            txn_replay=true_or_false("txn_replay", given.get("txn_replay", "false")),
            tag=given.get("tag", ""),
            partition=given.get("partition") or None,
            operation=operation,
            partitions_to_delete=tuple(filter(None, map(str.strip, given.get("partitions_to_delete", "").split(",")))),
            stated=StatedTable.of(given),
            changes=ChangeOptions.of(given),
        )

    def application_of_stream(self, query: str | None, batch_id: int) -> AppTransaction | None:
        """A micro-batch's number, as Spark counts it, in the query's name.

        `txn_app_id` replaces that name. A query with a new checkpoint is then not a new application, but Spark counts its
        batches from 0 again: it stops at one that another query has applied, unless `txn_replay` says that it is the same.
        """
        name = self.txn_app_id or query
        return application_of(name, batch_id) if name else None

    def refuse_version(self) -> None:
        """`SettingsError` if a stream is given a version."""
        if self.txn_version is not None:
            hint = "leave it out; in foreachBatch, where the batch is yours, give both to batch_df.write"
            raise SettingsError("a stream has no txn_version: Spark numbers its micro-batches", hint=hint)

    def check_mode(self, overwrite: bool) -> None:
        """`SettingsError` for what a write in Spark's mode overwrite, or one that appends, cannot have."""
        if not overwrite and self.overwrite_chosen and self.overwrite == "partitions":
            hint = 'replace them with .mode("overwrite"), or leave it out to add the rows'
            raise SettingsError("overwrite=partitions replaces partitions, and the mode is append", hint=hint)
        if overwrite and self.overwrite == "table" and self.partition:
            hint = '.option("overwrite", "partitions") replaces only partitions that the rows are of; or leave partition out'
            raise SettingsError(f"an overwrite of the whole table goes beyond partition={self.partition}", hint=hint)

    def ensure_session_known(self, of: tuple[str, ...] = ()) -> None:
        """In a task: `SettingsError` if the session sets something that these settings lack; `of` as in `ensure_known`."""
        ensure_known(conf_in_task(), self.conf, self.chosen, of)

    def ensure_overwrite_known(self) -> None:
        """In a task of an overwrite: `SettingsError` if the session wants another part of the table overwritten."""
        if not self.overwrite_chosen:
            ensure_overwrite_known(self.overwrite == "partitions")

    @property
    def location(self) -> StorageLocation:
        return StorageLocation.of(self.path, self.settings.storage)

    def open(self) -> Coordinator:
        """Open the table, in any process; `TableError` unless it is as the options say."""
        spare_pandas()
        table = Coordinator.open(self.location, self.settings, application=self.application, run=self.run)
        try:
            self.stated.check(table)
            compacts(table)
        except BaseException:
            table.close()
            raise
        return table


@dataclass(frozen=True)
class ReadOptions:
    """The options of a read that `LakeTable.read` takes, too."""

    as_of: str | None
    include_meta: bool
    partition: str | None
    query_type: QueryType

    @classmethod
    def parse(cls, options: Mapping[str, object]) -> ReadOptions:
        """An unknown option is a `SettingsError` that names the nearest known one."""
        given = normalised({key: str(value) for key, value in options.items()}, READS)
        refuse_empty(given)
        for key in given:
            if key in CHANGE_OPTIONS:
                hint = 'table.changes(since, feed="commits") is the frame, and spark.readStream.format("lakelock") the stream'
                raise SettingsError(f'a read has no option "{key}"', hint=hint, key=key)
            if key not in _OF_READ:
                raise SettingsError(
                    f'a read has no option "{key}"{did_you_mean(key, _OF_READ)}',
                    hint=f"it has {', '.join(_OF_READ)}; settings belong into LakeTable.for_path(spark, path, options=...)",
                    key=key,
                )
        include_meta = true_or_false("include_meta", given.get("include_meta", "false"))
        query_type = query_type_of(given.get("query_type"))
        return cls(given.get("as_of") or None, include_meta, given.get("partition") or None, query_type)


def query_type_of(text: str | None) -> QueryType:
    """The type of query that the option names; `SettingsError` for an unknown one."""
    found: dict[str, QueryType] = {"snapshot": "snapshot", "read_optimized": "read_optimized"}
    given = "snapshot" if text is None else text.strip().lower()
    if given not in found:
        hint = "use snapshot, or read_optimized for the base files of a merge-on-read table; changes(since) gives changed rows"
        raise SettingsError(f"the query type is {text!r}", hint=hint, key="query_type")
    return found[given]


_OF_READ = ("as_of", "include_meta", "partition", "query_type")


def _overwrite(given: Mapping[str, str], *, sparks: bool) -> tuple[Literal["table", "partitions"], bool]:
    """What an overwrite replaces, and whether an option says so; `sparks`: whether Spark's own conf says partitions."""
    ours, mode = given.get("overwrite", "").lower(), given.get(_OVERWRITE_MODE, "").lower()
    if ours not in ("", "table", "partitions"):
        raise SettingsError(f"the option overwrite is {ours!r}", hint="use table or partitions")
    if mode not in ("", "static", "dynamic"):
        raise SettingsError(f"the option partitionOverwriteMode is {mode!r}", hint="use static or dynamic")
    if ours and mode and (ours == "partitions") != (mode == "dynamic"):
        hint = "partitionOverwriteMode=dynamic means overwrite=partitions, static means table: give one of them"
        raise SettingsError(f"the options overwrite={ours} and partitionOverwriteMode={mode} contradict each other", hint=hint)
    partitions = ours == "partitions" or mode == "dynamic" or (not ours and not mode and sparks)
    return "partitions" if partitions else "table", bool(ours or mode)


def _whole(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        hint = "use a whole number that grows from write to write and is the same when a write is run again"
        raise SettingsError(f"the option txn_version is {text!r}, not a whole number", hint=hint) from None


def settings_given(options: Mapping[str, str]) -> tuple[dict[str, str], str | None]:
    """The settings among the options, as `LakeTable` takes them, and the file that they name."""
    given = translated(options).options
    return _settings(given), given.get("config")


def _settings(given: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in given.items() if key not in (*OWN, *_SPARKS, *_REFUSED, _OVERWRITE_MODE)}


def _refused(given: Mapping[str, str]) -> Iterator[SettingsError]:
    for key, why in _REFUSED.items():
        if key in given:
            yield SettingsError(f'format("lakelock") has no option {key!r}', hint=why, key=key)


def _not_settings(rest: Mapping[str, str]) -> Iterator[SettingsError]:
    """An error for each of these options that is no setting, and for each of Hudi's keys that has no effect."""
    hudis = {key: value for key, value in rest.items() if key.startswith("hoodie.")}
    for warning in from_hudi_properties("options", hudis).warnings:
        yield SettingsError(warning, hint="docs/reference-settings.md lists Hudi's keys that have a counterpart")
    for key in rest:
        if key in hudis or key in HIVE_KEYS or setting_of(key) is not None:
            continue
        guess = did_you_mean(key, _NAMES, _DESTRUCTIVE)
        try:
            Settings.resolve({key: rest[key]})
        except SettingsError as error:
            yield SettingsError(f'unknown option "{key}"{guess}', hint=error.hint, key=key) if guess else error


_NAMES = (*OWN, _OVERWRITE_MODE, *(each.name for each in SPELLINGS if each.ours and not each.name.startswith("hoodie.")))


def _operation(
    options: Mapping[str, str], given: Mapping[str, str], uses: tuple[Use, ...], *, in_driver: bool
) -> tuple[str, list[SettingsError]]:
    """Hudi's operation of a write, `insert` unless the options ask for another; and why this one is refused, if it is."""
    named = given.get("operation", "").strip().lower()
    by_default = not named and any(key.lower() in UPSERTS_BY_DEFAULT and options[key] for key in options)
    operation = "upsert" if by_default else named.replace("bulk_insert", "insert") or "insert"
    if operation not in ("insert", *_OF_DRIVER):
        return operation, [
            SettingsError(f"the operation is {named!r}", hint=f"use insert, {', '.join(_OF_DRIVER)}", key="operation")
        ]
    if operation == "insert" or in_driver or not set(uses) <= set(WRITES):
        return operation, []
    why = f"Hudi's operation {operation}" + (", the default where hoodie.* names a record key," if by_default else "")
    where, hint = ("as a stream", _STREAMED) if uses == (Use.STREAM_WRITE,) else ("in a data source in Python", _IN_DRIVER)
    return operation, [SettingsError(f"{why} does not run {where}", hint=hint, key="operation")]
