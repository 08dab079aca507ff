"""Hudi's writer configuration in our terms, so that a Java writer's properties file can be shared as it is; Hive's, for locks.

What has no equivalent is named, never silently dropped: a wrong lock is worse than no lock.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from urllib.parse import quote

from lakelock.settings.fields import FileSettings, Refused
from lakelock.texts import did_you_mean

_UNITS_S = {
    "": 1.0, "d": 86_400.0, "day": 86_400.0, "h": 3_600.0, "hour": 3_600.0, "m": 60.0, "min": 60.0, "minute": 60.0,
    "s": 1.0, "sec": 1.0, "second": 1.0, "ms": 1e-3, "msec": 1e-3, "us": 1e-6, "usec": 1e-6, "ns": 1e-9, "nsec": 1e-9,
}  # fmt: skip
_TIME = re.compile(r"(\d+)\s*([a-z]*)")
_NO_THRESHOLD = 100_000

SUPPORT_CONCURRENCY = "hive.support.concurrency"
HIVE_KEYS = {
    SUPPORT_CONCURRENCY: "concurrency.mode",
    "hive.lock.numretries": "data_locks.attempts",
    "hive.lock.sleep.between.retries": "data_locks.sleep_s",
    "hive.locks.partition.threshold": "data_locks.escalate_above",
}
"""Hive's key and the setting that it means."""


def from_hive(key: str, value: object) -> tuple[str, object] | None:
    """The setting and its value for one of `HIVE_KEYS`, None where Hive's value changes nothing here.

    A value that cannot be understood is passed on; the parser of the setting then names it and its origin.
    """
    ours, text = HIVE_KEYS[key], str(value).strip().lower()
    if key == SUPPORT_CONCURRENCY:
        if text in ("false", "no", "off", "0"):
            return ours, "SINGLE_WRITER"
        # lakelock always locks; concurrency.mode says how.
        return None if text in ("true", "yes", "on", "1") else (ours, value)
    if key == "hive.lock.sleep.between.retries":
        return ours, _hives_seconds(text, value)
    if key == "hive.locks.partition.threshold" and re.fullmatch(r"-\d+|0|", text):
        return ours, _NO_THRESHOLD
    return ours, value


def _hives_seconds(text: str, value: object) -> object:
    """Hive counts this one in seconds unless a unit follows: `60`, `60s`, `60000ms`."""
    found = _TIME.fullmatch(text)
    unit_s = _UNITS_S.get(found[2], _UNITS_S.get(found[2].removesuffix("s"))) if found else None
    return int(found[1]) * unit_s if found and unit_s else value


_LOCK = "hoodie.write.lock."
_PROVIDER = "hoodie.write.lock.provider"
_MODE = "hoodie.write.concurrency.mode"
_TABLE_NAME = "hoodie.table.name"
_REGION = "hoodie.write.lock.dynamodb.region"

Convert = Callable[[str], object]


def _from_ms(text: str) -> object:
    # Anything but a number is passed on; the parser of the setting then names it and its origin.
    try:
        return int(text) / 1000
    except ValueError:
        return text


def _attempts(text: str) -> object:
    try:
        return int(text) + 1
    except ValueError:
        return text


def _missing_columns(text: str) -> object:
    # Anything but true or false is passed on; the parser of the setting then names it and its origin.
    return {"true": "null", "false": "error"}.get(text.strip().lower(), text)


def _codec(text: str) -> object:
    return "none" if text.strip().lower() == "uncompressed" else text


_DIRECT: Mapping[str, tuple[str, Convert]] = {
    "hoodie.write.concurrency.early.conflict.detection.enable": ("concurrency.early_conflict_detection", str),
    "hoodie.write.lock.wait_time_ms": ("lock.wait_s", _from_ms),
    "hoodie.write.lock.dynamodb.region": ("lock.options.region_name", str),
    "hoodie.write.lock.dynamodb.endpoint_url": ("lock.options.endpoint_url", str),
    "hoodie.write.lock.zookeeper.connection_timeout_ms": ("lock.options.connect_timeout_s", _from_ms),
    "hoodie.client.heartbeat.interval_in_ms": ("heartbeat.interval_s", _from_ms),
    "hoodie.client.heartbeat.tolerable.misses": ("heartbeat.tolerable_misses", str),
    "hoodie.write.num.retries.on.conflict.failures": ("retry.attempts", _attempts),
    "hoodie.write.set.null.for.missing.columns": ("write.missing_columns", _missing_columns),
    "hoodie.parquet.max.file.size": ("write.target_file_bytes", str),
    "hoodie.parquet.compression.codec": ("write.compression", _codec),
    "hoodie.cleaner.policy": ("clean.policy", str),
    "hoodie.cleaner.commits.retained": ("clean.keep_commits", str),
    "hoodie.cleaner.hours.retained": ("clean.keep_hours", str),
    "hoodie.cleaner.fileversions.retained": ("clean.keep_versions", str),
    "hoodie.clean.policy": ("clean.policy", str),
    "hoodie.clean.commits.retained": ("clean.keep_commits", str),
    "hoodie.clean.hours.retained": ("clean.keep_hours", str),
    "hoodie.clean.fileversions.retained": ("clean.keep_versions", str),
    "hoodie.keep.min.commits": ("archive.min_commits", str),
    "hoodie.keep.max.commits": ("archive.max_commits", str),
}

