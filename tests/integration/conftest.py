"""Lock services that the tests of this folder share, each started once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.service import Service
from tests.servers.zookeeper import zookeeper_server


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with zookeeper_server(tmp_path_factory.mktemp("zookeeper")) as service:
        yield service
