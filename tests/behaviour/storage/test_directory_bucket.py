"""What is particular to a directory bucket of S3: sessions, listings without order, and what these may leave out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import obstore
import pytest
from obstore.store import S3Store

from lakelock.errors import CorruptTableError, SettingsError
from lakelock.occ.records.decisions import DecisionLog
from lakelock.storage import Listed
from lakelock.storage.objects.store import ObjectStorage
from lakelock.table import layout
from tests.behaviour.tables import insert, new_table, writer
from tests.directory_bucket import BUCKET, DirectoryBucket
from tests.faulty_storage import Wrapped

KEYS = ["!first", "-1/f", "_late/f", "month=1/a", "month=1/b", "month=10/a", "month=2/a", "zero"]


@pytest.fixture
def filled(express_table: Callable[[], ObjectStorage]) -> ObjectStorage:
    """A folder of partitions and metadata; keys come back in another order than this."""
    storage = express_table()
    for key in (*KEYS, *(f".hoodie/timeline/{number:02}" for number in range(20))):
        storage.put(key, b"")
    return storage


def raw(express: DirectoryBucket) -> S3Store:
    """The bucket as a client sees it that knows nothing of tables."""
    given = dict(express.options)
    client = {"proxy_url": given.pop("proxy_url"), "root_certificate": given.pop("root_certificate")}
    return S3Store(BUCKET, config={**given, "s3_express": "true"}, client_options=client)


def test_a_listing_is_in_key_order_though_the_bucket_has_none(express: DirectoryBucket, filled: ObjectStorage) -> None:
    place = filled.uri.rpartition("/")[2]
    pages = obstore.list(raw(express), place, chunk_size=5)
    found = [meta["path"].partition("/")[2] for page in pages for meta in page]
    assert set(found) > set(KEYS) and found != sorted(found)
    assert [item.key for item in filled.list("")] == KEYS
    assert [item.key for item in filled.list("", start_after="month=1/a")] == KEYS[4:]
    assert [item.key[-2:] for item in filled.list(".hoodie", start_after=".hoodie/timeline/16")] == ["17", "18", "19"]


def test_a_table_listing_does_not_page_through_the_metadata_folder(
    filled: ObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    listed = obstore.list

    def recording(store: S3Store, prefix: str, **how: int) -> object:
        asked.append(prefix)
        return listed(store, prefix, **how)

    monkeypatch.setattr(obstore, "list", recording)
    assert [item.key for item in filled.list("", start_after="month=1/z")] == KEYS[5:]
    assert asked == ["month=1", "month=10", "month=2"]


def test_one_session_serves_all_requests_of_a_client(
    express: DirectoryBucket, express_table: Callable[[], ObjectStorage]
) -> None:
    storage, before = express_table(), len(express.sessions)
    new_table(storage)
    insert(writer(storage), storage, "month=1", "f")
    (made,) = express.sessions[before:]
    assert re.match(r"AWS4-HMAC-SHA256 Credential=test-key-id/\d+/us-east-1/", made)


def test_a_name_that_has_no_zone_in_it_is_refused(express: DirectoryBucket) -> None:
    with pytest.raises(SettingsError, match="Invalid Zone suffix for bucket 'lake--x-s3'"):
        ObjectStorage("s3://lake--x-s3/t", express.options)


class WithoutOrder(Wrapped):
    """A storage whose next listings of the log leave out a number, as if it had been put when its page had passed."""

    def __init__(self, inner: ObjectStorage, left_out: int, times: int) -> None:
        super().__init__(inner)
        self.left_out, self.times = layout.decision(left_out), times

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[Listed]:
        found = [*super().list(prefix, start_after=start_after)]
        if prefix == layout.DECISIONS and self.times and found:
            self.times -= 1
            found = [item for item in found if item.key != self.left_out]
        return iter(found)


@pytest.fixture
def busy(express_table: Callable[[], ObjectStorage]) -> ObjectStorage:
    """A table whose log has more than a page."""
    storage = express_table()
    new_table(storage)
    one = writer(storage)
    for number in range(9):
        insert(one, storage, "month=1", f"f{number}")
    return storage


def test_a_decision_that_a_listing_left_out_is_found_by_a_second_one(busy: ObjectStorage) -> None:
    whole = DecisionLog(busy).look(newest=None)
    assert DecisionLog(WithoutOrder(busy, 4, times=1)).look(newest=None) == whole
    assert len(whole.numbers) == 9
    with pytest.raises(CorruptTableError, match="decision 4 is missing although 9 exists"):
        DecisionLog(WithoutOrder(busy, 4, times=2)).look()


def test_a_writer_commits_through_a_listing_that_left_out_a_decision(busy: ObjectStorage) -> None:
    mine = writer(WithoutOrder(busy, 4, times=1))
    insert(mine, busy, "month=1", "g")
    assert len(writer(busy).history()) == 10
