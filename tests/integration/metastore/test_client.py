"""The client of a metastore: fail-over, repetitions, and the ways to connect and to log in, on real servers."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.api import renewing
from tests.certificates import new_certificate
from tests.integration.metastore.metastore_world import World, closed_port, new_world, take
from tests.servers.locks import hive_metastore as hive_servers
from tests.servers.locks.hive_metastore import hive_metastore_server
from tests.servers.locks.metastore_proxy import MetastoreProxy, metastore_proxy
from tests.waiting import eventually

from lakelock.errors import LeaseLost, LockTimeout, ProviderRefused, ProviderUnavailable, SettingsError
from lakelock.providers.hive_metastore.client import ServerError
from lakelock.testing.proxy import Proxy
from lakelock.testing.service import Service


@dataclass
class Guarded:
    """A metastore, and the settings of a client that gets in."""

    service: Service
    client: dict[str, Any]


@dataclass
class Logins:
    """A metastore behind SASL: its port and a delegation token for it."""

    port: int
    token: str


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A real metastore that speaks thrift's compact protocol in frames over TLS, and keeps locks for a minute."""
    if shutil.which("keytool") is None:
        pytest.skip("needs the keytool of Java 17 or newer: apt-get install -y openjdk-17-jre-headless")
    folder = tmp_path_factory.mktemp("guarded")
    store, certificate = folder / "store.jks", folder / "certificate.pem"
    keytool = ["keytool", "-keystore", str(store), "-storepass", "changeit", "-alias", "metastore"]
    name = ["-dname", "CN=metastore", "-ext", "san=ip:127.0.0.1", "-ext", "bc:c=ca:true"]
    subprocess.run([*keytool, "-genkeypair", "-keyalg", "RSA", *name], check=True, capture_output=True)
    subprocess.run([*keytool, "-exportcert", "-rfc", "-file", str(certificate)], check=True, capture_output=True)
    properties = {
        "hive.metastore.use.SSL": "true",
        "hive.metastore.keystore.path": str(store),
        "hive.metastore.keystore.password": "changeit",
        "hive.metastore.thrift.framed.transport.enabled": "true",
        "hive.metastore.thrift.compact.protocol.enabled": "true",
        "hive.txn.timeout": "60s",
    }
    with hive_metastore_server(folder / "server", properties) as service:
        client = {"tls": True, "tls_ca_file": str(certificate), "transport": "framed", "protocol": "compact"}
        yield Guarded(service, client)


