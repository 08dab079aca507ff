"""Storage as the session's Hadoop configuration has it, paths for Spark's readers, and names of tables in a catalog.

lakelock's client and Spark's readers share one configuration of an object store: Hadoop's is read, and completed.

Clusters of HDFS with Kerberos give delegation tokens: one for all tables of an application, kept valid while it runs.
Executors have no ticket, and Spark gives its own tokens to their JVMs only, so lakelock's client shows one of these. A name
node remembers each token that it gave, so not every table gets its own; a token without renewal is forgotten after a day.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakelock.catalogs import TableName, open_catalog
from lakelock.clock import Repeating, Runtime, SystemRuntime
from lakelock.errors import SettingsError, TableError
from lakelock.identity import WriterIdentity
from lakelock.settings import Settings
from lakelock.spark_plugin.spark_session import MissingClass, java_class
from lakelock.storage.hadoop import (
    PREFIXES,
    AnyPath,
    as_spark_reads,
    completed,
    connector,
    from_environment,
    names_of_settings,
    settings_for_hadoop,
)
from lakelock.storage.hdfs_cluster import authority
from lakelock.storage.location import canonical_uri, is_local

RENEW_S = 6 * 3600.0
"""A quarter of a name node's `dfs.namenode.delegation.token.renew-interval`, so that a renewal may fail twice."""
NEW_S = 5 * 24 * 3600.0
"""A table that is opened so long after a token was made gets a new one: after seven days a name node renews none."""


@dataclass(frozen=True)
class Token:
    """A token as `storage.delegation_token` has it, how to renew it, and when it was made."""

    text: str = field(repr=False)
    renew: Callable[[], object] = field(repr=False)
    made_s: float


class Tokens:
    """The tokens of this process, by application and cluster. One background action renews them all."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime, self._mutex = runtime, runtime.mutex()
        self._kept: dict[tuple[str, str], Token] = {}
        self._renewing: Repeating | None = None

    def kept(self, application: str, cluster: str, make: Callable[[], tuple[str, Callable[[], object]]]) -> str:
        """The application's token for a cluster; `make` gets one where there is none, or an old one."""
        key = (application, cluster)
        with self._mutex:
            now_s = self._runtime.monotonic_s()
            found = self._kept.get(key)
            if found is None or now_s - found.made_s >= NEW_S:
                found = self._kept[key] = Token(*make(), now_s)
            if self._renewing is None:
                self._renewing = self._runtime.every(RENEW_S, self.renew, name="hdfs-tokens")
            return found.text

    def __len__(self) -> int:
        return len(self._kept)

    def renew(self) -> None:
        """Renew all; one that cannot be renewed is dropped, so that the next table gets another."""
        with self._mutex:
            tokens = dict(self._kept)
        for key, token in tokens.items():
            try:
                token.renew()
            except Exception:  # noqa: BLE001 whatever the JVM says, the next table asks for another token
                with self._mutex:
                    if self._kept.get(key) is token:
                        del self._kept[key]


TOKENS = Tokens(SystemRuntime())


def token_of(spark: SparkSession, cluster: str, conf: Any) -> str:
    """A token for the user of Spark's JVM, who is logged in by a ticket or by `--principal` and `--keytab`."""
    user = java_class(spark, "org.apache.hadoop.security.UserGroupInformation").getCurrentUser().getShortUserName()

    def make() -> tuple[str, Callable[[], object]]:
        root = java_class(spark, "java.net.URI")(f"hdfs://{cluster}/")
        token = java_class(spark, "org.apache.hadoop.fs.FileSystem").get(root, conf).getDelegationToken(user)
        return str(token.encodeToUrlString()), lambda: token.renew(conf)

    return TOKENS.kept(str(spark.sparkContext.applicationId), cluster, make)


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
    known = {name: value for name, value in environment.items() if name not in found} | dict(settings.storage)
    for name, value in settings_for_hadoop(uri, known).items():
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
    with suppress(MissingClass):  # a Spark without HDFS's client has no such class
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


_HADOOP = {"s3": "s3a", "s3n": "s3a", "gcs": "gs"}
_UNKNOWN_TO_HADOOP = ("az", "azure")


def spark_path(spark: SparkSession, path: str | Path, uri: str) -> str:
    """A path in full, for Spark's readers: as the user wrote it if Spark knows that scheme, otherwise with one that it knows.

    Local paths become absolute and name their file system, so that Spark looks for them nowhere else.
    `SettingsError` with the jars and settings that are needed when Spark has no file system for the path.
    """
    if uri.startswith("file://"):
        return "file:" + uri.removeprefix("file://")
    given, _, rest = str(path).strip().partition(":")
    scheme = given.lower()
    if scheme in _HADOOP and not _knows(spark, scheme):
        scheme = _HADOOP[scheme]
    if scheme in _UNKNOWN_TO_HADOOP and not _knows(spark, scheme):
        raise _without_account(spark, scheme, uri)
    _require_file_system(spark, scheme, uri)
    return f"{scheme}:{rest}".rstrip("/")


