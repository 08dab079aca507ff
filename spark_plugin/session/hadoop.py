"""One configuration of an object store for lakelock's client and Spark's: the Hadoop configuration is asked and told."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from lakelock.settings import Settings
from lakelock.storage.hadoop import OF_BUCKET, completed, from_environment, names_of_settings, settings_for_hadoop
from lakelock.storage.location import canonical_uri, is_local

_SECRETS = (".access.key", ".secret.key", ".session.token", ".account.key")


def shared(spark: SparkSession, path: str | Path, settings: Settings) -> Settings:
    """The settings with Hadoop's for the storage of `path` where they have none. Hadoop's client gets what they have."""
    uri = canonical_uri(path)
    if is_local(uri):
        return settings
    conf = _configuration(spark)
    found = completed(uri, settings.storage, lambda name: _value(conf, name))
    application: Any = spark.sparkContext._jsc.hadoopConfiguration()
    environment = from_environment(os.environ) if uri.startswith("s3://") else {}
    told = {name: value for name, value in environment.items() if name not in found} | dict(settings.storage)
    for name, value in settings_for_hadoop(uri, told).items():
        application.set(name, value)
    return replace(settings, storage=found)


def hadoop_settings(spark: SparkSession) -> Mapping[str, str]:
    """The session's Hadoop settings that say how object stores are reached, for processes that cannot ask the session."""
    conf = _configuration(spark)
    buckets = [str(name) for name in conf.getPropsWithPrefix(OF_BUCKET)]
    found = {name: _value(conf, name) for name in names_of_settings(buckets)}
    return {name: value for name, value in found.items() if value}


def _configuration(spark: SparkSession) -> Any:
    """Spark's conf `spark.hadoop.*`, the session's own and core-site.xml, as Spark's readers get them."""
    return spark._jsparkSession.sessionState().newHadoopConf()  # type: ignore[attr-defined]


def _value(conf: Any, name: str) -> str | None:
    """A setting; secrets also from Hadoop's credential providers."""
    if name.endswith(_SECRETS):
        found = conf.getPassword(name)
        return None if found is None else "".join(found)
    found = conf.get(name)
    return None if found is None else str(found)
