"""The lock next to the table, on S3 as moto answers or as the environment names it: the service is the table's storage."""

from __future__ import annotations

import os
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from lakelock.testing.service import Service
from tests.given_servers import Place, not_ours
from tests.servers.locks.dynamodb import Moto
from tests.servers.stores.s3 import AUTHORIZATION, S3_OPTIONS

ENVIRONMENT = "LAKELOCK_TEST_S3_URL"
"""`http://host:9000/bucket` of an S3 that is there already (or a bucket `lake`), with credentials of the environment."""

_TIMEOUTS = {"timeout": "2s", "connect_timeout": "2s"}
_POLL = {"lock.poll_s": "0.1"}


@contextmanager
def s3_storage_service(folder: Path) -> Iterator[Service]:
    """Each lock is that of a table of its own in the bucket `lake`; nothing is written to `folder`."""
    given = os.environ.get(ENVIRONMENT)
    if given:
        yield _given(given)
        return
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
            _POLL,
            tables="s3://lake",
            table_options={**S3_OPTIONS, "endpoint": moto.url, **_TIMEOUTS},
            forks=False,
        )


def _given(url: str) -> Service:
    parts, cannot = urlsplit(url), not_ours(ENVIRONMENT)
    place = Place.of(url, 443 if parts.scheme == "https" else 80)
    endpoint = f"{parts.scheme}://{parts.netloc}"
    return Service(
        "storage on S3",
        lambda name: "storage:",
        place.port,
        cannot,
        cannot,
        cannot,
        cannot,
        _POLL,
        # What an earlier run left there does not disturb this one.
        tables=f"s3://{parts.path.strip('/') or 'lake'}/lakelock-tests-{uuid.uuid4().hex}",
        table_options={"endpoint": endpoint, "allow_http": "true", **_TIMEOUTS},
        forks=False,
        host=place.host,
        address=place.text,
    )
