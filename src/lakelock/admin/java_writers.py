"""What Java Hudi's writers of the same table need, as lines of their properties file: the lock above all.

`from_hudi_properties` reads them back, so a lakelock writer can use the same file.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import parse_qs, unquote, urlsplit

from lakelock.settings import Settings
from lakelock.table.properties import TableProperties

_JAVA_OPTIONS = (
    "hoodie.write.concurrency.mode=OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.clean.failed.writes.policy=LAZY",
    "hoodie.write.auto.upgrade=false",
    "hoodie.client.heartbeat.interval_in_ms=60000",
    "hoodie.client.heartbeat.tolerable.misses=2",
    "hoodie.rollback.avoid.duplicate.plan=true",
    "hoodie.write.num.retries.on.conflict.failures=3",
)
_LOCK = "hoodie.write.lock."
_CLASSES = {
    "storage": "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider",
    "zookeeper": "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider",
    "dynamodb": "org.apache.hudi.aws.transaction.lock.DynamoDBBasedLockProvider",
    "hive_metastore": "org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider",
}
_IMPLICIT = {
    "zookeeper": "org.apache.hudi.client.transaction.lock.ZookeeperBasedImplicitBasePathLockProvider",
    "dynamodb": "org.apache.hudi.aws.transaction.lock.DynamoDBBasedImplicitPartitionKeyLockProvider",
}


def java_options(properties: TableProperties, settings: Settings) -> tuple[str, ...]:
    """What every Java writer of a shared table needs, as lines of its properties file; the lock last, if Java has it."""
    return (*_JAVA_OPTIONS, f"hoodie.write.table.version={properties.version}", *java_lock(settings))


def java_lock(settings: Settings) -> tuple[str, ...]:
    """The lines that name the lock of these settings; none where Java Hudi has no such lock."""
    scheme, _, rest = settings.lock.provider.strip().partition(":")
    scheme = scheme.lower()
    if scheme not in _CLASSES:
        return ()
    found = urlsplit(rest)  # which knows no scheme with an underscore
    query = {name: values[-1] for name, values in parse_qs(found.query).items()}
    path = [unquote(part) for part in found.path.split("/") if part]
    implicit = query.get("implicit") == "true"
    name = _IMPLICIT[scheme] if implicit else _CLASSES[scheme]
    lines = _LINES[scheme](found.netloc, path, query, settings)
    return tuple(f"{_LOCK}{key}={value}" for key, value in (("provider", name), *lines))


Lines = Iterator[tuple[str, object]]


def _storage(place: str, path: list[str], query: dict[str, str], settings: Settings) -> Lines:
    yield "storage.validity.timeout.secs", round(settings.lock.lease_s)
    yield "storage.renew.interval.secs", round(settings.lock.renew_s)


def _zookeeper(place: str, path: list[str], query: dict[str, str], settings: Settings) -> Lines:
    if query.get("implicit") == "true":
        yield "zookeeper.url", "/".join((place, *path))
    else:
        base = path if query.get("key") == "table" else path[:-1]
        yield "zookeeper.url", place
        yield "zookeeper.base_path", "/" + "/".join(base)
        if base is not path:
            yield "zookeeper.lock_key", path[-1]
    yield "zookeeper.session_timeout_ms", round(settings.lock.lease_s * 1000)


def _dynamodb(place: str, path: list[str], query: dict[str, str], settings: Settings) -> Lines:
    yield "dynamodb.table", place
    if path:
        yield "dynamodb.partition_key", "/".join(path)
    for option, key in (("region_name", "region"), ("endpoint_url", "endpoint_url")):
        if settings.lock_options.get(option):
            yield f"dynamodb.{key}", settings.lock_options[option]
    yield "wait_time_ms", round(settings.lock.lease_s * 1000)


def _hive_metastore(place: str, path: list[str], query: dict[str, str], settings: Settings) -> Lines:
    yield "hivemetastore.uris", ",".join(f"thrift://{host}" for host in place.split(","))
    yield "hivemetastore.database", path[0] if path else ""
    yield "hivemetastore.table", path[-1] if path else ""
    yield "heartbeat_interval_ms", round(settings.lock.renew_s * 1000)


_LINES = {"storage": _storage, "zookeeper": _zookeeper, "dynamodb": _dynamodb, "hive_metastore": _hive_metastore}
