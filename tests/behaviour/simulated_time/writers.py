"""Writers whose time a test decides."""

from __future__ import annotations

from tests.behaviour.tables import QUICK, insert

from lakelock.clock import Runtime
from lakelock.events import Listener
from lakelock.occ.coordinator import Coordinator
from lakelock.settings import Settings
from lakelock.storage import Storage
from lakelock.storage.location import StorageLocation


def writer(storage: Storage, runtime: Runtime, settings: Settings = QUICK, *listeners: Listener) -> Coordinator:
    """One more writer on the table."""
    return Coordinator.open(StorageLocation(storage.uri), settings, runtime=runtime, storage=storage, listeners=listeners)


def commit(storage: Storage, runtime: Runtime, file_id: str) -> str:
    """The instant of another writer's insert."""
    return insert(writer(storage, runtime), storage, "month=2", file_id).instant
