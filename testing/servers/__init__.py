"""Real services for tests, each started on free loopback ports of this machine."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from lakelock.testing.servers.dynamodb import dynamodb_server
from lakelock.testing.servers.hive_metastore import hive_metastore_server
from lakelock.testing.servers.redis import redis_server
from lakelock.testing.servers.s3 import S3_OPTIONS, S3_PAGE, s3_server
from lakelock.testing.servers.service import ServerError, ServerFailed, ServerMissing, Service
from lakelock.testing.servers.storage import storage_service
from lakelock.testing.servers.zookeeper import zookeeper_server

SERVICES: dict[str, Callable[[Path], AbstractContextManager[Service]]] = {
    "storage": storage_service,
    "redis": redis_server,
    "dynamodb": dynamodb_server,
    "zookeeper": zookeeper_server,
    # The leases of the matrix are up to 30 s, and the metastore must not end one of them.
    "hive_metastore": partial(hive_metastore_server, extra={"hive.txn.timeout": "60s"}),
}
"""Every lock service that the matrix runs over, by the name of its provider."""

__all__ = ["S3_OPTIONS", "S3_PAGE", "SERVICES", "ServerError", "ServerFailed", "ServerMissing", "Service", "s3_server"]
