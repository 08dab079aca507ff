"""The lock next to the table, on local disk: a service without a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lakelock.testing.service import Service

NO_SERVER = 0


@contextmanager
def storage_service(folder: Path) -> Iterator[Service]:
    """`port` is 0: nothing listens anywhere."""
    yield Service("storage", lambda name: "storage:", NO_SERVER, options={"lock.poll_s": "0.1"})
