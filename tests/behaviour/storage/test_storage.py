"""One suite of promises over every storage."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.api import LocalStorage, MemoryStorage, Storage, SystemRuntime
from tests.behaviour.tables import collided_writers, insert, leftovers, new_table
from tests.faulty_storage import CountingStorage, Fault, FaultyStorage, Rule
from tests.sizes import in_ci

from lakelock.errors import StorageError, StorageUnavailable
from lakelock.storage import Created, create, probe
from lakelock.storage.hdfs import HdfsStorage

ODD_NAMES = ["plain", "with space", "per%20cent", "a=b", "ümlaut-日本", "hash#mark", "question?", "plus+", "a:b", "it's"]


@pytest.fixture(params=["memory", "local", "faulty", "s3", "azure", "gcs", *in_ci("express", "hdfs")])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "memory":
        return MemoryStorage()
    if request.param in ("s3", "express", "azure", "gcs", "hdfs"):
        make: Callable[[], Storage] = request.getfixturevalue(f"{request.param}_table")
        return make()
    local = LocalStorage(tmp_path / "table")
    return local if request.param == "local" else FaultyStorage(CountingStorage(local))


def keys(storage: Storage, prefix: str, start_after: str = "") -> list[str]:
    return [found.key for found in storage.list(prefix, start_after=start_after)]


def test_what_was_created_is_read_back_with_a_version_and_a_time(storage: Storage) -> None:
    etag = storage.put_if_absent("a/b/c", b"hello")
    found = storage.get("a/b/c")
    assert found is not None
    assert (found.data, found.etag) == (b"hello", etag)
    assert abs(found.modified_ms - SystemRuntime().now_ms()) < 60_000


def test_what_is_not_there_is_none_or_empty(storage: Storage) -> None:
    assert storage.get("nothing/here") is None
    assert keys(storage, "nothing") == []
    assert storage.put_if_match("nothing/here", b"x", "some-version") is None
    storage.delete(["nothing/here", "nor/here"])
    storage.delete([])
    with pytest.raises(StorageError):
        storage.open_input("nothing/here").read()


def test_a_second_create_is_refused_and_changes_nothing(storage: Storage) -> None:
    assert storage.put_if_absent("k", b"one") is not None
    assert storage.put_if_absent("k", b"two") is None
    assert storage.put_if_absent("k", b"two", durable=False) is None
    found = storage.get("k")
    assert found is not None and found.data == b"one"


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("data", [b"", b"x" * 300_000])
def test_empty_and_large_objects_are_created_whole(storage: Storage, data: bytes, durable: bool) -> None:
    etag = storage.put_if_absent("new/folder/k", data, durable=durable)
    found = storage.get("new/folder/k")
    assert found is not None and found.data == data and found.etag == etag
    assert storage.put_if_absent("new/folder/k", data, durable=durable) is None


def test_a_replacement_needs_the_version_that_was_read(storage: Storage) -> None:
    first = storage.put_if_absent("k", b"one")
    assert first is not None
    second = storage.put_if_match("k", b"two", first)
    assert second is not None and second != first
    assert storage.put_if_match("k", b"three", first) is None
    found = storage.get("k")
    assert found is not None and (found.data, found.etag) == (b"two", second)
    assert storage.put_if_match("k", b"three", second) is not None


def test_an_object_that_was_deleted_is_not_brought_back_by_a_replacement(storage: Storage) -> None:
    etag = storage.put_if_absent("k", b"one")
    storage.delete(["k"])
    assert storage.put_if_match("k", b"two", etag or "") is None
    assert storage.get("k") is None


def test_put_creates_and_replaces(storage: Storage) -> None:
    storage.put("beats/one", b"1")
    storage.put("beats/one", b"2")
    found = storage.get("beats/one")
    assert found is not None and found.data == b"2"


def test_an_overwritten_object_has_another_version(storage: Storage) -> None:
    etag = storage.put_if_absent("k", b"one")
    storage.put("k", b"two")
    assert storage.put_if_match("k", b"three", etag or "") is None


def test_a_listing_is_in_key_order_and_starts_after_a_key(storage: Storage) -> None:
    names = ["a/b", "a/b/c", "a/b.c", "a/B", "a/ä", "a/b0", "a/b/d/e", "a/b-"]
    names.remove("a/b")
    for name in names:
        storage.put_if_absent(name, b"x")
    ordered = sorted(names)
    assert keys(storage, "a") == ordered
    for start in [*ordered, "a/b", "a/b/", "a/b/c0", "a", "b"]:
        assert keys(storage, "a", start) == [name for name in ordered if name > start]


def test_a_prefix_is_a_folder_and_not_the_beginning_of_a_name(storage: Storage) -> None:
    for name in ("a/x", "ab/x", "a.x/y"):
        storage.put_if_absent(name, b"x")
    assert keys(storage, "a") == ["a/x"]


def test_listings_leave_out_hidden_names_and_the_metadata_folder_unless_asked(storage: Storage) -> None:
    for name in ("p/f.parquet", "p/.f.parquet.crc", ".hoodie/hoodie.properties", ".hoodie/.temp/i/p/m", ".hidden/file"):
        storage.put_if_absent(name, b"x")
    assert keys(storage, "") == [".hidden/file", "p/f.parquet"]
    assert keys(storage, ".hoodie") == [".hoodie/.temp/i/p/m", ".hoodie/hoodie.properties"]
    assert keys(storage, ".hoodie/.temp") == [".hoodie/.temp/i/p/m"]


def test_log_files_are_listed_though_their_names_start_with_a_dot(storage: Storage) -> None:
    log, marker = "p/.f-0_20260101000000000.log.1_0-1-2", ".hoodie/.temp/i/p/.f-0_20260101000000000.log.1_0-1-2.marker.CREATE"
    for name in (log, marker, "p/.f-0_20260101000000000.log.1_0-1-2.crc", "p/..f-0_20260101000000000.log.1_0-1-2.crc"):
        storage.put(name, b"x")
    assert (keys(storage, ""), keys(storage, ".hoodie/.temp")) == ([log], [marker])


def test_the_archive_of_an_old_table_is_listed_though_its_names_start_with_a_dot(storage: Storage) -> None:
    for name in (".commits_.archive.11_1-0-1", "..commits_.archive.11_1-0-1.crc", ".commits_.archive.9_1-0-1"):
        storage.put_if_absent(f".hoodie/archived/{name}", b"x")
    shown = [".hoodie/archived/.commits_.archive.11_1-0-1", ".hoodie/archived/.commits_.archive.9_1-0-1"]
    assert keys(storage, ".hoodie/archived") == shown


def test_a_listing_tells_sizes_and_times(storage: Storage) -> None:
    storage.put_if_absent("a/k", b"12345")
    (found,) = storage.list("a")
    stored = storage.get("a/k")
    assert stored is not None
    assert found.size_bytes == 5 and abs(found.modified_ms - stored.modified_ms) <= 1000


def test_deleting_many_takes_those_and_no_others(storage: Storage) -> None:
    for number in range(30):
        storage.put_if_absent(f"d/{number:02}", b"x", durable=False)
    storage.delete(f"d/{number:02}" for number in range(25))
    assert keys(storage, "d") == [f"d/{number:02}" for number in range(25, 30)]


@pytest.mark.parametrize("missing", [0, 15, 29])
def test_deleting_many_takes_all_that_are_there_though_one_is_missing(storage: Storage, missing: int) -> None:
    for number in range(30):
        if number != missing:
            storage.put_if_absent(f"d/{number:02}", b"x", durable=False)
    storage.delete(f"d/{number:02}" for number in range(30))
    assert keys(storage, "d") == []


def test_a_folder_is_deleted_with_the_names_that_no_listing_shows_and_nothing_beside_it(storage: Storage) -> None:
    inside = ["d/one", "d/.two.log.1_0-0-0", "d/deep/.three", "d/deep/four"]
    for key in (*inside, "d2/one", "e"):
        storage.put_if_absent(key, b"x")
    storage.delete_folder("d")
    assert [storage.get(key) for key in inside] == [None] * 4
    assert keys(storage, "") == ["d2/one", "e"]
    storage.delete_folder("d")


def test_a_folder_that_was_emptied_can_be_written_again(storage: Storage) -> None:
    for _ in range(3):
        storage.put_if_absent("one/two/three/four/k", b"x")
        storage.delete(["one/two/three/four/k"])
        assert keys(storage, "one") == []


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_keep_their_spelling(storage: Storage, name: str) -> None:
    key = f"p/{name}/{name}"
    if ":" in name and isinstance(storage, HdfsStorage):
        with pytest.raises(StorageError, match="HDFS allows no such name") as refused:
            storage.put_if_absent(key, b"x")
        assert "no colon" in refused.value.hint
        return
    storage.put_if_absent(key, b"x")
    assert storage.get(key) is not None
    assert keys(storage, f"p/{name}") == [key]
    with storage.open_output(key) as file:
        file.write(b"y")
    with storage.open_input(key) as file:
        assert file.read() == b"y"
    storage.delete([key])
    assert storage.get(key) is None


@pytest.mark.parametrize("key", ["../up", "a/../b", "/root", "a//b", "a/", "", ".", "a/./b", "nul\0"])
def test_keys_that_could_leave_the_root_are_refused(storage: Storage, key: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: storage.get(key),
        lambda: storage.put_if_absent(key, b"x"),
        lambda: storage.put_if_match(key, b"x", "v"),
        lambda: storage.put(key, b"x"),
        lambda: storage.delete([key]),
        lambda: storage.open_input(key),
        lambda: storage.open_output(key),
        lambda: list(storage.list(key or "..")),
    ]
    for call in calls:
        with pytest.raises(StorageError) as refused:
            call()
        assert refused.value.hint


def test_a_data_file_is_written_and_read_with_seeks(storage: Storage) -> None:
    with storage.open_output("p/data") as out:
        out.write(b"0123456789" * 10_000)
        out.write(memoryview(b"tail"))
    with storage.open_input("p/data") as file:
        assert file.seek(-4, os.SEEK_END) == 100_000 and file.read() == b"tail"
        assert file.seek(10) == 10 and file.read(3) == b"012" and file.tell() == 13
    (found,) = storage.list("p")
    assert found.size_bytes == 100_004


def test_pyarrow_reads_and_writes_parquet_through_it(storage: Storage) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    table = pa.table({"n": list(range(1000))})
    with storage.open_output("p/f.parquet") as out, pq.ParquetWriter(out, table.schema) as writer:
        writer.write_table(table)
    with storage.open_input("p/f.parquet") as file:
        assert pq.ParquetFile(file).read().equals(table)


def test_the_probe_finds_conditions_honoured_and_leaves_nothing(storage: Storage) -> None:
    probe(storage, ".hoodie/.lakelock/probe/one", "one")
    assert keys(storage, ".hoodie") == []


def test_one_of_many_racing_creates_wins_and_one_of_many_racing_replacements(storage: Storage) -> None:
    runtime = SystemRuntime()
    for key in ("race/1", "race/2", "race/3", "race/4"):
        creates = [partial(storage.put_if_absent, key, b"%d" % n) for n in range(8)]
        etags = [etag for etag in runtime.gather(creates, limit=8) if etag is not None]
        assert len(etags) == 1
        swaps = [partial(storage.put_if_match, key, b"new %d" % n, etags[0]) for n in range(8)]
        assert sum(new is not None for new in runtime.gather(swaps, limit=8)) == 1


def test_a_create_whose_reply_was_lost_is_known_as_ours(storage: Storage) -> None:
    faulty = FaultyStorage(storage, [Rule("put_if_absent", fault=Fault.LOST_REPLY)])
    assert create(faulty, "k", b"write id 1") is Created.OURS
    assert create(faulty, "k", b"write id 2") is Created.THEIRS


def test_a_create_that_may_still_arrive_is_unknown_and_does_arrive(storage: Storage) -> None:
    faulty = FaultyStorage(storage, [Rule("put_if_absent", fault=Fault.LATE, late_by=100)])
    assert create(faulty, "k", b"write id 1") is Created.UNKNOWN
    assert storage.get("k") is None
    assert faulty.deliver() == 1
    assert storage.get("k") is not None


def test_a_request_that_failed_was_not_done(storage: Storage) -> None:
    faulty = FaultyStorage(storage, [Rule("put*", "a/*", nth=2)])
    faulty.put("a/1", b"x")
    with pytest.raises(StorageUnavailable):
        faulty.put("a/2", b"x")
    faulty.put("a/3", b"x")
    assert keys(storage, "a") == ["a/1", "a/3"]


def test_two_writers_of_a_table_there_commit_conflict_and_leave_nothing(storage: Storage) -> None:
    """With the lock beside the table."""
    new_table(storage)
    one, other = collided_writers(storage)
    insert(other, storage, "month=2", "g")
    assert [entry.operation for entry in one.history()] == ["INSERT", "UPSERT", "INSERT"]
    assert {file.file_id for file in one.snapshot().files} == {"f", "g"} and leftovers(storage) == []
