"""The lock in Redis, with a server of its own for each module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.integration.redis.redis_world import World
from tests.servers.locks.redis import RedisServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture
def world(server: RedisServer) -> Iterator[World]:
    made = World(server.port, server)
    yield made
    for provider in made.opened:
        provider.close()
