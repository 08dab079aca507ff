"""What is particular to a directory bucket of S3: sessions, listings without order, and what these may leave out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import obstore
import pytest
from obstore.store import S3Store
from tests.api import layout
from tests.behaviour.tables import insert, new_table, writer
from tests.directory_bucket import BUCKET, DirectoryBucket
from tests.directory_bucket import PAGE as EXPRESS_PAGE

from lakelock.errors import SettingsError, StorageUnavailable
from lakelock.occ.log import DecisionLog
from lakelock.storage import Listed, objects
from lakelock.storage.objects import ObjectStorage, of_one_moment

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


@pytest.fixture
def busy(express_table: Callable[[], ObjectStorage]) -> ObjectStorage:
    """A table with nine decisions."""
    storage = express_table()
    new_table(storage)
    one = writer(storage)
    for number in range(9):
        insert(one, storage, "month=1", f"f{number}")
    return storage


def test_a_decision_that_was_put_when_its_page_had_passed_is_found(
    busy: ObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, listed, passed = DecisionLog(busy).look(newest=None), obstore.list, iter([layout.decision(4)])

    def without_order(store: S3Store, prefix: str, **how: int) -> Iterator[list[Any]]:
        left_out = next(passed, "")
        for page in listed(store, prefix, **how):
            yield [meta for meta in page if meta["path"] != left_out]

    monkeypatch.setattr(obstore, "list", without_order)
    monkeypatch.setattr(objects, "PAGE", EXPRESS_PAGE)
    assert DecisionLog(busy).look(newest=None) == whole
    assert len(whole.numbers) == 9 and next(passed, "") == ""


def answers(*collections: str) -> Callable[[], list[Listed]]:
    """What is collected one time after the other; a letter is a key."""
    left = iter(collections)
    return lambda: [Listed(key, 0, 0) for key in next(left)]


@pytest.mark.parametrize(
    ("collections", "found"),
    [
        (["ba"], "ab"),
        (["cab", "bca"], "abc"),
        (["cab", "dbca"], "abc"),
        (["dac", "dbac"], "abcd"),
        (["dab", "dbc", "bcd"], "bcd"),
        (["dab", "edbc", "cedf", "dcefg"], "cdef"),
    ],
)
def test_a_folder_without_order_is_collected_until_nothing_was_removed(collections: list[str], found: str) -> None:
    assert "".join(sorted(item.key for item in of_one_moment(answers(*collections), 2))) == found


def test_a_folder_from_which_something_is_always_removed_is_given_up() -> None:
    with pytest.raises(StorageUnavailable, match="removed faster"):
        of_one_moment(answers(*(f"{letter}xyz" for letter in "abcdefghijk")), 2)
