"""The options of `format("lakelock")`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from lakelock.errors import SettingsError
from lakelock.occ.commit_keys import AppTransaction
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.reading import QueryType
from lakelock.settings import Settings
from lakelock.settings.hive import HIVE_KEYS
from lakelock.settings.hudi import from_hudi_properties
from lakelock.settings.resolver import setting_of
from lakelock.spark_plugin.arguments import numbered
from lakelock.spark_plugin.data_source.change_options import OPTIONS as CHANGE_OPTIONS
from lakelock.spark_plugin.data_source.change_options import ChangeOptions
from lakelock.spark_plugin.data_source.flags import refuse_empty, true_or_false
from lakelock.spark_plugin.data_source.planners import spare_pandas
from lakelock.spark_plugin.data_source.stated_table import OPTIONS as TABLE_OPTIONS
from lakelock.spark_plugin.data_source.stated_table import StatedTable
from lakelock.spark_plugin.peers.options import SPELLINGS, UPSERTS_BY_DEFAULT, refuse, spelled_as_here, translated
from lakelock.spark_plugin.peers.uses import READS, WRITES, Use, without_effect
from lakelock.spark_plugin.session.conf import (
    OVERWRITE_MODE,
    chosen_by_options,
    conf_in_task,
    ensure_known,
    ensure_overwrite_known,
    overwrites_partitions,
)
from lakelock.spark_plugin.streaming import application_of
from lakelock.storage.hadoop import as_spark_reads, completed
from lakelock.storage.location import StorageLocation, canonical_uri
from lakelock.texts import did_you_mean

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
                "or a temporary view USING lakelock OPTIONS (path '...')",
            )
        refuse_empty(given)
        conf = dict(conf or {})
        overwrite, chosen = _overwrite(given, sparks=overwrites_partitions(conf))
        conf.pop(OVERWRITE_MODE, None)
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
            application=given.get("application", ""),
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
        given = spelled_as_here({key: str(value) for key, value in options.items()}, READS)
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
    """The type of a query that somebody named; `SettingsError` for one that there is not."""
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
