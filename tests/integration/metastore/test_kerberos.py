"""A metastore that wants Kerberos, on a real KDC: a writer with a ticket gets the lock, and one without is told what to do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
from tests.integration.metastore.metastore_world import World, take
from tests.servers.kerberos import REALM, Realm, kerberos_realm
from tests.servers.locks.hive_metastore import MetastoreProcess
from tests.waiting import eventually

from lakelock.errors import LockTimeout, ProviderRefused, ProviderUnavailable
from lakelock.providers.hive_metastore.client import MetastoreClient
from lakelock.providers.hive_metastore.connection import Address
from lakelock.settings.sections import HiveMetastoreSettings

pytestmark = pytest.mark.timeout(600)  # the first time on a machine includes an installation
_numbers = count(1)
SERVICE = f"hive/_HOST@{REALM}"


@dataclass(frozen=True)
class Secured:
    """A metastore in a realm, and the keys of its users."""

    realm: Realm
    port: int
    users: Path


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with kerberos_realm(tmp_path_factory.mktemp("kdc")) as realm, pytest.MonkeyPatch.context() as patched:
        for name, value in realm.environment.items():
            patched.setenv(name, value)
        users, service = realm.keytab("etl", "audit"), realm.keytab("hive/localhost")
        properties = {
            "hive.metastore.sasl.enabled": "true",
            "hive.metastore.kerberos.keytab.file": str(service),
            "hive.metastore.kerberos.principal": f"hive/localhost@{REALM}",
            "hive.cluster.delegation.token.store.class": "org.apache.hadoop.hive.thrift.MemoryTokenStore",
            "hadoop.security.authentication": "kerberos",
        }
        options = [f"-Djava.security.krb5.conf={realm.configuration}"]
        with MetastoreProcess(tmp_path_factory.mktemp("metastore"), properties, options) as server:
            yield Secured(realm, server.port, users)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The ticket cache of this test, in which there is no ticket yet."""
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/tickets")
    return tmp_path / "tickets"


@pytest.fixture
def world(secured: Secured, cache: Path) -> Iterator[World]:
    table = f"table_{next(_numbers)}"
    world = World(f"hive_metastore://localhost:{secured.port}/lakelock_test/{table}", table=table)
    yield world
    for provider in world.opened:
        provider.close()


def test_a_ticket_of_kinit_logs_in(secured: Secured, world: World, cache: Path) -> None:
    secured.realm.kinit(secured.users, "etl", cache)
    provider = world.writer("one", auth="KERBEROS", principal=SERVICE)
    provider.probe()
    lease = take(provider, wait_s=10)
    provider.renew(lease)
    other = world.writer("two", auth="KERBEROS", principal=SERVICE)
    with pytest.raises(LockTimeout, match="one"):
        take(other)
    provider.release(lease)
    assert take(other, wait_s=10).token > lease.token


def test_a_keytab_logs_in_without_any_ticket_and_leaves_none(secured: Secured, world: World, cache: Path) -> None:
    keys = {"principal": SERVICE, "keytab": str(secured.users)}
    first = world.writer("one", auth="KERBEROS", **keys)
    second = world.writer("two", auth="KERBEROS", user=f"audit@{REALM}", **keys)
    lease = take(first, wait_s=10)
    with pytest.raises(LockTimeout, match="one"):
        take(second)
    first.release(lease)
    take(second, wait_s=10).ensure_active()
    assert not cache.exists()


def test_a_delegation_token_that_kerberos_got_logs_in_without_it(secured: Secured, world: World) -> None:
    settings = HiveMetastoreSettings(auth="KERBEROS", principal=SERVICE, keytab=str(secured.users), user=f"etl@{REALM}")
    client = MetastoreClient(world.runtime, settings, [Address("localhost", secured.port)], "etl", print)
    token = client.call(lambda calls: calls.get_delegation_token("etl", "etl"), within_s=30)
    client.close()
    provider = world.writer("one", auth="DIGEST", delegation_token=token)
    lease = take(provider, wait_s=10)
    provider.renew(lease)
    provider.release(lease)
    assert provider.inspect().holder is None


def test_without_a_ticket_kinit_is_the_next_step(secured: Secured, world: World) -> None:
    began_s = time.monotonic()
    with pytest.raises(ProviderRefused, match=r"refused the log-in: Kerberos: No Kerberos credentials") as refused:
        take(world.writer("one", auth="KERBEROS", principal=SERVICE), wait_s=60)
    assert "`kinit`" in refused.value.hint and "keytab" in refused.value.hint
    assert time.monotonic() - began_s < 30, "it went on trying what cannot help"
    with pytest.raises(ProviderRefused) as refused:
        take(world.writer("one", auth="KERBEROS", principal=SERVICE, user=f"etl@{REALM}"))
    assert f"`kinit etl@{REALM}`" in refused.value.hint


def test_an_expired_ticket_is_reported_as_expired(secured: Secured, world: World, cache: Path) -> None:
    secured.realm.kinit(secured.users, "etl", cache, "-l", "1s")
    provider = world.writer("one", auth="KERBEROS", principal=SERVICE)

    refusals: list[ProviderRefused] = []

    def refused() -> bool:
        try:
            provider.inspect()
        except ProviderRefused as error:
            refusals.append(error)
        provider.close()
        return bool(refusals)

    eventually(refused)
    assert "expired" in refusals[0].message and "`kinit`" in refusals[0].hint


@pytest.mark.parametrize(
    ("wrong", "said", "next_step"),
    [
        ({"principal": f"hive/elsewhere@{REALM}"}, "not found in Kerberos database", "hive.metastore.kerberos.principal"),
        ({"principal": f"audit@{REALM}"}, "refused the log-in", "token or principal"),
        ({"keytab": "/nowhere/a.keytab"}, "the keytab /nowhere/a.keytab cannot be read", "hive_metastore.keytab"),
        ({"user": f"nobody@{REALM}"}, f"did not log in nobody@{REALM}", "`klist -k "),
    ],
)
def test_what_does_not_fit_is_named(secured: Secured, world: World, wrong: dict[str, str], said: str, next_step: str) -> None:
    right = {"principal": SERVICE, "keytab": str(secured.users)}
    with pytest.raises(ProviderRefused, match=said) as refused:
        take(world.writer("one", auth="KERBEROS", **{**right, **wrong}))
    assert next_step in refused.value.hint


def test_a_kdc_that_is_away_is_waited_for(secured: Secured, world: World) -> None:
    provider = world.writer("one", auth="KERBEROS", principal=SERVICE, keytab=str(secured.users), connect_delay_s=0.05)
    secured.realm.stop()
    try:
        with pytest.raises(ProviderUnavailable, match="Kerberos: .*KDC"):
            take(provider)
    finally:
        secured.realm.start()
    take(provider, wait_s=20).ensure_active()