def _knows(spark: SparkSession, scheme: str) -> bool:
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    return configuration.get(f"fs.{scheme}.impl") is not None


def _require_file_system(spark: SparkSession, scheme: str, uri: str) -> None:
    """One call into the JVM, which loads the class of the file system if it has not been loaded yet."""
    file_systems = java_class(spark, "org.apache.hadoop.fs.FileSystem")
    configuration = spark._jsparkSession.sessionState().newHadoopConf()
    try:
        file_systems.getFileSystemClass(scheme, configuration)
    except Py4JJavaError as error:
        hadoop = _hadoop(spark)
        raise SettingsError(
            f"Spark cannot read {scheme}: paths, so it cannot read the table {uri}: {_cause(error)} (Hadoop {hadoop})",
            hint=f'{_what_brings_it(uri, hadoop)}. Without these jars format("lakelock") reads the table and appends to it',
            scheme=scheme,
        ) from error


def _without_account(spark: SparkSession, scheme: str, uri: str) -> SettingsError:
    """Such a path has the container and not the account, which is half of the host that Hadoop has to ask."""
    return SettingsError(
        f"Spark has no {scheme}: paths, so it cannot read the table {uri}",
        hint="name the table abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH, as Hadoop does, and "
        f'{_what_brings_it(uri, _hadoop(spark))}. By its present name format("lakelock") reads the table and appends to it',
        scheme=scheme,
    )


def _what_brings_it(uri: str, hadoop: str) -> str:
    needed = connector(uri.partition(":")[0], hadoop)
    assert needed is not None, uri
    return f"start the session with spark.jars.packages={needed.coordinates}; {needed.settings}"


def _hadoop(spark: SparkSession) -> str:
    return str(java_class(spark, "org.apache.hadoop.util.VersionInfo").getVersion())


def _cause(error: Py4JJavaError) -> str:
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return f"{cause.getClass().getSimpleName()}: {str(cause.getMessage()).splitlines()[0]}"


_METASTORES = "hive.metastore.uris"


def with_metastore(spark: SparkSession, settings: Settings) -> Settings:
    """The settings, with the metastore of the session's Hadoop configuration where they want one and name none."""
    catalog = settings.catalog
    if catalog.type != "hive_metastore" or catalog.uris or settings.hive_metastore.uris:
        return settings
    conf: Any = spark._jsparkSession.sessionState().newHadoopConf()  # type: ignore[attr-defined]
    return replace(settings, catalog=replace(catalog, uris=str(conf.get(_METASTORES) or "")))


def location_of(spark: SparkSession, name: str, settings: Settings) -> str:
    """The path of the table that has this name: in the catalog of the settings, else in the session's own.

    `TableError` if there is no such table, or it has no place of its own.
    """
    if settings.catalog.type == "none":
        return _in_session(spark, name)
    found = TableName.parse(name)
    settings, runtime = with_metastore(spark, settings), SystemRuntime()
    catalog = open_catalog(settings, runtime, WriterIdentity.of_this_process(runtime, "").user)
    try:
        entry = catalog.find(found)
    finally:
        catalog.close()
    if entry is None or not entry.location:
        why = f"the catalog has no table {found}" if entry is None else f"{found} has no location in the catalog: is it a view?"
        raise TableError(
            why,
            hint="LakeTable.for_path(spark, path).register(name) gives a table its name",
            name=str(found),
        )
    return entry.location


def _in_session(spark: SparkSession, name: str) -> str:
    """The location of a table in Spark's own catalog: whatever its format, it need not be one that this session can read."""
    try:
        state: Any = spark._jsparkSession.sessionState()  # type: ignore[attr-defined]
        identifier = state.sqlParser().parseTableIdentifier(name)
        location = state.catalog().getTableMetadata(identifier).storage().locationUri()
    except (Py4JJavaError, PySparkException) as error:
        message = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else error
        why = str(message).splitlines()[0]
        raise TableError(
            f"the session's catalog has no table {name}: {why}",
            hint="set catalog.type to hive_metastore or glue to look there; or open it with LakeTable.for_path(spark, path)",
            name=name,
        ) from error
    if location.isEmpty():
        raise TableError(f"{name} has no location: it is a view", hint="open the table with LakeTable.for_path(spark, path)")
    # Java's URIs are encoded, and paths are not.
    return unquote(str(location.get().toString()))
