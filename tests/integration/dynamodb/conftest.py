"""The lock in DynamoDB, with a table of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.integration.dynamodb.dynamodb_world import World, new_world, troubling

from lakelock.testing.service import Service


@pytest.fixture
def world(dynamodb: Service) -> World:
    return new_world(dynamodb)


@pytest.fixture
def troubled(world: World) -> Iterator[World]:
    with troubling(world):
        yield world