@pytest.fixture(scope="module")
def logins(metastore: Service) -> Iterator[Logins]:
    source = Path(hive_servers.__file__).with_name("SaslMetastore.java")
    command = ["java", *hive_servers.JAVA_OPTIONS, "-cp", hive_servers.jars(), str(source), str(metastore.port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            port, token = process.stdout.readline().split()
            yield Logins(int(port), token)
        finally:
            process.kill()


# --- one client for several metastores


def test_another_metastore_is_used_when_the_first_is_away(world: World, proxy: MetastoreProxy, metastore: Service) -> None:
    uri = world.uri.replace("//", f"//127.0.0.1:{closed_port()},")
    provider = world.writer("one", uri=uri, uri_selection="sequential")
    provider.release(take(provider, wait_s=12))
    assert proxy.connections == 1
    named = world.writer("two", uri=f"hive:///{world.database}/{world.table}", uris=f"thrift://127.0.0.1:{proxy.port}")
    lease = take(named)
    with pytest.raises(LockTimeout, match="two"):
        take(provider)
    named.release(lease)


def test_a_silent_metastore_leaves_time_for_the_next(world: World, metastore: Service) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = world.uri.replace("//", f"//127.0.0.1:{silent.getsockname()[1]},")
        take(world.writer("one", uri=uri, uri_selection="sequential"), wait_s=2)


def test_a_lease_outlives_a_metastore_that_falls_silent(metastore: Service, world: World, proxy: MetastoreProxy) -> None:
    uri = world.uri.replace(f":{proxy.port}/", f":{proxy.port},{metastore.host}:{metastore.port}/")
    provider = world.writer("one", lease_s=4.0, uri=uri, uri_selection="sequential")
    lease = take(provider)
    assert proxy.connections == 1
    proxy.silent = True
    provider.renew(lease)
    assert proxy.calls["heartbeat"] == 1 and lease.lost is None


def test_any_metastore_may_come_first_unless_they_are_in_sequence(metastore: Service, world: World) -> None:
    there = metastore.port, metastore.host
    with metastore_proxy(*there) as one, metastore_proxy(*there) as two:
        uri = metastore.through(one.port, {"uri": world.uri})["uri"].replace(
            f":{one.port}", f":{one.port},127.0.0.1:{two.port}"
        )
        for _ in range(3):
            world.writer("x", uri=uri, uri_selection="sequential").inspect()
        assert (one.connections, two.connections) == (3, 0)
        opened = 0
        while not two.connections:
            assert opened < 100
            world.writer("x", uri=uri).inspect()
            opened += 1
        provider = world.writer("x", uri=uri)
        one.connections = two.connections = 0
        provider.inspect()
        used, other = (one, two) if one.connections else (two, one)
        used.lose_request = ["show_locks"]
        provider.inspect()
        assert (used.connections, other.connections) == (1, 1), "after a failure another one is tried first"


def test_connect_rounds_are_counted_and_the_last_error_is_told(world: World, proxy: MetastoreProxy) -> None:
    proxy.refuse = True
    closed = closed_port()
    uri = world.uri.replace("//", f"//127.0.0.1:{closed},")
    provider = world.writer("one", uri=uri, uri_selection="sequential", connect_rounds=4, connect_delay_s=0.01)
    with pytest.raises(ProviderUnavailable, match=f"the last error, of 127.0.0.1:{proxy.port}: "):
        provider.inspect()
    assert proxy.connections == 4


def test_what_the_metastore_refuses_is_not_asked_again(world: World, proxy: MetastoreProxy, metastore: Service) -> None:
    lease = take(world.writer("one", failure_retries=5))
    world.calls(metastore.port).unlock(lease.token)
    with pytest.raises(LeaseLost):
        world.opened[0].renew(lease)
    assert proxy.calls["heartbeat"] == 1 and proxy.calls["set_ugi"] == 1
    with pytest.raises(ServerError, match="Internal error") as failed:
        world.calls(metastore.port).lock("it's", "t", user="u", host="h", agent="a")
    assert failed.value.again, "a server that failed may do better the next time"


def test_what_answers_may_not_be_a_metastore(world: World) -> None:
    def answer_like_a_web_server(server: socket.socket) -> None:
        for _ in range(3):
            client, _ = server.accept()
            with client:
                client.recv(1000)
                client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 20)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=answer_like_a_web_server, args=(server,), daemon=True).start()
        provider = world.writer("one", uri=f"hive:127.0.0.1:{server.getsockname()[1]}", connect_delay_s=0.01)
        with pytest.raises(ProviderUnavailable, match="cannot be read|not from a metastore"):
            provider.probe()


# --- how to connect and to log in


def test_frames_the_compact_protocol_and_tls_are_spoken(guarded: Guarded) -> None:
    with new_world(guarded.service) as world:
        one, two = world.writer("one", **guarded.client), world.writer("two", **guarded.client)
        one.probe()
        lease = take(one)
        one.renew(lease)
        with pytest.raises(LockTimeout, match="one"):
            take(two, wait_s=0.2)
        one.release(lease)
        take(two)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"tls_ca_file": ""}, "certificate is not trusted"),
        ({"tls": False, "tls_ca_file": ""}, "closed the connection|no answer|not from a metastore|reset"),
        ({"protocol": "binary"}, "closed the connection|no answer|cannot be read|reset"),
    ],
)
def test_a_client_that_is_not_set_up_for_the_server_is_told_so(guarded: Guarded, changed: dict[str, Any], said: str) -> None:
    with new_world(guarded.service) as world:
        quick = {"connect_rounds": 1, "connect_delay_s": 0.01, "socket_timeout_s": 5.0}
        provider = world.writer("one", **{**guarded.client, **quick, **changed})
        with pytest.raises(ProviderUnavailable, match=said):
            provider.inspect()


def test_the_name_in_the_certificate_must_be_that_of_the_host(guarded: Guarded) -> None:
    with new_world(guarded.service) as world:
        uri = world.uri.replace("127.0.0.1", "localhost")
        with pytest.raises(ProviderUnavailable, match="not trusted.*localhost"):
            world.writer("one", uri=uri, **{**guarded.client, "connect_delay_s": 0.01}).inspect()


