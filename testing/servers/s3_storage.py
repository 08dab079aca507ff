"""The lock next to the table, on S3 as moto answers: the service is the table's storage."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lakelock.testing.servers.dynamodb import Moto
from lakelock.testing.servers.s3 import AUTHORIZATION, S3_OPTIONS
from lakelock.testing.servers.service import Service


@contextmanager
def s3_storage_service(folder: Path) -> Iterator[Service]:
    """Each lock is that of a table of its own in the bucket `lake`; nothing is written to `folder`."""
    with Moto() as moto:
        request = urllib.request.Request(f"{moto.url}/lake", method="PUT", headers={"Authorization": AUTHORIZATION})
        urllib.request.urlopen(request, timeout=60).close()  # moto loads itself at its first request
        yield Service(
            "storage on S3",
            lambda name: "storage:",
            moto.port,
            moto.stop,
            moto.start,
            moto.pause,
            moto.resume,
            {"lock.poll_s": "0.1"},
            tables="s3://lake",
            table_options={**S3_OPTIONS, "endpoint": moto.url, "timeout": "2s", "connect_timeout": "2s"},
            forks=False,
        )
