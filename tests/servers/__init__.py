"""Real services for tests, each on free loopback ports of this machine: processes, or containers where they cannot start."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from lakelock.testing.service import Service
from tests.given_servers import ServerError, ServerFailed, ServerMissing
from tests.servers import containers
from tests.servers.locks.dynamodb import dynamodb_server
from tests.servers.locks.hive_metastore import PATIENT_URL, patient_metastore_server
from tests.servers.locks.redis import redis_server
from tests.servers.locks.storage import storage_service
from tests.servers.locks.zookeeper import zookeeper_server
from tests.servers.stores.s3 import S3_OPTIONS, S3_PAGE, s3_server

SERVICES: dict[str, Callable[[Path], AbstractContextManager[Service]]] = {
    "storage": storage_service,
    "redis": partial(containers.server, "redis", "LAKELOCK_TEST_REDIS_URL", redis_server),
    "dynamodb": dynamodb_server,
    "zookeeper": partial(containers.server, "zookeeper", "LAKELOCK_TEST_ZOOKEEPER", zookeeper_server),
    "hive_metastore": partial(containers.server, "hive_metastore", PATIENT_URL, patient_metastore_server),
}
"""Every lock service that the matrix runs over, by the name of its provider."""

__all__ = ["S3_OPTIONS", "S3_PAGE", "SERVICES", "ServerError", "ServerFailed", "ServerMissing", "Service", "s3_server"]