def test_a_client_certificate_is_shown_where_it_is_demanded(metastore: Service, world: World, tmp_path: Path) -> None:
    server, mine, unknown = (new_certificate(tmp_path, name) for name in ("server", "me", "you"))
    demanding = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=mine.public)
    demanding.load_cert_chain(server.public, server.key)
    demanding.verify_mode = ssl.CERT_REQUIRED
    # Hive's metastore cannot demand one, so TLS ends in front of it, as with the gateways that do.
    with Proxy(metastore.port, tls=demanding) as front:
        secure = {"uri": world.uri.replace(f":{metastore.port}/", f":{front.port}/"), "tls": True, "tls_ca_file": server.public}
        secure |= {"connect_rounds": 1, "failure_retries": 0, "socket_timeout_s": 10.0}
        provider = world.writer("one", **secure, tls_certificate_file=mine.public, tls_key_file=mine.key)
        provider.probe()
        provider.release(take(provider, wait_s=30))
        one_file = world.writer("one file", **secure, tls_certificate_file=mine.both)
        one_file.release(take(one_file, wait_s=30))
        for others in ({}, {"tls_certificate_file": unknown.public, "tls_key_file": unknown.key}):
            with pytest.raises(ProviderUnavailable):
                world.writer("stranger", **secure, **others).inspect()
    locked = new_certificate(tmp_path, "locked", "open sesame")
    with pytest.raises(SettingsError, match="cannot be used"):
        world.writer("two", tls=True, tls_certificate_file=locked.public, tls_key_file=locked.key).inspect()


def test_a_file_that_holds_no_certificate_is_named(world: World, tmp_path: Path) -> None:
    (tmp_path / "junk.pem").write_text("junk")
    with pytest.raises(SettingsError, match="cannot be used"):
        world.writer("one", tls=True, tls_ca_file=str(tmp_path / "junk.pem")).inspect()


def test_a_restart_in_the_middle_is_survived(guarded: Guarded) -> None:
    with new_world(guarded.service) as world:
        settings = {**guarded.client, "lease_s": 60.0, "connect_delay_s": 0.1}
        holder, waiter = world.writer("holder", **settings), world.writer("waiter", **settings)
        lease = take(holder)
        with renewing(holder, lease, world.runtime, 0.2):
            guarded.service.stop()
            eventually(lambda: bool(lease.trouble))
            guarded.service.start()
            eventually(lambda: not lease.trouble, within_s=50)
            lease.ensure_active()
            with pytest.raises(LockTimeout, match="holder"):
                take(waiter, wait_s=3)
        holder.release(lease)
        take(waiter, wait_s=12)


@pytest.mark.parametrize("auth", ["PLAIN", "DIGEST"])
def test_a_user_logs_in_with_a_password_or_a_delegation_token(world: World, logins: Logins, auth: str) -> None:
    uri = f"hive_metastore://127.0.0.1:{logins.port}/{world.database}/{world.table}"
    secret = {"user": "etl", "password": "open sesame"} if auth == "PLAIN" else {"delegation_token": logins.token}
    provider = world.writer("one", uri=uri, auth=auth, **secret)
    provider.probe()
    lease = take(provider)
    provider.renew(lease)
    with pytest.raises(LockTimeout, match="one"):
        take(world.writer("two"))
    provider.release(lease)
    take(world.writer("two"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"auth": "PLAIN", "user": "etl", "password": "open barley"},
        {"auth": "PLAIN", "user": "thief", "password": "open sesame"},
        {"auth": "DIGEST", "delegation_token": "BGFiY2QEc2VjcgA"},
    ],
)
def test_a_refused_login_fails_at_once_and_shows_no_secret(
    world: World, logins: Logins, wrong: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    uri = f"hive_metastore://127.0.0.1:{logins.port}/{world.database}/{world.table}"
    provider = world.writer("one", uri=uri, **wrong)
    began_s = time.monotonic()
    with pytest.raises(ProviderRefused, match="refused the log-in") as refused:
        take(provider, wait_s=60)
    assert time.monotonic() - began_s < 10
    secret = wrong.get("password") or wrong["delegation_token"]
    shown = f"{refused.value} {refused.value.as_dict()} {caplog.text} {provider.identity} {vars(provider)} {world.seen}"
    assert secret not in shown and "barley" not in shown


def test_a_client_without_a_login_is_told_what_to_check(world: World, logins: Logins) -> None:
    uri = f"hive_metastore://127.0.0.1:{logins.port}/{world.database}/{world.table}"
    provider = world.writer("one", uri=uri, connect_rounds=1, socket_timeout_s=2.0)
    with pytest.raises(ProviderUnavailable) as refused:
        provider.inspect()
    assert "auth" in refused.value.hint


def test_kerberos_without_its_package_says_how_to_install_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    provider = world.writer("one", auth="KERBEROS", principal="hive/_HOST@EXAMPLE.ORG")
    with pytest.raises(ProviderRefused) as refused:
        provider.inspect()
    assert "pip install 'lakelock[kerberos]'" in refused.value.hint