_OF_LOCK: Mapping[str, str] = {
    "lock.options.region_name": "dynamodb",
    "lock.options.endpoint_url": "dynamodb",
    "lock.options.connect_timeout_s": "zookeeper",
}
"""Options that only one lock has: Java ignores the keys of other locks, too."""

_LEASE_KEYS: Mapping[str, tuple[str, str]] = {
    "storage": ("hoodie.write.lock.storage.validity.timeout.secs", "hoodie.write.lock.storage.renew.interval.secs"),
    "zookeeper": ("hoodie.write.lock.zookeeper.session_timeout_ms", ""),
    "dynamodb": ("hoodie.write.lock.wait_time_ms", ""),
    "hive_metastore": ("", "hoodie.write.lock.heartbeat_interval_ms"),
}
_WATCH, _LOOKS_S = 1.01, 2.0
"""A waiter at DynamoDB watches a silent holder for its lease, with an allowance for clocks, and looks before and after it."""
_RENEW_ALIAS = "hoodie.write.lock.storage.heartbeat.poll.secs"

_PROVIDERS: Mapping[str, str] = {
    "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider": "storage",
    "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider": "zookeeper",
    "org.apache.hudi.client.transaction.lock.ZookeeperBasedImplicitBasePathLockProvider": "zookeeper",
    "org.apache.hudi.aws.transaction.lock.DynamoDBBasedLockProvider": "dynamodb",
    "org.apache.hudi.aws.transaction.lock.DynamoDBBasedImplicitPartitionKeyLockProvider": "dynamodb",
    "org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider": "hive_metastore",
}
_UNSHARED: Mapping[str, str] = {
    "InProcessLockProvider": "Java's in-process lock lives inside one JVM, and no other process can use it",
    "FileSystemBasedLockProvider": "Java deletes that lock file without checking whose it is, so it is not reliable",
    "NoopLockProvider": "it grants every request, so the Java writers do not exclude each other either",
}
_SHARE_HINT = (
    "give every writer StorageBased, Zookeeper, DynamoDB or HiveMetastore locks, or set lock.provider for lakelock alone"
)

_LOOK_HINT = (
    "give every writer of the table optimistic_concurrency_control; where none of them has this mode, set concurrency.mode for "
    "lakelock alone"
)

_USED_IN_URI: Mapping[str, tuple[str, ...]] = {
    "storage": (),
    "zookeeper": ("zookeeper.url", "zookeeper.base_path", "zookeeper.lock_key"),
    "dynamodb": ("dynamodb.table", "dynamodb.partition_key"),
    "hive_metastore": ("hivemetastore.uris", "hivemetastore.database", "hivemetastore.table"),
}


def from_hudi_properties(path: str, properties: Mapping[str, str]) -> FileSettings:
    """Our settings as far as a Hudi properties file has them; each `hoodie.*` key that has no effect is in the warnings."""
    values: dict[str, tuple[object, str]] = {}
    used: set[str] = {_PROVIDER, _MODE} & set(properties)
    warnings = []
    for key, (ours, convert) in _DIRECT.items():
        if key in properties:
            values[ours] = (convert(properties[key]), key)
            used.add(key)
    warnings += _mode(properties, values)
    if "clean.keep_commits" in values and "clean.policy" not in values:
        # A file that says how many commits it keeps means Java's default policy.
        values["clean.policy"] = ("KEEP_LATEST_COMMITS", values["clean.keep_commits"][1])
    scheme = _provider(properties, values)
    if scheme:
        used |= {_LOCK + name for name in _USED_IN_URI[scheme]}
        if scheme in ("zookeeper", "dynamodb"):
            used.add(_TABLE_NAME)
        used |= _lease(scheme, properties, values)
    for ours in [name for name, owner in _OF_LOCK.items() if name in values and owner != scheme]:
        used.discard(values.pop(ours)[1])
    if scheme == "dynamodb" and _REGION not in properties:
        # Java's default. Another region would be another lock.
        values["lock.options.region_name"] = (os.environ.get("AWS_REGION") or "us-east-1", f"{_REGION} as Java has it")
    values |= {key: (properties[key], key) for key in HIVE_KEYS if key in properties}
    index = _index_of(properties)
    if index is not None:
        values["write.index"] = index
        used |= {key for key in _INDEX_KEYS if key in properties}
    return FileSettings(path, values, (*warnings, *_left_out(path, properties, used, scheme)))


