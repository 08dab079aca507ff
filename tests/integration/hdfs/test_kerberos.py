"""A cluster that wants Kerberos, on a real KDC: a ticket or a delegation token is enough, and without both `kinit` is named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.api import SystemRuntime
from tests.behaviour.tables import collided_writers, new_table
from tests.integration.hdfs.secured import Secured, secured_cluster

from lakelock.errors import StorageError
from lakelock.storage.hdfs import HdfsStorage
from lakelock.storage.hdfs_cluster import Cluster, HdfsOptions

pytestmark = pytest.mark.timeout(600)  # the first time on a machine includes an installation


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_cluster(tmp_path_factory.mktemp("secured")) as found, pytest.MonkeyPatch.context() as patched:
        for name, value in found.realm.environment.items():
            patched.setenv(name, value)
        yield found


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The ticket cache of this test, in which there is no ticket yet."""
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/tickets")
    return tmp_path / "tickets"


def test_two_writers_with_tickets_commit_and_conflict(secured: Secured, cache: Path) -> None:
    secured.realm.kinit(secured.users, "etl", cache)
    storage = HdfsStorage(f"{secured.hdfs.root}/lake/t", secured.hdfs.options)
    new_table(storage)
    collided_writers(storage)
    with storage.open_output("data") as out:
        out.write(b"streamed")
    assert storage.open_input("data").read() == b"streamed"


def test_a_delegation_token_is_enough_where_there_is_no_ticket(
    secured: Secured, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secured.realm.kinit(secured.users, "etl", cache)
    client = Cluster(secured.hdfs.root, HdfsOptions.of(secured.hdfs.root, secured.hdfs.options, ""), SystemRuntime())
    token = client.ask("GET", "/", "GETDELEGATIONTOKEN", {"renewer": "etl"})["Token"]["urlString"]
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}-none")
    storage = HdfsStorage(f"{secured.hdfs.root}/lake/by-token", {**secured.hdfs.options, "delegation_token": token})
    assert storage.put_if_absent("folder/k", b"one") is not None
    with storage.open_output("folder/data") as out:
        out.write(b"streamed")
    assert [found.key for found in storage.list("folder")] == ["folder/data", "folder/k"]
    client.ask("PUT", "/", "CANCELDELEGATIONTOKEN", {"token": token})
    with pytest.raises(StorageError, match="token is not valid, or has run out") as refused:
        storage.get("folder/k")
    assert "storage.delegation_token" in refused.value.hint and token not in str(refused.value)


def test_without_a_ticket_kinit_is_the_next_step(secured: Secured, cache: Path) -> None:
    with pytest.raises(StorageError, match="asks for Kerberos: No Kerberos credentials") as refused:
        HdfsStorage(f"{secured.hdfs.root}/lake/t", secured.hdfs.options).get("k")
    assert "kinit" in refused.value.hint


def test_a_user_who_may_not_write_is_told_so(secured: Secured, cache: Path) -> None:
    secured.realm.kinit(secured.users, "audit", cache)
    with pytest.raises(StorageError, match="permission denied.*user=audit"):
        HdfsStorage(f"{secured.hdfs.root}/lake/t", secured.hdfs.options).put_if_absent("k", b"x")
