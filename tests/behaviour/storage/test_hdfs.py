"""What only HDFS has: replacements that a killed writer left half done, users and quotas, name nodes that come and go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from getpass import getuser
from pathlib import Path
from threading import Thread
from time import monotonic

import pytest
from tests.api import SystemRuntime, open_storage
from tests.servers.stores.hdfs import Hdfs, hdfs_server

from lakelock.errors import SettingsError, StorageError, StorageUnavailable, StorageUnsafe
from lakelock.storage.hdfs import HdfsStorage
from lakelock.storage.hdfs_cluster import Cluster, HdfsOptions, Status, from_hadoop, inode

Make = Callable[[], HdfsStorage]


def cluster(hdfs: Hdfs) -> Cluster:
    """A client below the storage, which sends what a writer sends that is then killed."""
    return Cluster(hdfs.root, HdfsOptions.of(hdfs.root, {**hdfs.options, "user": getuser()}, ""), SystemRuntime())


def path_of(storage: HdfsStorage, key: str) -> str:
    return f"/{storage.uri.split('/', 3)[3]}/{key}"


def decided(hdfs: Hdfs, storage: HdfsStorage, key: str, data: bytes) -> str:
    """Replace an object as far as the decision: the new content is its successor, and not in place. The temporary file."""
    client, path = cluster(hdfs), path_of(storage, key)
    temporary = path.rpartition("/")[0] + "/.killed.tmp"
    client.write(temporary, data, overwrite=True)
    new, old = client.status(temporary), client.status(path)
    assert new is not None and old is not None
    value = f"0x{str(new.inode).encode().hex()}"
    successor = {"xattr.name": f"user.lakelock.successor.{old.inode}.0", "xattr.value": value, "flag": "CREATE"}
    client.ask("PUT", inode(old.inode), "SETXATTR", successor)
    return temporary


@pytest.mark.in_ci
def test_a_replacement_whose_writer_was_killed_is_put_in_place_by_the_next_one(hdfs: Hdfs, hdfs_table: Make) -> None:
    storage = hdfs_table()
    first = storage.put_if_absent("folder/k", b"one") or ""
    decided(hdfs, storage, "folder/k", b"two")
    assert storage.put_if_match("folder/k", b"three", first) is None
    found = storage.get("folder/k")
    assert found is not None and found.data == b"two"
    assert storage.put_if_match("folder/k", b"three", found.etag) is not None


@pytest.mark.in_ci
def test_a_replacement_that_somebody_deleted_keeps_nobody_from_the_object(hdfs: Hdfs, hdfs_table: Make) -> None:
    storage = hdfs_table()
    first = storage.put_if_absent("folder/k", b"one") or ""
    cluster(hdfs).ask("DELETE", decided(hdfs, storage, "folder/k", b"two"), "DELETE")
    assert storage.put_if_match("folder/k", b"three", first) is not None
    found = storage.get("folder/k")
    assert found is not None and found.data == b"three"


@pytest.mark.in_ci
def test_whoever_loses_a_replacement_leaves_no_file(hdfs: Hdfs, hdfs_table: Make) -> None:
    storage = hdfs_table()
    first = storage.put_if_absent("folder/k", b"one") or ""
    decided(hdfs, storage, "folder/k", b"two")
    storage.put_if_match("folder/k", b"three", first)
    storage.put_if_absent("folder/k", b"four")
    assert [found.name for found in cluster(hdfs).entries(path_of(storage, "folder"))] == ["k"]


@pytest.mark.in_ci
def test_a_folder_that_is_emptied_goes_and_those_of_the_table_stay(hdfs: Hdfs, hdfs_table: Make) -> None:
    storage = hdfs_table()
    storage.put_if_absent("a/b/c/d/k", b"x")
    storage.delete(["a/b/c/d/k"])
    assert cluster(hdfs).status(path_of(storage, "a/b/c")) is None
    assert cluster(hdfs).status(path_of(storage, "a/b")) is not None


@pytest.mark.in_ci
def test_a_user_without_the_right_is_told_so(hdfs: Hdfs, hdfs_table: Make) -> None:
    storage = hdfs_table()
    storage.put_if_absent("folder/k", b"one")
    other = HdfsStorage(storage.uri, {**hdfs.options, "user": "somebody"})
    with pytest.raises(StorageError, match="permission denied.*user=somebody") as refused:
        other.put_if_absent("folder/new", b"x")
    assert "storage.user" in refused.value.hint and not isinstance(refused.value, StorageUnavailable)
    assert storage.get("folder/new") is None


@pytest.mark.in_ci
def test_a_quota_that_is_used_up_is_said(hdfs: Hdfs, hdfs_table: Make) -> None:
    storage = hdfs_table()
    storage.put_if_absent("k", b"one")
    root = path_of(storage, "k").rpartition("/")[0]
    cluster(hdfs).ask("PUT", root, "SETQUOTA", {"namespacequota": "2"})
    with pytest.raises(StorageError, match="quota of names is used up"):
        storage.put_if_absent("other", b"x")
    with storage.open_input("k") as file:
        assert file.read() == b"one"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name_nodes": "http://nn:9870"}, 'no option storage.name_nodes; did you mean "namenodes"?'),
        ({"namenodes": "nn:9870"}, "is not the web address of a name node"),
        ({"namenodes": "hdfs://nn:8020"}, "is not the web address of a name node"),
        ({"namenodes": " , "}, "is not the web address of a name node"),
        ({"timeout_s": "soon"}, "is not a number of seconds"),
        ({"ca_certificate": "ca.pem"}, "http://nn:9870 would be asked without TLS"),
    ],
)
def test_an_option_that_cannot_be_is_refused_before_anything_is_asked(options: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        open_storage("hdfs://nn/t", options)
    assert said in str(refused.value)


HA = {
    "dfs.ha.namenodes.lake": "one, two",
    "dfs.namenode.http-address.lake.one": "a.example:9870",
    "dfs.namenode.rpc-address.lake.two": "b.example:8020",
    "dfs.namenode.http-address": "0.0.0.0:50070",
}


@pytest.mark.parametrize(
    ("uri", "settings", "found"),
    [
        ("hdfs://lake/t", HA, "http://a.example:9870,http://b.example:9870"),
        ("hdfs://lake/t", {**HA, "dfs.http.policy": "HTTPS_ONLY"}, "https://b.example:9871"),
        ("hdfs://nn/t", HA, "http://nn:50070"),
        ("hdfs://nn:8021/t", {"dfs.namenode.http-address": "nn:1234"}, "http://nn:1234"),
        ("hdfs://elsewhere/t", {"dfs.namenode.http-address": "nn:1234"}, None),
        ("hdfs://lake/t", {"dfs.namenode.http-address.lake": "nn:1234"}, "http://nn:1234"),
        ("hdfs://nn/t", {}, "http://nn:9870"),
    ],
)
def test_hadoops_settings_say_where_the_name_nodes_are(uri: str, settings: dict[str, str], found: str | None) -> None:
    assert from_hadoop(uri, settings.get).get("namenodes") == found


def test_the_default_is_the_host_of_the_uri_and_a_token_is_not_shown() -> None:
    options = HdfsOptions.of("hdfs://nn:8021/t", {"delegation_token": "secret"}, "me")
    assert options.namenodes == ("http://nn:9870",) and options.user == "me"
    assert "secret" not in repr(replace(options, user="you"))


@pytest.mark.long
@pytest.mark.waits
def test_a_name_node_that_starts_again_is_waited_for(tmp_path: Path) -> None:
    with hdfs_server(tmp_path) as server:
        storage = HdfsStorage(f"{server.root}/t", server.options)
        storage.put_if_absent("k", b"one")
        server.stop()
        again = Thread(target=server.start)
        again.start()
        found = storage.get("k")
        again.join()
        assert found is not None and found.data == b"one"


def test_a_host_that_nobody_knows_is_said_at_once() -> None:
    began_s = monotonic()
    with pytest.raises(StorageUnavailable, match="http://nowhere.invalid:9870 has no known host") as refused:
        open_storage("hdfs://nowhere.invalid/t").get("k")
    assert "storage.namenodes" in refused.value.hint and monotonic() - began_s < 20


def test_a_server_that_does_not_tell_the_numbers_of_files_is_refused() -> None:
    """As HttpFS did before Hadoop 3.3."""
    old = {"pathSuffix": "", "length": 5, "modificationTime": 1, "type": "FILE"}
    with pytest.raises(StorageUnsafe, match="does not tell the numbers of files"):
        Status.read(old)


@pytest.mark.in_ci
def test_an_address_that_is_not_the_web_interface_is_said(hdfs: Hdfs) -> None:
    storage = HdfsStorage(f"{hdfs.root}/t", {"namenodes": f"http://127.0.0.1:{hdfs.port}"})
    with pytest.raises(StorageError, match="does not answer as a name node.*not the correct port for the web interface"):
        storage.get("k")


@pytest.mark.in_ci
def test_a_version_that_a_snapshot_keeps_cannot_be_replaced_again(hdfs: Hdfs, hdfs_table: Make) -> None:
    """The name node takes its number for the file that has its name by now."""
    mine = hdfs_table()
    other = HdfsStorage(mine.uri, hdfs.options)
    first = mine.put_if_absent("folder/k", b"one") or ""
    snapshot(hdfs, mine)
    overtaken = Overtaken(lambda: other.put_if_match("folder/k", b"two", first))
    late = HdfsStorage(mine.uri, hdfs.options, runtime=overtaken)
    assert late.put_if_match("folder/k", b"lost", first) is None
    found = mine.get("folder/k")
    assert found is not None and found.data == b"two"
    assert mine.put_if_match("folder/k", b"three", found.etag) is not None
    assert [each.name for each in cluster(hdfs).entries(path_of(mine, "folder"))] == ["k"]


@pytest.mark.in_ci
def test_a_read_beside_a_replacement_gives_one_version_whole(
    hdfs: Hdfs, hdfs_table: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = hdfs_table()
    first = mine.put_if_absent("folder/k", b"one") or ""
    snapshot(hdfs, mine)
    other, read, replaced = HdfsStorage(mine.uri, hdfs.options), Cluster.read, list[bool]()

    def reading(of: Cluster, path: str, start: int, length: int) -> bytes:
        if not replaced:
            replaced.append(other.put_if_match("folder/k", b"the second one", first) is not None)
        return read(of, path, start, length)

    monkeypatch.setattr(Cluster, "read", reading)
    found = mine.get("folder/k")
    assert replaced == [True]
    assert found is not None and found.data == b"the second one" and found.etag != first


class Overtaken(SystemRuntime):
    """A process that is overtaken when it names a temporary file: it has looked, and not yet put anything in place."""

    def __init__(self, overtake: Callable[[], object]) -> None:
        self._overtake = overtake

    def uuid(self) -> str:
        self._overtake()
        return super().uuid()


def snapshot(hdfs: Hdfs, storage: HdfsStorage) -> None:
    """Make a snapshot of the table's folder."""
    root = path_of(storage, "k").rpartition("/")[0]
    cluster(hdfs).ask("PUT", root, "ALLOWSNAPSHOT")
    cluster(hdfs).ask("PUT", root, "CREATESNAPSHOT")
