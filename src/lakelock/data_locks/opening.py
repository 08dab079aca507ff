"""From `lock.provider` to the data locks that go with it: native where the service has them, a document elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from lakelock.clock import Runtime
from lakelock.data_locks.base import DataLocks
from lakelock.data_locks.document import DocumentDataLocks, DynamodbRegister, MemoryRegister, RedisRegister, StorageRegister
from lakelock.data_locks.hive_metastore import MetastoreDataLocks
from lakelock.data_locks.zookeeper import ZooKeeperDataLocks
from lakelock.events import Events
from lakelock.identity import WriterIdentity
from lakelock.providers.base import Opening
from lakelock.providers.registry import provider_name
from lakelock.storage import Storage

if TYPE_CHECKING:
    from lakelock.settings import Settings


def _in_memory(opening: Opening) -> DataLocks:
    return DocumentDataLocks(opening, MemoryRegister(opening.storage.uri))


def _next_to_the_table(opening: Opening) -> DataLocks:
    return DocumentDataLocks(opening, StorageRegister(opening.storage))


def _in_redis(opening: Opening) -> DataLocks:
    return DocumentDataLocks(opening, RedisRegister(opening))


def _in_dynamodb(opening: Opening) -> DataLocks:
    return DocumentDataLocks(opening, DynamodbRegister(opening))


_BY_PROVIDER: dict[str, Callable[[Opening], DataLocks]] = {
    "memory": _in_memory,
    "redis": _in_redis,
    "dynamodb": _in_dynamodb,
    "zookeeper": ZooKeeperDataLocks,
    "hive_metastore": MetastoreDataLocks,
}


def open_data_locks(
    settings: Settings, storage: Storage, runtime: Runtime, writer: WriterIdentity, events: Events | None = None
) -> DataLocks:
    """The data locks of the table in `storage`. With a third party's lock provider they lie next to the table."""
    opening = Opening(settings.lock.provider, settings, storage, runtime, writer, events or Events())
    return _BY_PROVIDER.get(provider_name(settings.lock.provider), _next_to_the_table)(opening)
