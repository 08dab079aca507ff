"""Turns the arguments of a `LakeTable`'s methods into what the engine takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from enum import Enum
from operator import index
from pathlib import Path
from typing import Literal, SupportsIndex

from pyspark.sql import Column, DataFrame, SparkSession

from lakelock.errors import InputError
from lakelock.occ.commit_keys import AppTransaction
from lakelock.settings import MissingColumns, Settings, WriteSettings
from lakelock.spark_plugin.frames import spark_conf
from lakelock.spark_plugin.naming import with_metastore
from lakelock.spark_plugin.session.hadoop import shared
from lakelock.table.instants import as_of_time

Duplicates = Literal["error", "any"]


class Every(Enum):
    """What a call is about that names no rows. It is not None, so that a variable that is None by mistake deletes nothing."""

    ROW = "every row"


def settings_of(
    spark: SparkSession, path: str | Path, config: str | Path | None, options: Mapping[str, object] | None
) -> Settings:
    """The settings of a call: its options, the session's conf, the file; and for storage and metastores what Hadoop is told."""
    settings = Settings.resolve(options or {}, spark_conf(spark), config).settings
    return with_metastore(spark, shared(spark, path, settings))


def chosen_rows(what: str | Column | DataFrame | Every) -> str | Column | DataFrame:
    """The rows that a delete is about; `InputError` for None."""
    if what is None:
        raise InputError("delete was given None", hint="table.delete() deletes every row; give a condition or keys otherwise")
    return "true" if what is Every.ROW else what


def changed(
    settings: WriteSettings,
    merge_schema: bool | None = None,
    duplicates: Duplicates | None = None,
    missing_columns: MissingColumns | None = None,
) -> WriteSettings:
    """The settings of one write, with the changes that its call asks for."""
    if duplicates not in (None, "error", "any"):
        raise InputError(f"duplicates is {duplicates!r}", hint='use duplicates="error" or duplicates="any"')
    if missing_columns not in (None, "error", "keep", "null"):
        hint = 'use missing_columns="error", missing_columns="keep" or missing_columns="null"'
        raise InputError(f"missing_columns is {missing_columns!r}", hint=hint)
    return replace(
        settings,
        merge_schema=settings.merge_schema if merge_schema is None else merge_schema,
        duplicates=duplicates or settings.duplicates,
        missing_columns=missing_columns or settings.missing_columns,
    )


def numbered(txn_app_id: object, txn_version: object) -> AppTransaction | None:
    """The application's own number of a write, None if it has none; `InputError` unless both parts are given and valid."""
    if txn_app_id is None and txn_version is None:
        return None
    if txn_app_id is None or txn_version is None:
        given, missing = ("txn_version", "txn_app_id") if txn_app_id is None else ("txn_app_id", "txn_version")
        hint = 'name both, such as txn_app_id="nightly-load", txn_version=7, or neither'
        raise InputError(f"{given} is given without {missing}: only both together make a write apply once", hint=hint)
    if not isinstance(txn_app_id, str) or not txn_app_id:
        raise InputError(f"txn_app_id is {txn_app_id!r}", hint="use a text that names the job, the same in every run")
    if isinstance(txn_version, bool) or not isinstance(txn_version, SupportsIndex) or not -(2**63) < index(txn_version) < 2**63:
        hint = "use a whole number that grows from write to write and is the same when a write is run again"
        raise InputError(f"txn_version is {txn_version!r}, not a whole number of 64 bits", hint=hint)
    return AppTransaction(txn_app_id, index(txn_version))


def names(columns: str | Sequence[str]) -> tuple[str, ...]:
    """Columns given as one name or several."""
    return (columns,) if isinstance(columns, str) else tuple(columns)


def key_of(columns: str | Sequence[str] | None) -> tuple[str, ...]:
    """The key columns of a new table, none for None; `InputError` for an empty list, since a key cannot be added later."""
    found = () if columns is None else names(columns)
    if columns is not None and not found:
        raise InputError(
            "key is an empty list", hint="name the columns that identify a row, or leave key out for a table without"
        )
    return found


def instant_of(moment: str | datetime, zone: str) -> str:
    """A point in time as an instant time of a table whose instants are in this zone; a time without a zone is UTC."""
    if isinstance(moment, datetime):
        aware = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
        return as_of_time(aware.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f"), zone)
    return as_of_time(moment, zone)
