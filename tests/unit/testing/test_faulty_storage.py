"""Storage that fails exactly where a plan says, and the probe that finds storage which must not be used."""

from __future__ import annotations

import pytest
from tests.api import MemoryStorage
from tests.faulty_storage import CountingStorage, Fault, FaultyStorage, Rule, Wrapped

from lakelock.errors import StorageUnavailable, StorageUnsafe
from lakelock.storage import probe


def test_requests_are_counted_by_operation_without_data_files() -> None:
    storage = CountingStorage(MemoryStorage())
    storage.put("a/k", b"")
    storage.get("a/k")
    list(storage.list("a"))
    storage.delete(f"a/{number}" for number in range(1001))
    storage.delete([])
    storage.open_output("a/data").close()
    assert dict(storage.requests) == {"put": 1, "get": 1, "list": 1, "delete": 2, "open_output": 1}
    assert storage.total == 5 and storage.calls[1] == ("get", "a/k")
    storage.reset()
    assert storage.total == 0 and storage.calls == []


def test_a_lost_reply_is_done_and_a_failure_is_not() -> None:
    inner = MemoryStorage()
    storage = FaultyStorage(inner, [Rule("put", nth=1, fault=Fault.LOST_REPLY), Rule("put", nth=1, fault=Fault.FAIL)])
    for key in ("one", "two"):
        with pytest.raises(StorageUnavailable):
            storage.put(key, b"x")
    storage.put("three", b"x")
    assert [found.key for found in inner.list("")] == ["one", "three"]


def test_a_late_request_arrives_before_a_later_one_or_when_delivered() -> None:
    inner = MemoryStorage()
    storage = FaultyStorage(inner, [Rule("put", fault=Fault.LATE, late_by=2)])
    with pytest.raises(StorageUnavailable):
        storage.put("k", b"late")
    assert storage.get("k") is None
    assert storage.get("k") is not None
    storage.plan = [Rule("put", fault=Fault.LATE, late_by=99)]
    with pytest.raises(StorageUnavailable):
        storage.put("other", b"late")
    assert storage.deliver() == 1 and storage.deliver() == 0 and inner.get("other") is not None


class IgnoresCreateConditions(Wrapped):
    def put_if_absent(self, key: str, data: bytes, *, durable: bool = True) -> str | None:
        self.inner.put(key, data)
        found = self.inner.get(key)
        return found.etag if found else None


class IgnoresVersions(Wrapped):
    def put_if_match(self, key: str, data: bytes, etag: str) -> str | None:
        found = self.inner.get(key)
        return self.inner.put_if_match(key, data, found.etag) if found else None


@pytest.mark.parametrize("unsafe", [IgnoresCreateConditions, IgnoresVersions])
def test_the_probe_refuses_storage_that_ignores_conditions_and_leaves_nothing(unsafe: type[Wrapped]) -> None:
    inner = MemoryStorage()
    with pytest.raises(StorageUnsafe) as refused:
        probe(unsafe(inner), ".hoodie/.lakelock/probe/1", "1")
    assert "ignores" in refused.value.message and refused.value.hint
    assert list(inner.list(".hoodie")) == []
