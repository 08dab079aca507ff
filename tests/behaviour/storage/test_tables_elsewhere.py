"""A table on Azure and on Google's storage, as servers for tests answer: whole transactions, and the lock beside the table."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lakelock.errors import ConflictError
from lakelock.storage.objects.store import ObjectStorage
from tests.behaviour.tables import insert, leftovers, new_table, put_file, writer


@pytest.mark.parametrize("store", ["azure", "gcs", "hdfs"])
def test_two_writers_of_a_table_commit_conflict_and_leave_nothing(store: str, request: pytest.FixtureRequest) -> None:
    make: Callable[[], ObjectStorage] = request.getfixturevalue(f"{store}_table")
    storage = make()
    new_table(storage)
    one, other = writer(storage), writer(storage)
    insert(one, storage, "month=1", "f")
    with one.begin("UPSERT") as mine, other.begin("UPSERT") as theirs:
        theirs.commit([put_file(theirs, storage, "month=1", "f", token="1-1-0")])
        with pytest.raises(ConflictError):
            mine.commit([put_file(mine, storage, "month=1", "f")])
    insert(other, storage, "month=2", "g")
    assert [entry.operation for entry in one.history()] == ["INSERT", "UPSERT", "INSERT"]
    assert {file.file_id for file in one.snapshot().files} == {"f", "g"} and leftovers(storage) == []
