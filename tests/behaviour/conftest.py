"""What several behaviour suites share: a table on local disk, and services, started once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.api import LocalStorage
from tests.behaviour import tables
from tests.behaviour.tables import new_table
from tests.directory_bucket import BUCKET as EXPRESS_BUCKET
from tests.directory_bucket import DirectoryBucket, directory_bucket
from tests.servers import S3_OPTIONS, s3_server
from tests.servers.stores.azure import CONTAINER, azure_server
from tests.servers.stores.gcs import BUCKET, gcs_server
from tests.servers.stores.hdfs import Hdfs, hdfs_server

from lakelock.storage.hdfs import HdfsStorage
from lakelock.storage.objects import ObjectStorage
from lakelock.table.properties import COPY_ON_WRITE, MERGE_ON_READ
from lakelock.table.rewriting import Kernels


@pytest.fixture(params=[COPY_ON_WRITE, MERGE_ON_READ])
def both_types(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The type of the tables that a test makes. On a merge-on-read table changes of any share of the rows are appended."""
    monkeypatch.setattr(tables, "TABLE_TYPE", request.param)
    if request.param == MERGE_ON_READ:
        found = Kernels.changed_in

        def changed_in(self: Kernels, *arguments: Any, **more: Any) -> Any:
            *given, _ = arguments
            return found(self, *given, 1.0, **more)

        monkeypatch.setattr(Kernels, "changed_in", changed_in)
    return str(request.param)


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    """Storage with an empty table."""
    made = LocalStorage(tmp_path / "t")
    new_table(made)
    return made


@pytest.fixture
def path(storage: LocalStorage) -> str:
    """The path of the table."""
    return storage.root


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    if not os.environ.get("CI"):
        pytest.importorskip("moto", reason="needs an S3 service: pip install 'moto[s3,server]'")
    with s3_server() as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def s3_table(s3_endpoint: str) -> Callable[[], ObjectStorage]:
    """Makes storage under a prefix of its own."""
    numbers = count()
    return lambda: ObjectStorage(f"s3://lake/table-{next(numbers)}", {**S3_OPTIONS, "endpoint": s3_endpoint})


@pytest.fixture(scope="session")
def express(s3_endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DirectoryBucket]:
    """A directory bucket of S3."""
    with directory_bucket(s3_endpoint, tmp_path_factory.mktemp("express")) as bucket:
        yield bucket


@pytest.fixture(scope="session")
def express_table(express: DirectoryBucket) -> Callable[[], ObjectStorage]:
    """Makes storage under a prefix of its own of a directory bucket."""
    numbers = count()
    return lambda: ObjectStorage(f"s3://{EXPRESS_BUCKET}/table-{next(numbers)}", express.options)


@pytest.fixture(scope="session")
def azure_table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], ObjectStorage]]:
    """Makes storage under a prefix of its own in a container of Azure's emulator."""
    numbers = count()
    with azure_server(tmp_path_factory.mktemp("azurite")) as options:
        yield lambda: ObjectStorage(f"az://{CONTAINER}/table-{next(numbers)}", options)


@pytest.fixture(scope="session")
def gcs_table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], ObjectStorage]]:
    """Makes storage under a prefix of its own in a bucket of a server of Google's API."""
    numbers = count()
    with gcs_server(tmp_path_factory.mktemp("gcs")) as server:
        yield lambda: ObjectStorage(f"gs://{BUCKET}/table-{next(numbers)}", server.options)


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    """A cluster whose listings have ten names a page."""
    with hdfs_server(tmp_path_factory.mktemp("hdfs"), {"dfs.ls.limit": "10"}) as server:
        yield server


@pytest.fixture(scope="session")
def hdfs_table(hdfs: Hdfs) -> Callable[[], HdfsStorage]:
    """Makes storage in a folder of its own of a cluster."""
    numbers = count()
    return lambda: HdfsStorage(f"{hdfs.root}/lake/table-{next(numbers)}", hdfs.options)
