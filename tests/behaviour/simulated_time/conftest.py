"""A table in memory, and the clock that its writers share."""

from __future__ import annotations

import pytest
from tests.api import MemoryStorage
from tests.behaviour.tables import new_table

from lakelock.testing import ManualRuntime


@pytest.fixture
def runtime() -> ManualRuntime:
    return ManualRuntime()


@pytest.fixture
def storage(runtime: ManualRuntime) -> MemoryStorage:
    made = MemoryStorage(runtime.now_ms)
    new_table(made)
    return made
