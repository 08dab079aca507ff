"""An empty merge-on-read table; modules about others have their own."""

from __future__ import annotations

import pytest
from tests.api import ArrowEngine, MemoryStorage, Storage
from tests.behaviour.tables import new_table, writer

from lakelock.table.properties import MERGE_ON_READ


@pytest.fixture
def storage() -> Storage:
    made = MemoryStorage()
    new_table(made, table_type=MERGE_ON_READ)
    return made


@pytest.fixture
def engine(storage: Storage) -> ArrowEngine:
    return ArrowEngine(writer(storage))
