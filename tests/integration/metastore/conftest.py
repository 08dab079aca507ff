"""One table, its writers, and a proxy between them and the metastore, for each test of the metastore's provider and client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.integration.metastore.metastore_world import World, new_world, proxied
from tests.servers.locks.metastore_proxy import MetastoreProxy

from lakelock.testing.service import Service


@pytest.fixture
def world(metastore: Service) -> Iterator[World]:
    with new_world(metastore) as world:
        yield world


@pytest.fixture
def proxy(metastore: Service, world: World) -> Iterator[MetastoreProxy]:
    with proxied(metastore, world) as proxy:
        yield proxy
