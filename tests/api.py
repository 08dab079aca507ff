"""What tests use of the inside of the product, in one place: a module that moves is an edit of this file.

Errors come from `lakelock`, settings from `lakelock.settings`, tables of Spark from `lakelock.spark_plugin`: these are public.
"""

from __future__ import annotations

from lakelock.clock import Runtime, SystemRuntime
from lakelock.conflict import ConflictRule
from lakelock.data_locks import DataLocks, Resource, lock_request
from lakelock.engine.arrow import ArrowEngine
from lakelock.events import Event, EventKind, Events
from lakelock.identity import WriterIdentity
from lakelock.occ.commit_keys import AppTransaction
from lakelock.occ.committed import Committed
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.create import create_table
from lakelock.occ.history import Outcome
from lakelock.occ.request import WriteRequest
from lakelock.occ.retry import with_retries
from lakelock.occ.transaction import Transaction
from lakelock.providers import Lease, LockProvider, open_provider, renewing
from lakelock.storage import Storage
from lakelock.storage.local import LocalStorage
from lakelock.storage.location import StorageLocation, TableIO, open_storage
from lakelock.storage.memory import MemoryStorage
from lakelock.table import layout
from lakelock.table.base_files import BaseFile, BaseFileWriter, Stamp
from lakelock.table.commit_metadata import CommitMetadata, WriteStat
from lakelock.table.index import BucketIndex
from lakelock.table.instants import Action, Instant, State, format_instant, parse_instant
from lakelock.table.layout import FileGroupId
from lakelock.table.properties import TableProperties
from lakelock.table.record_keys import Keyed
from lakelock.table.schema import TableSchema
from lakelock.table.service_metadata import RollbackPlan
from lakelock.table.snapshot import DataFile, read_snapshot
from lakelock.table.timeline import Timeline, read_timeline

__all__ = [
    "Action",
    "AppTransaction",
    "ArrowEngine",
    "BaseFile",
    "BaseFileWriter",
    "BucketIndex",
    "CommitMetadata",
    "Committed",
    "ConflictRule",
    "Coordinator",
    "DataFile",
    "DataLocks",
    "Event",
    "EventKind",
    "Events",
    "FileGroupId",
    "Instant",
    "Keyed",
    "Lease",
    "LocalStorage",
    "LockProvider",
    "MemoryStorage",
    "Outcome",
    "Resource",
    "RollbackPlan",
    "Runtime",
    "Stamp",
    "State",
    "Storage",
    "StorageLocation",
    "SystemRuntime",
    "TableIO",
    "TableProperties",
    "TableSchema",
    "Timeline",
    "Transaction",
    "WriteRequest",
    "WriteStat",
    "WriterIdentity",
    "create_table",
    "format_instant",
    "layout",
    "lock_request",
    "open_provider",
    "open_storage",
    "parse_instant",
    "read_snapshot",
    "read_timeline",
    "renewing",
    "with_retries",
]
