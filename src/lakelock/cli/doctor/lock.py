"""The check of the lock: whether it is the table's, whether it can be taken, and whether its settings do what they should."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from urllib.parse import unquote

from lakelock.cli.doctor.context import Check, DoctorContext
from lakelock.data_locks.opening import open_data_locks
from lakelock.errors import LakelockError, LockTimeout, ProviderMismatch
from lakelock.events import Events
from lakelock.identity import WriterIdentity
from lakelock.occ.records.lock import compare_locks, recorded_provider
from lakelock.providers import LockProvider, open_provider
from lakelock.providers.base import wait_to_tell
from lakelock.providers.registry import provider_name
from lakelock.storage.memory import MemoryStorage
from lakelock.table import layout
from lakelock.table.properties import read_properties

LOCK_WAIT_S = 5.0
_FOR_EACH_TABLE = {
    "zookeeper": "end lock.provider with /base?key=table",
    "dynamodb": "leave the partition key out of lock.provider",
    "redis": "leave ?key= out of lock.provider",
    "hive_metastore": "leave database and table out of lock.provider",
}
"""How one configuration gives each table a lock of its own."""


def check_lock(context: DoctorContext) -> Iterator[Check]:
    """One acquire and release, as a commit would do it."""
    settings, runtime = context.settings, context.runtime
    if settings.concurrency.mode == "SINGLE_WRITER":
        yield Check(
            "lock", "warning", "concurrency.mode is SINGLE_WRITER: no lock is taken", "make sure that there is only one writer"
        )
        return
    short = replace(settings, lock=replace(settings.lock, wait_s=min(LOCK_WAIT_S, settings.lock.wait_s)))
    writer = WriterIdentity.of_this_process(runtime, "lakelock doctor")
    provider = open_provider(short, context.storage, runtime, writer, Events())
    try:
        recorded = recorded_provider(context.storage)
        try:
            compare_locks(context.storage, recorded, provider.identity)
        except ProviderMismatch as error:
            found = f"the table is guarded by {recorded}, these settings name {provider.identity}"
            yield Check("lock", "failed", found, error.hint)
            return
        yield from _waits(context, provider, writer)
        yield from _shared(context, provider, writer)
        provider.probe()
        began_s = runtime.monotonic_s()
        lease = provider.acquire(wait_s=short.lock.wait_s)
        provider.release(lease)
        took_ms = (runtime.monotonic_s() - began_s) * 1000
        yield Check("lock", "ok", f"{provider.identity}: taken and given back in {took_ms:.0f} ms, token {lease.token}")
    except LockTimeout as error:
        yield Check("lock", "warning", error.message, context.next("locks ls"))
    finally:
        provider.close()


def _shared(context: DoctorContext, provider: LockProvider, writer: WriterIdentity) -> Iterator[Check]:
    """Whether these settings give other tables the same lock. One that bears the name of this table is meant for it alone."""
    uri = context.settings.lock.provider
    name, folder = read_properties(context.storage).name, context.storage.uri.rstrip("/").rpartition("/")[2]
    said = unquote(uri.partition("://")[2].partition("/")[2])
    if _lock_of(context, writer, b"") == provider.lock_name:
        if not any(each and each in said for each in (name, folder)):
            found = f"{provider.identity} is the lock of every table with these settings: they wait for each other's commits"
            how = _FOR_EACH_TABLE.get(provider_name(uri), "see the documents of this provider")
            hint = f"for a lock per table {how}, and move this one by `lakelock locks migrate`; or keep these settings for it"
            yield Check("lock", "warning", f"{found} and data locks", hint)
    elif _lock_of(context, writer, f"hoodie.table.name={name}\n".encode()) == provider.lock_name:
        yield Check("lock", "ok", f"every table that is named {name} has this lock with these settings, wherever it lies")


def _lock_of(context: DoctorContext, writer: WriterIdentity, properties: bytes) -> str:
    """The lock that a table elsewhere, with these properties, would have; empty where it would be refused."""
    storage = MemoryStorage(name="a table elsewhere")
    storage.put(layout.PROPERTIES, properties)
    with suppress(LakelockError):
        provider = open_provider(context.settings, storage, context.runtime, writer, Events())
        try:
            return provider.lock_name
        finally:
            provider.close()
    return ""


def _waits(context: DoctorContext, provider: LockProvider, writer: WriterIdentity) -> Iterator[Check]:
    """Warnings of waits that are too short to get past a dead holder."""
    settings = context.settings
    least_s = wait_to_tell(provider.watch_s(settings.lock.lease_s), settings.lock.wait_s)
    if least_s is not None:
        found = (
            f"lock.wait_s is {settings.lock.wait_s:g} s, and a dead holder is only recognised by a wait of {least_s:g} s: "
            "one that was killed keeps every such writer out"
        )
        yield Check("lock", "warning", found, f"set lock.wait_s to {least_s:g} or more, or make lock.lease_s shorter")
    if settings.concurrency.mode != "PESSIMISTIC":
        return
    data = open_data_locks(settings, context.storage, context.runtime, writer, Events())
    least_s = wait_to_tell(data.watch_s(settings.data_locks.lease_s), settings.data_locks.wait_s)
    data.close()
    if least_s is not None:
        found = (
            f"writers wait {settings.data_locks.wait_s:g} s for data locks, and a dead holder is only recognised by a wait of "
            f"{least_s:g} s: one that was killed keeps every such writer out"
        )
        attempts = int(least_s / settings.data_locks.sleep_s) + 2
        hint = f"set data_locks.attempts to {attempts} or more, or make data_locks.lease_s shorter"
        yield Check("lock", "warning", found, hint)
