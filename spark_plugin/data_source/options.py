"""The options of `format("lakelock")`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from lakelock.errors import SettingsError
from lakelock.near_misses import did_you_mean
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.records.commit_keys import AppTransaction
from lakelock.occ.shown import QueryType
from lakelock.settings import Settings
from lakelock.settings.resolver import Resolved
from lakelock.spark_plugin.arguments import numbered
from lakelock.spark_plugin.data_source.change_options import OPTIONS as CHANGE_OPTIONS
from lakelock.spark_plugin.data_source.change_options import ChangeOptions
from lakelock.spark_plugin.data_source.flags import true_or_false
from lakelock.spark_plugin.data_source.planners import spare_pandas
from lakelock.spark_plugin.data_source.stated_table import OPTIONS as TABLE_OPTIONS
from lakelock.spark_plugin.data_source.stated_table import StatedTable
from lakelock.spark_plugin.data_source.uses import Use, ensure_effective
from lakelock.spark_plugin.peers.options import spelled_as_here
from lakelock.spark_plugin.session.conf import (
    OVERWRITE_MODE,
    chosen_by_options,
    conf_in_task,
    ensure_known,
    ensure_overwrite_known,
    overwrites_partitions,
)
from lakelock.spark_plugin.streaming import application_of
from lakelock.storage.default_file_system import as_spark_reads
from lakelock.storage.hadoop import completed
from lakelock.storage.location import StorageLocation, canonical_uri

OWN = (
    "path", "as_of", "query_type", "include_meta", "overwrite", "overwrite_schema", "application", "config", "txn_app_id",
    "txn_version", "txn_replay", "tag", "partition",
    *TABLE_OPTIONS, *CHANGE_OPTIONS,
)  # fmt: skip
_HADOOP = ("fs.", "google.cloud.", "dfs.")
_OVERWRITE_MODE = "partitionoverwritemode"
_SPARKS = {"checkpointlocation", "queryname"}
_REFUSED = {
    "partitionby": "write partition_by for a new table; an existing one records how it is partitioned: leave partitionBy out",
    "operation": "upsert and delete need the driver: LakeTable.for_path(spark, path).upsert(df)",
}


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
    txn_app_id: str | None
    txn_version: int | None
    txn_replay: bool
    tag: str
    partition: str | None
    stated: StatedTable
    changes: ChangeOptions

    @classmethod
    def parse(
        cls, options: Mapping[str, str], conf: Mapping[str, str] | None = None, uses: tuple[Use, ...] = tuple(Use)
    ) -> SourceOptions:
        """`conf`: the known confs of the session that start with `spark.lakelock.`. `uses`: what the options may be for."""
        given = spelled_as_here(options)
        for key, why in _REFUSED.items():
            if key in given:
                raise SettingsError(f'format("lakelock") has no option {key!r}', hint=why)
        if not given.get("path"):
            raise SettingsError(
                'format("lakelock") needs a path',
                hint="use .load(path) or .save(path); in SQL: INSERT INTO t WITH ('path' = '...'), "
                "or a temporary view USING lakelock OPTIONS (path '...')",
            )
        ensure_effective(given, uses)
        conf = dict(conf or {})
        overwrite, chosen = _overwrite(given, sparks=overwrites_partitions(conf))
        conf.pop(OVERWRITE_MODE, None)
        hadoop = {name: conf.pop(name) for name in list(conf) if name.startswith(_HADOOP)}
        resolved = _resolved(given, conf)
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
            application=given.get("application", ""),
            txn_app_id=given.get("txn_app_id"),
            txn_version=_whole(given.get("txn_version")),
            txn_replay=true_or_false("txn_replay", given.get("txn_replay", "false")),
            tag=given.get("tag", ""),
            partition=given.get("partition") or None,
            stated=StatedTable.of(given),
            changes=ChangeOptions.of(given),
        )

    def application_of_batch(self) -> AppTransaction | None:
        """The application's number of a batch write; `InputError` unless both options are there, or neither."""
        return numbered(self.txn_app_id, self.txn_version)

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
        table = Coordinator.open(self.location, self.settings, application=self.application or "spark-data-source")
        try:
            self.stated.check(table)
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
        given = spelled_as_here({key: str(value) for key, value in options.items()})
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
    """The type of a query that somebody named; `SettingsError` for one that there is not."""
    found: dict[str, QueryType] = {"": "snapshot", "snapshot": "snapshot", "read_optimized": "read_optimized"}
    given = (text or "").strip().lower()
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


def _resolved(given: Mapping[str, str], conf: Mapping[str, str]) -> Resolved:
    rest = {key: value for key, value in given.items() if key not in (*OWN, *_SPARKS, _OVERWRITE_MODE)}
    try:
        return Settings.resolve(rest, conf, given.get("config"))
    except SettingsError as error:
        unknown = str(error.details.get("key", ""))
        guess = did_you_mean(unknown, OWN) if unknown in rest else ""
        if guess:
            raise SettingsError(f'unknown option "{unknown}"{guess}', hint=error.hint, key=unknown) from None
        raise