def _mode(properties: Mapping[str, str], values: dict[str, tuple[object, str]]) -> list[str]:
    mode = properties.get(_MODE, "").strip()
    known = {"optimistic_concurrency_control": "OPTIMISTIC", "single_writer": "SINGLE_WRITER"}
    if mode.lower() in known:
        values["concurrency.mode"] = (known[mode.lower()], _MODE)
    elif mode.lower() == "non_blocking_concurrency_control":
        why = f"{_MODE}={mode}: such writers do not look at what others commit, and can lose an acknowledged row by themselves"
        values["concurrency.mode"] = (Refused(why, _LOOK_HINT), _MODE)
    elif mode:
        return [f"{_MODE}={mode} has no equivalent; concurrency.mode stays OPTIMISTIC"]
    return []


def _provider(properties: Mapping[str, str], values: dict[str, tuple[object, str]]) -> str:
    """Set `lock.provider` from the Java class and its keys; the scheme, or "" where the file chooses no provider."""
    name = properties.get(_PROVIDER, "").strip()
    if not name:
        # Java's default provider is ZooKeeper; a file that names its servers means it.
        if not properties.get(_LOCK + "zookeeper.url"):
            return ""
        name = "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider"
    short = name.rpartition(".")[2]
    by_short = {full.rpartition(".")[2]: scheme for full, scheme in _PROVIDERS.items()}
    scheme = by_short.get(short, "")
    if not scheme:
        why = _UNSHARED.get(short) or f"{name} is not a lock that lakelock knows{did_you_mean(short, by_short)}"
        values["lock.provider"] = (Refused(why, _SHARE_HINT), _PROVIDER)
    else:
        values["lock.provider"] = (_URIS[scheme](properties, short), _PROVIDER)
    return scheme


def _lease(scheme: str, properties: Mapping[str, str], values: dict[str, tuple[object, str]]) -> set[str]:
    """Set lease and renewal from the keys that this provider has; the keys that were used."""
    lease_key, renew_key = _LEASE_KEYS[scheme]
    if scheme == "storage" and renew_key not in properties and _RENEW_ALIAS in properties:
        renew_key = _RENEW_ALIAS
    used = {key for key in (lease_key, renew_key) if key in properties}
    lease = _seconds(lease_key, properties)
    renew = _seconds(renew_key, properties)
    if lease is not None:
        values["lock.lease_s"] = (lease, lease_key)
        if scheme == "dynamodb" and isinstance(lease, float):
            # Java's key is the lease and the wait, and its client waits longer. A wait of one lease gets past no dead holder.
            values["lock.wait_s"] = (lease * _WATCH + _LOOKS_S, lease_key)
        if renew is None:
            renew, renew_key = (lease / 3, lease_key) if isinstance(lease, float) else (None, "")
    elif isinstance(renew, float):
        values["lock.lease_s"] = (3 * renew, renew_key)
    if renew is not None:
        values["lock.renew_s"] = (renew, renew_key)
    return used


def _seconds(key: str, properties: Mapping[str, str]) -> object:
    if key not in properties:
        return None
    text = properties[key]
    try:
        return int(text) / 1000 if key.endswith("_ms") else float(int(text))
    except ValueError:
        return text


def _storage_uri(properties: Mapping[str, str], short: str) -> object:
    return "storage:"


