"""The lock in ZooKeeper, with nodes of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.integration.zookeeper.zookeeper_world import World

from lakelock.testing.service import Service


@pytest.fixture
def world(zookeeper: Service) -> Iterator[World]:
    world = World(zookeeper)
    yield world
    world.close()
