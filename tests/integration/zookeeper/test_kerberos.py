"""A ZooKeeper server that knows users by Kerberos, on a real KDC: a ticket is what the lock's ACL asks for."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.integration.zookeeper.zookeeper_world import Worker
from tests.servers.kerberos import REALM, Realm, kerberos_realm
from tests.servers.locks.zookeeper import zookeeper_server

from lakelock.testing.service import Service

pytestmark = pytest.mark.timeout(600)  # the first time on a machine includes an installation


@dataclass(frozen=True)
class Secured:
    realm: Realm
    service: Service
    users: Path


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with kerberos_realm(tmp_path_factory.mktemp("kdc")) as realm:
        users, keys = realm.keytab("etl", "audit"), realm.keytab("zookeeper/localhost")
        jaas = realm.folder / "jaas.conf"
        jaas.write_text(
            "Server { com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true useTicketCache=false "
            f'doNotPrompt=true keyTab="{keys}" principal="zookeeper/localhost@{REALM}"; }};\n'
        )
        extra = {"authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
        jvm = [f"-Djava.security.auth.login.config={jaas}", f"-Djava.security.krb5.conf={realm.configuration}"]
        with zookeeper_server(tmp_path_factory.mktemp("zookeeper"), extra, jvm, own=True) as service:
            yield Secured(realm, service, users)


@pytest.fixture
def writer(secured: Secured, tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    """Start a writer in a process of its own that logs in as a user, whose ticket `kinit` has fetched; or as nobody."""
    started: list[Worker] = []
    uri = secured.service.url(tmp_path.name).replace("127.0.0.1", "localhost")

    def start(user: str, **settings: str) -> Worker:
        cache = tmp_path / f"tickets-{user}"
        if user:
            secured.realm.kinit(secured.users, user, cache)
        options = {"lock.provider": uri, "lock.options.sasl_options.mechanism": "GSSAPI", **settings}
        arena = {"uri": str(tmp_path / "table"), "options": {}, "settings": options, "folder": str(tmp_path)}
        environment = {**os.environ, **secured.realm.environment, "KRB5CCNAME": f"FILE:{cache}"}
        started.append(Worker([sys.executable, "-m", "lakelock.testing.lock_worker"], env=environment))
        started[-1].ask(json.dumps({**arena, "lease_s": 6.0, "renew_s": 2.0}))
        return started[-1]

    yield start
    for worker in started:
        worker.process.kill()
        worker.process.communicate()


def test_a_ticket_opens_what_the_acl_closes_to_others(writer: Callable[..., Worker]) -> None:
    owner = writer("etl", **{"lock.options.acl": "creator"})
    assert "token" in owner("take 20")
    assert "may not use the node" in writer("audit")("take 20")["refused"]
    assert owner("release") == {"released": True}
    assert "token" in writer("etl")("take 20")


@pytest.mark.parametrize(
    ("user", "settings"),
    [
        ("", {}),
        ("etl", {"lock.options.sasl_options.service": "other"}),
        ("etl", {"lock.options.sasl_options.principal": "audit"}),
    ],
)
def test_a_failed_login_names_kinit_at_once(writer: Callable[..., Worker], user: str, settings: dict[str, str]) -> None:
    answer = writer(user, **settings)("take 60")
    assert "does not accept the credentials" in answer["refused"]
    assert "`kinit`" in answer["hint"] and "lock.options.sasl_options" in answer["hint"]


def test_a_kdc_that_is_away_is_waited_for(secured: Secured, writer: Callable[..., Worker], tmp_path: Path) -> None:
    waiting = writer("etl")
    secured.realm.stop()
    try:
        # The ticket for the service is not there yet, and cannot be had.
        assert "ZooKeeper" in waiting("take 3")["unavailable"]
    finally:
        secured.realm.start()
    assert "token" in waiting("take 30")