def _zookeeper_uri(properties: Mapping[str, str], short: str) -> object:
    url = properties.get(_LOCK + "zookeeper.url", "").strip()
    if not url:
        return _missing("zookeeper.url")
    # As in every connect string, a chroot may follow the servers: the lock lies below it.
    servers, _, chroot = url.partition("/")
    chroot = chroot.strip("/")
    url = f"{servers}/{quote(chroot)}" if chroot else servers
    if "Implicit" in short:
        return f"zookeeper://{url}?implicit=true"
    base, key = (properties.get(_LOCK + f"zookeeper.{name}", "").strip("/ ") for name in ("base_path", "lock_key"))
    if not base:
        return _missing("zookeeper.base_path")
    # Java's default lock key is the name of the table: from this file, or from the table itself.
    key = key or properties.get(_TABLE_NAME, "").strip()
    return f"zookeeper://{url}/{quote(base)}" + (f"/{quote(key)}" if key else "?key=table")


def _dynamodb_uri(properties: Mapping[str, str], short: str) -> object:
    table = properties.get(_LOCK + "dynamodb.table", "").strip() or "hudi_locks"
    if "Implicit" in short:
        return f"dynamodb://{table}?implicit=true"
    # Java's default key is the name of the table, as above.
    key = properties.get(_LOCK + "dynamodb.partition_key", "").strip() or properties.get(_TABLE_NAME, "").strip()
    return f"dynamodb://{table}" + (f"/{quote(key, safe='')}" if key else "")


def _hive_uri(properties: Mapping[str, str], short: str) -> object:
    found = {name: properties.get(_LOCK + f"hivemetastore.{name}", "").strip() for name in ("uris", "database", "table")}
    for name, value in found.items():
        if not value:
            return _missing(f"hivemetastore.{name}")
    hosts = ",".join(uri.strip().removeprefix("thrift://").rstrip("/") for uri in found["uris"].split(","))
    # The metastore compares lock names byte by byte, so they keep the spelling of the Java side.
    return f"hive_metastore://{hosts}/{quote(found['database'], safe='')}/{quote(found['table'], safe='')}"


_URIS: Mapping[str, Callable[[Mapping[str, str], str], object]] = {
    "storage": _storage_uri,
    "zookeeper": _zookeeper_uri,
    "dynamodb": _dynamodb_uri,
    "hive_metastore": _hive_uri,
}


def _missing(name: str) -> Refused:
    return Refused(f"{_LOCK}{name} is missing", f"add {_LOCK}{name} to the file, as the Java writer needs it too")


def _left_out(path: str, properties: Mapping[str, str], used: set[str], scheme: str) -> list[str]:
    known = [*_DIRECT, _PROVIDER, _MODE, *(_LOCK + name for names in _USED_IN_URI.values() for name in names)]
    known += [key for keys in _LEASE_KEYS.values() for key in keys if key] + [_RENEW_ALIAS]
    remarks = []
    for key in properties:
        if key in used or not key.startswith("hoodie."):
            continue
        if key in known or key in _WITHOUT_EFFECT or not key.startswith((_LOCK, "hoodie.write.concurrency.")):
            reason = _WITHOUT_EFFECT.get(key) or _of_another_lock(key, scheme)
            remarks.append(f"{path}: {key} has no effect here" + (f": {reason}" if reason else ""))
        else:
            remarks.append(f"{path}: {key} is not known and has no effect{did_you_mean(key, known)}")
    return remarks


def _of_another_lock(key: str, scheme: str) -> str:
    if key == _RENEW_ALIAS and scheme == "storage":
        return f"{_LEASE_KEYS['storage'][1]} is set too, and means the same"
    owner = next((short for prefix, short in _OWNERS.items() if key.startswith(_LOCK + prefix)), "")
    return f"it is for {owner} locks, and {_PROVIDER} chooses another" if owner else ""


_OWNERS: Mapping[str, str] = {
    "zookeeper.": "Zookeeper",
    "dynamodb.": "DynamoDB",
    "hivemetastore.": "HiveMetastore",
    "heartbeat_interval_ms": "HiveMetastore",
    "storage.": "StorageBased",
}

