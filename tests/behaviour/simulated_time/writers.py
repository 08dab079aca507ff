"""Writers whose time a test decides."""

from __future__ import annotations

from tests.api import Coordinator, Runtime, Storage, StorageLocation
from tests.behaviour.tables import QUICK, insert

from lakelock.events import Listener
from lakelock.settings import Settings
from lakelock.testing import ManualRuntime


def writer(storage: Storage, runtime: Runtime, settings: Settings = QUICK, *listeners: Listener) -> Coordinator:
    """One more writer on the table."""
    return Coordinator.open(StorageLocation(storage.uri), settings, runtime=runtime, storage=storage, listeners=listeners)


def commit(storage: Storage, runtime: Runtime, file_id: str) -> str:
    """The instant of another writer's insert."""
    return insert(writer(storage, runtime), storage, "month=2", file_id).instant


class AnswersInAnyOrder(ManualRuntime):
    """Of requests that are made at once the last is carried out first, as on an object store."""

    def gather(self, calls, *, limit):
        return [call() for call in reversed(calls)][::-1]
