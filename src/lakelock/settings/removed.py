"""Settings that are gone, and what to do instead: the error about one says it."""

from __future__ import annotations

_LEAVE_OUT = "leave it out: it is a constant now"
_BILLED = "leave it out: a lock table that lakelock creates is billed by request"
_CONSTANTS = (
    "archive.merge_files", "checkpoint.every_commits", "decisions.collect_above", "decisions.slot_attempts",
    "heartbeat.foreign_patience", "hive_metastore.connect_delay_s", "hive_metastore.connect_rounds",
    "hive_metastore.failure_delay_s", "hive_metastore.failure_retries", "hive_metastore.set_ugi",
    "hive_metastore.uri_selection", "listing.at_once",
    "redis.wait_replicas_timeout_s", "retry.redo_attempts", "retry.reserve_after", "write.batch_rows", "write.bloom_entries",
    "write.bloom_fpp", "write.bloom_max_entries", "write.compression_level",
)  # fmt: skip
_OPTIONS = {
    "dynamodb.region": "region_name",
    "dynamodb.endpoint_url": "endpoint_url",
    "dynamodb.connect_timeout_s": "connect_timeout",
    "dynamodb.read_timeout_s": "read_timeout",
    "redis.socket_timeout_s": "socket_timeout",
    "redis.connect_timeout_s": "socket_connect_timeout",
    "redis.username": "username",
    "redis.password": "password",
    "redis.tls_ca_file": "ssl_ca_certs",
    "redis.tls_cert_file": "ssl_certfile",
    "redis.tls_key_file": "ssl_keyfile",
    "redis.tls_key_password": "ssl_password",
    "redis.tls_check_hostname": "ssl_check_hostname",
    "zookeeper.sasl_mechanism": "sasl_options.mechanism",
    "zookeeper.sasl_username": "sasl_options.username",
    "zookeeper.sasl_password": "sasl_options.password",
    "zookeeper.sasl_service": "sasl_options.service",
    "zookeeper.sasl_principal": "sasl_options.principal",
    "zookeeper.tls": "use_ssl",
    "zookeeper.tls_ca": "ca",
    "zookeeper.tls_certificate": "certfile",
    "zookeeper.tls_key": "keyfile",
    "zookeeper.tls_key_password": "keyfile_password",
    "zookeeper.tls_verify": "verify_certs",
    "zookeeper.tls_check_hostname": "check_hostname",
    "dynamodb.create_table": "create_table",
    "redis.wait_replicas": "wait_replicas",
    "redis.sentinel_username": "sentinel_username",
    "redis.sentinel_password": "sentinel_password",
    "zookeeper.connect_timeout_s": "connect_timeout_s",
    "zookeeper.request_timeout_s": "request_timeout_s",
    "zookeeper.acl": "acl",
}
"""Settings that are options of the lock service's driver now, and its names for them."""

REMOVED: dict[str, str] = {
    **dict.fromkeys(_CONSTANTS, _LEAVE_OUT),
    **{old: f"write lock.options.{new}" for old, new in _OPTIONS.items()},
    **{f"dynamodb.{name}": _BILLED for name in ("billing_mode", "read_capacity", "write_capacity", "create_wait_s")},
    "hive_metastore.socket_lifetime_s": "leave it out: a connection that fails is replaced, by one to another metastore",
    "zookeeper.digest": 'write lock.options.auth_data = "digest:user:password"',
}
"""A setting of an earlier version, and the hint of the error about it."""
