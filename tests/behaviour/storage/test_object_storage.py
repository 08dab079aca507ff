"""What is particular to an object store: pages, parts, refusals, outages, and secrets that must not leak."""

from __future__ import annotations

import os
import socket
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import obstore
import pytest
from tests.servers import S3_OPTIONS, S3_PAGE
from tests.servers.http_front import Answer, Front, in_threads

from lakelock.errors import SettingsError, StorageError, StorageUnavailable, StorageUnsafe
from lakelock.storage import Created, create, is_missing, objects
from lakelock.storage.objects import PART_BYTES, ObjectStorage


def test_a_table_listing_skips_a_big_metadata_folder_without_paging_through_it(
    s3_table: Callable[[], ObjectStorage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "PAGE", S3_PAGE)
    storage = s3_table()
    for key in ["!first", "-1/f", "_late/f", "month=1/f"]:
        storage.put(key, b"x")
    for number in range(250):
        storage.put(f".hoodie/timeline/{number:05}", b"")
    seen: list[str] = []
    listed = obstore.list

    def recording(*which: Any, **how: Any) -> Iterator[Any]:
        for page in listed(*which, **how):
            seen.extend(meta["path"] for meta in page)
            yield page

    monkeypatch.setattr(obstore, "list", recording)
    assert [found.key for found in storage.list("")] == ["!first", "-1/f", "_late/f", "month=1/f"]
    assert len(seen) < 110
    assert len(list(storage.list(".hoodie/timeline"))) == 250
    assert len(list(storage.list(".hoodie", start_after=".hoodie/timeline/00239"))) == 10


def test_a_file_of_several_parts_is_whole_and_invisible_until_it_is_closed(s3_table: Callable[[], ObjectStorage]) -> None:
    storage = s3_table()
    piece = bytes(range(256)) * 4096
    with storage.open_output("p/big") as out:
        for _ in range(2 * PART_BYTES // len(piece) + 3):
            out.write(piece)
        assert storage.get("p/big") is None
        size = out.tell()
    with storage.open_input("p/big") as file:
        assert file.seek(0, 2) == size
        file.seek(size - len(piece))
        assert file.read() == piece
        file.seek(len(piece) * 10 + 5)
        assert file.read(10) == piece[5:15]


def test_a_file_whose_writing_failed_or_was_forgotten_does_not_appear(s3_table: Callable[[], ObjectStorage]) -> None:
    storage = s3_table()
    with suppress(RuntimeError), storage.open_output("p/failed") as out:
        out.write(b"half")
        raise RuntimeError
    forgotten = storage.open_output("p/forgotten")
    forgotten.write(b"half")
    del forgotten
    assert list(storage.list("p")) == []


def client(endpoint: str) -> Any:
    import boto3

    keys = {"aws_access_key_id": S3_OPTIONS["access_key_id"], "aws_secret_access_key": S3_OPTIONS["secret_access_key"]}
    return boto3.client("s3", region_name=S3_OPTIONS["region"], endpoint_url=endpoint, **keys)


def unfinished_uploads(endpoint: str) -> list[str]:
    return [upload["Key"] for upload in client(endpoint).list_multipart_uploads(Bucket="lake").get("Uploads", [])]


def test_an_upload_that_is_given_up_leaves_no_parts_behind(s3_table: Callable[[], ObjectStorage], s3_endpoint: str) -> None:
    storage = s3_table()
    before = unfinished_uploads(s3_endpoint)
    with suppress(RuntimeError), storage.open_output("p/failed") as out:
        for _ in range(3):
            out.write(bytes(PART_BYTES))
        assert len(unfinished_uploads(s3_endpoint)) == len(before) + 1
        raise RuntimeError
    forgotten = storage.open_output("p/forgotten")
    for _ in range(3):
        forgotten.write(bytes(PART_BYTES))
    del forgotten
    assert unfinished_uploads(s3_endpoint) == before
    assert list(storage.list("p")) == []


@pytest.fixture
def nobody_there() -> ObjectStorage:
    return ObjectStorage("s3://lake/t", {**S3_OPTIONS, "endpoint": "http://127.0.0.1:1", "timeout": "1s"})


def test_an_endpoint_that_does_not_answer_is_unavailable_for_every_call(nobody_there: ObjectStorage) -> None:
    calls: list[Callable[[], object]] = [
        lambda: nobody_there.put_if_absent("k", b"x"),
        lambda: list(nobody_there.list("")),
    ]
    for call in calls:
        with pytest.raises(StorageUnavailable) as failed:
            call()
        assert failed.value.hint


def test_a_bucket_that_does_not_exist_is_a_refusal(s3_endpoint: str) -> None:
    storage = ObjectStorage("s3://no-such-bucket/t", {**S3_OPTIONS, "endpoint": s3_endpoint})
    for call in (
        lambda: storage.get("k"),
        lambda: storage.put_if_absent("k", b"x"),
        lambda: list(storage.list("")),
    ):
        with pytest.raises(StorageError, match="no such bucket") as failed:
            call()
        assert not isinstance(failed.value, StorageUnavailable)


def test_an_unknown_option_is_a_settings_error_that_names_it() -> None:
    with pytest.raises(SettingsError, match="nonsense"):
        ObjectStorage("s3://lake/t", {**S3_OPTIONS, "nonsense": "value-of-nonsense"})


SECRET = "option-secret"


def test_no_error_shows_a_secret(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "environment-secret")
    shown = []
    for options in (
        {"endpoint": "http://127.0.0.1:1"},
        {"endpoint": s3_endpoint, "bogus": SECRET},
        {"endpoint": f"http://user:{SECRET}@127.0.0.1:1"},
    ):
        try:
            storage = ObjectStorage("s3://lake/t", {**S3_OPTIONS, "token": SECRET, "timeout": "1s", **options})
            storage.put("k", b"x")
        except (StorageError, SettingsError) as error:
            shown.append("".join(traceback.format_exception(error)) + repr(error.as_dict()))
    assert len(shown) == 3
    for text in shown:
        for secret in (SECRET, "environment-secret", S3_OPTIONS["secret_access_key"], S3_OPTIONS["access_key_id"]):
            assert secret not in text, text


def test_storage_that_lists_out_of_order_is_refused(
    s3_table: Callable[[], ObjectStorage], monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = s3_table()
    for key in ("a", "b"):
        storage.put(key, b"")
    listed = obstore.list
    monkeypatch.setattr(obstore, "list", lambda *which, **how: [page[::-1] for page in listed(*which, **how)])
    with pytest.raises(StorageUnsafe, match="order"):
        list(storage.list(""))


@pytest.mark.parametrize(
    "endpoint",
    ["localhost:9000", "localhost", "http//localhost", "http://localhost:99999", "http://localhost:9/ ", "", "http://"],
)
def test_an_endpoint_that_is_no_url_is_a_settings_error_before_any_request(endpoint: str) -> None:
    """obstore itself would panic, which is no `Exception`."""
    with pytest.raises(SettingsError, match="not the URL of a server") as refused:
        ObjectStorage("s3://lake/t", {**S3_OPTIONS, "endpoint": endpoint})
    assert refused.value.details["key"] == "storage.endpoint"


def test_an_endpoint_in_the_environment_is_checked_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "localhost:9000")
    with pytest.raises(SettingsError, match="AWS_ENDPOINT_URL is 'localhost:9000'"):
        ObjectStorage("s3://lake/t")


def test_an_answer_is_waited_for_only_so_long_where_that_is_asked() -> None:
    """Of a lock next to the table: a renewal that hears nothing leaves time for the next one."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        storage = ObjectStorage("s3://lake/t", {**S3_OPTIONS, "endpoint": endpoint}, within_s=0.3)
        began_s = time.monotonic()
        with pytest.raises(StorageUnavailable):
            storage.get("k")
        assert time.monotonic() - began_s < 5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_is_told_to_be_spawned_instead(s3_table: Callable[[], ObjectStorage]) -> None:
    """obstore's threads are not in it, so that any request would wait for ever."""
    storage = s3_table()
    storage.put("k", b"1")
    child = os.fork()
    if child == 0:
        status = 1
        with suppress(BaseException):
            try:
                storage.get("k")
            except StorageError as error:
                status = 0 if "spawn" in error.hint and not isinstance(error, StorageUnavailable) else 2
        os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert storage.get("k") is not None


@pytest.mark.parametrize(
    ("status", "code"), [(409, "BlobArchived"), (409, "OperationAborted"), (412, "LeaseIdMissing"), (304, "NotModified")]
)
def test_a_refusal_of_a_request_without_a_condition_is_never_taken_for_done_or_absent(status: int, code: str) -> None:
    class Refusing(Front):
        def answered(self) -> Answer:
            self.body()
            return Answer(status, f"<Error><Code>{code}</Code></Error>".encode() if status != 304 else b"")

    with in_threads(Refusing) as endpoint:
        storage = ObjectStorage("s3://lake/t", {**S3_OPTIONS, "endpoint": endpoint})
        calls: list[Callable[[], object]] = [
            lambda: storage.get("k"),
            lambda: storage.put("k", b"x"),
            lambda: storage.delete(["k"]),
            lambda: storage.delete_folder("k"),
            lambda: storage.open_output("k").close(),
            lambda: storage.open_input("k"),
            lambda: storage.open_input("k", size_bytes=1).read(),
        ]
        for call in calls:
            with pytest.raises(StorageUnavailable) as refused:
                call()
            assert not is_missing(refused.value)


def test_azures_batches_after_one_with_a_missing_object_are_deleted_too(azure_table: Callable[[], ObjectStorage]) -> None:
    storage = azure_table()
    there = [f"d/{number:03}" for number in range(0, 300, 20)]
    for key in there:
        storage.put(key, b"x")
    storage.delete(f"d/{number:03}" for number in range(300))
    assert [found.key for found in storage.list("d")] == []


def test_objects_that_stand_for_folders_are_not_listed_and_do_not_disturb_the_order(
    s3_table: Callable[[], ObjectStorage], s3_endpoint: str
) -> None:
    """Hadoop's connectors keep them. By its slash `eu/` comes after `eu-west/`; obstore says `eu`."""
    storage = s3_table()
    files = ["!first", ".hoodie/timeline/1.commit", "eu-west/a-b/f", "eu-west/f", "eu/f"]
    for key in files:
        storage.put(key, b"" if key.endswith("commit") else b"x")
    names = client(s3_endpoint)
    for folder in ["", ".hoodie", ".hoodie/timeline", "eu", "eu-west", "eu-west/a-b", "eu-west/a"]:
        name = f"{storage.uri.removeprefix('s3://lake/')}/{folder}".rstrip("/")
        names.put_object(Bucket="lake", Key=f"{name}/", Body=b"")
    assert [found.key for found in storage.list("")] == ["!first", "eu-west/a-b/f", "eu-west/f", "eu/f"]
    assert [found.key for found in storage.list("eu")] == ["eu/f"]
    assert [found.key for found in storage.list(".hoodie")] == [".hoodie/timeline/1.commit"]
    assert [found.key for found in storage.list("", start_after="eu-west/a-b/f")] == ["eu-west/f", "eu/f"]
    storage.put("eu", b"")
    storage.delete_folder("eu")
    assert storage.get("eu/f") is None and storage.get("eu") is not None


@pytest.mark.parametrize("conflicts", [1, 3, 20])
def test_a_create_during_another_request_for_the_object_is_sent_again(s3_endpoint: str, conflicts: int) -> None:
    """S3 answers 409 then, whether the object is there or not, and wants the request again."""
    refused: list[str] = []

    class Busy(Front):
        behind = s3_endpoint.removeprefix("http://")

        def answered(self) -> Answer:
            data = self.body()
            if self.command == "PUT" and len(refused) < conflicts:
                refused.append(self.path)
                return Answer(409, b"<Error><Code>ConditionalRequestConflict</Code></Error>")
            return self.ask(self.command, self.path, data, {**self.passed_headers(), "Host": self.behind})

    with in_threads(Busy) as endpoint:
        storage = ObjectStorage(f"s3://lake/busy-{conflicts}", {**S3_OPTIONS, "endpoint": endpoint})
        if conflicts < 10:
            assert create(storage, "k", b"mine") is Created.OURS
            return
        with pytest.raises(StorageUnavailable, match="ConditionalRequestConflict"):
            storage.put_if_absent("k", b"mine")
        with pytest.raises(StorageUnavailable, match="ConditionalRequestConflict"):
            storage.put_if_match("k", b"mine", ' "etag"')


@pytest.mark.parametrize(
    ("host", "asked"),
    [
        ("acct.dfs.core.windows.net", "acct.blob.core.windows.net"),
        ("acct.dfs.core.chinacloudapi.cn", "acct.blob.core.chinacloudapi.cn"),
        ("acct.dfs.core.usgovcloudapi.net", "acct.blob.core.usgovcloudapi.net"),
        ("acct.z01.dfs.storage.azure.net", "acct.z01.blob.storage.azure.net"),
        ("onelake.dfs.fabric.microsoft.com", "onelake.blob.fabric.microsoft.com"),
    ],
)
def test_an_account_of_azure_is_asked_in_the_cloud_that_its_host_names(host: str, asked: str) -> None:
    """Nothing leaves this machine: the proxy does not answer."""
    options = {"account_key": "a2V5", "proxy_url": "http://127.0.0.1:1"}
    storage = ObjectStorage(f"abfs://box@{host}/t", options, within_s=0.3)
    with pytest.raises(StorageUnavailable, match=f"GET https://{asked}/box/t/k "):
        storage.get("k")
    with pytest.raises(StorageUnavailable, match=r"GET http://127\.0\.0\.1:2/box/t/k "):
        ObjectStorage(
            f"abfs://box@{host}/t", {**options, "endpoint": "http://127.0.0.1:2", "allow_http": "true"}, within_s=0.3
        ).get("k")
