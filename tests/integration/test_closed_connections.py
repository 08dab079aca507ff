"""Closing a lock while a thread waits for it leaves no connection, although the waiter has to leave the queue afterwards."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from itertools import count

import pytest
from tests.api import (
    Event,
    EventKind,
    Events,
    LockProvider,
    MemoryStorage,
    SystemRuntime,
    WriterIdentity,
    open_provider,
)
from tests.integration.matrix import Services
from tests.servers import Service
from tests.sizes import but_in_ci
from tests.waiting import eventually

from lakelock.errors import LockError
from lakelock.settings import Settings

SERVICES = ("redis", "zookeeper", "dynamodb", "hive_metastore")
tables = count()


def connections(service: Service) -> int:
    """How many sockets of this process are connected to the service."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                with socket.socket(fileno=os.dup(int(name))) as each:
                    found += each.family != socket.AF_UNIX and each.getpeername()[1] == service.port
    return found


@pytest.mark.parametrize("name", but_in_ci(SERVICES, {"redis"}))
def test_a_waiter_that_was_closed_leaves_no_connection(services: Services, name: str) -> None:
    service, runtime = services(name), SystemRuntime()
    table, before = f"closed{next(tables)}", connections(service)
    settings = Settings.resolve({"lock.provider": service.url(table), **service.options}).settings
    waits = threading.Event()

    def listen(event: Event) -> None:
        if event.kind is EventKind.WAITING_FOR_LOCK:
            waits.set()

    def opened(writer: str) -> LockProvider:
        identity = WriterIdentity.of_this_process(runtime, writer)
        return open_provider(settings, MemoryStorage(name=table), runtime, identity, Events((listen,)))

    def wait() -> None:
        with pytest.raises(LockError, match="closed"):
            waiter.acquire(wait_s=60)

    holder, waiter = opened("holder"), opened("waiter")
    holder.acquire(wait_s=60)
    thread = threading.Thread(target=wait)
    thread.start()
    assert waits.wait(60)
    waiter.close()
    thread.join(60)
    assert not thread.is_alive()
    holder.close()
    eventually(lambda: connections(service) <= before)