_BLOOM = "lakelock sizes the bloom filter of a file by its keys"
_WITHOUT_EFFECT: Mapping[str, str] = {
    "hoodie.index.bloom.num_entries": _BLOOM,
    "hoodie.bloom.index.filter.dynamic.max.entries": _BLOOM,
    "hoodie.index.bloom.fpp": _BLOOM,
    **{
        f"hoodie.write.lock.dynamodb.{name}": "a lock table that lakelock creates is billed by request"
        for name in ("billing_mode", "read_capacity", "write_capacity", "table_creation_timeout")
    },
    "hoodie.timeline.compaction.batch.size": "lakelock merges ten files of the history at a time",
    "hoodie.write.lock.zookeeper.port": "Java Hudi 1.2 ignores it too; put host:port into hoodie.write.lock.zookeeper.url",
    "hoodie.write.lock.wait_time_ms_between_retry": "waiting is adaptive, see lock.poll_s",
    "hoodie.write.lock.max_wait_time_ms_between_retry": "waiting is adaptive, see lock.poll_s",
    "hoodie.write.lock.num_retries": "one bound is enough: lock.wait_s",
    "hoodie.write.lock.client.num_retries": "one bound is enough: lock.wait_s",
    "hoodie.write.lock.client.wait_time_ms_between_retry": "one bound is enough: lock.wait_s",
    "hoodie.write.lock.filesystem.path": "no lock of that kind is taken, see hoodie.write.lock.provider",
    "hoodie.write.lock.filesystem.expire": "no lock of that kind is taken, see hoodie.write.lock.provider",
    "hoodie.aws.access.key": "credentials are those of the environment, profile or role",
    "hoodie.aws.secret.key": "credentials are those of the environment, profile or role",
    "hoodie.aws.session.token": "credentials are those of the environment, profile or role",
    "hoodie.write.lock.conflict.resolution.strategy": "see concurrency.profile",
    "hoodie.write.lock.app_id": "the lock shows the Spark application by itself",
    "hoodie.metadata.enable": "the table itself says whether it has one, which lakelock then keeps true",
}


_INDEX_TYPE, _INDEX_ENGINE = "hoodie.index.type", "hoodie.index.bucket.engine"
_BUCKET_COUNT, _BUCKET_FIELDS = "hoodie.bucket.index.num.buckets", "hoodie.bucket.index.hash.field"
_INDEX_EXPRESSIONS, _INDEX_RULE = "hoodie.bucket.index.partition.expressions", "hoodie.bucket.index.partition.rule.type"
_INDEX_MOVES = {
    "GLOBAL_SIMPLE": "hoodie.simple.index.update.partition.path",
    "GLOBAL_BLOOM": "hoodie.bloom.index.update.partition.path",
    "RECORD_INDEX": "hoodie.record.index.update.partition.path",
    "GLOBAL_RECORD_LEVEL_INDEX": "hoodie.record.index.update.partition.path",
}
_INDEX_KEYS = (
    _INDEX_TYPE,
    _INDEX_ENGINE,
    _BUCKET_COUNT,
    _BUCKET_FIELDS,
    _INDEX_EXPRESSIONS,
    _INDEX_RULE,
    *dict.fromkeys(_INDEX_MOVES.values()),
)
_JAVAS_COUNT = "256"


def _index_of(properties: Mapping[str, str]) -> tuple[object, str] | None:
    """The value of `write.index` and the key that it is from; None where the file chooses no index that a table records.

    lakelock uses the same buckets as the Java writer, or moves rows as it does.
    """
    said = {key: properties.get(key, "").strip() for key in _INDEX_KEYS}
    if moves := _INDEX_MOVES.get(said[_INDEX_TYPE].upper()):
        if "RECORD" in said[_INDEX_TYPE].upper() and said[moves].lower() != "true":
            return None  # it moves rows only on demand
        if said[moves].lower() not in ("", "true"):
            hint = "lakelock moves such a row to the partition that its new version names, as Hudi does by default"
            return Refused(f"{moves}={said[moves]} leaves a row in the partition of its first version", hint), moves
        return "global", _INDEX_TYPE
    if said[_INDEX_TYPE].upper() != "BUCKET":
        return None
    if said[_INDEX_ENGINE].upper() not in ("", "SIMPLE"):
        hint = f"lakelock writes buckets of {_INDEX_ENGINE}=SIMPLE; it reads the others"
        return Refused(
            f"{_INDEX_ENGINE}={said[_INDEX_ENGINE]} moves rows between buckets in ways that lakelock does not follow", hint
        ), _INDEX_ENGINE
    if said[_INDEX_EXPRESSIONS]:
        hint = "lakelock writes tables with the same number of buckets in each partition; it reads the others"
        return Refused(f"{_INDEX_EXPRESSIONS} gives partitions different numbers of buckets", hint), _INDEX_EXPRESSIONS
    fields = f":{said[_BUCKET_FIELDS]}" if said[_BUCKET_FIELDS] else ""
    return f"bucket:{said[_BUCKET_COUNT] or _JAVAS_COUNT}{fields}", _BUCKET_COUNT if said[_BUCKET_COUNT] else _INDEX_TYPE
