"""One configuration of an object store for lakelock's client and Spark's: the Hadoop configuration is asked and told."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from lakelock.settings import Settings
from lakelock.spark_plugin.session.classes import java_class
from lakelock.spark_plugin.session.hdfs_tokens import token_of
from lakelock.storage.hadoop import (
    PREFIXES,
    AnyPath,
    as_spark_reads,
    completed,
    from_environment,
    names_of_settings,
    settings_for_hadoop,
)
from lakelock.storage.hdfs_cluster import authority
from lakelock.storage.location import canonical_uri, is_local

_SECRETS = (".access.key", ".secret.key", ".session.token", ".account.key")


def in_full(spark: SparkSession, path: AnyPath) -> AnyPath | str:
    """The path as this session's readers take it; see `lakelock.storage.hadoop.as_spark_reads`."""
    return as_spark_reads(path, lambda name: _value(_own_configuration(spark), name))


def shared(spark: SparkSession, path: str | Path, settings: Settings) -> Settings:
    """The settings with Hadoop's for the storage of `path` where they have none. Hadoop's client gets what they have."""
    uri = canonical_uri(path)
    if is_local(uri):
        return settings
    conf = _configuration(spark)
    found = completed(uri, settings.storage, lambda name: _value(conf, name))
    if uri.startswith("hdfs://"):
        return replace(settings, storage={**_as_the_jvm(spark, uri, conf, found), **found})
    application: Any = spark.sparkContext._jsc.hadoopConfiguration()
    environment = from_environment(os.environ) if uri.startswith("s3://") else {}
    told = {name: value for name, value in environment.items() if name not in found} | dict(settings.storage)
    for name, value in settings_for_hadoop(uri, told).items():
        application.set(name, value)
    return replace(settings, storage=found)


def hadoop_settings(spark: SparkSession) -> Mapping[str, str]:
    """The session's Hadoop settings that say how object stores are reached, for processes that cannot ask the session."""
    conf = _configuration(spark)
    set_here = [f"{prefix}{name}" for prefix in PREFIXES for name in conf.getPropsWithPrefix(prefix)]
    found = {name: _value(conf, name) for name in names_of_settings(set_here)}
    return {name: value for name, value in found.items() if value}


def _configuration(spark: SparkSession) -> Any:
    """Spark's conf `spark.hadoop.*`, the session's own, core-site.xml and hdfs-site.xml, as Spark's readers get them."""
    with suppress(TypeError):  # a Spark without HDFS's client has no such class to call
        java_class(spark, "org.apache.hadoop.hdfs.HdfsConfiguration").init()
    return _own_configuration(spark)


def _own_configuration(spark: SparkSession) -> Any:
    return spark._jsparkSession.sessionState().newHadoopConf()  # type: ignore[attr-defined]


def _value(conf: Any, name: str) -> str | None:
    """A setting; secrets also from Hadoop's credential providers."""
    if name.endswith(_SECRETS):
        found = conf.getPassword(name)
        return None if found is None else "".join(found)
    found = conf.get(name)
    return None if found is None else str(found)


def _as_the_jvm(spark: SparkSession, uri: str, conf: Any, found: Mapping[str, str]) -> dict[str, str]:
    """Who Spark's JVM is to that cluster: its user, or where there is Kerberos a token of the cluster's for this user."""
    users = java_class(spark, "org.apache.hadoop.security.UserGroupInformation")
    if not users.isSecurityEnabled():
        return {"user": str(users.getCurrentUser().getShortUserName())}
    return {} if "delegation_token" in found else {"delegation_token": token_of(spark, authority(uri), conf)}
