"""Who may take a ZooKeeper lock: digest, SASL, ACLs and TLS on a real server, and secrets that stay secret."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.certificates import Certificate, new_certificate
from tests.integration.zookeeper.zookeeper_world import World
from tests.servers.locks.zookeeper import zookeeper_server
from tests.servers.process import free_port

from lakelock.errors import LakelockError, LockError, ProviderUnavailable, SettingsError
from lakelock.providers.zookeeper.session import ZooKeeperOptions
from lakelock.settings import Settings
from lakelock.testing.service import Service

SECRET = "s3same-open"


@dataclass(frozen=True)
class Secured:
    """A server with SASL users and a TLS port, and the certificate to trust."""

    service: Service
    tls_port: int
    ca: str


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    certificate = new_certificate(folder, "zookeeper")
    jaas = folder / "jaas.conf"
    jaas.write_text(
        f'Server {{ org.apache.zookeeper.server.auth.DigestLoginModule required user_spark="{SECRET}" user_other="other"; }};\n'
    )
    tls_port = free_port()
    extra = speaking_tls(tls_port, certificate, trusted=certificate.public, asks_clients="none")
    extra["authProvider.1"] = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
    with zookeeper_server(folder / "server", extra, [f"-Djava.security.auth.login.config={jaas}"], own=True) as service:
        yield Secured(service, tls_port, certificate.public)


def speaking_tls(port: int, certificate: Certificate, *, trusted: str, asks_clients: str) -> dict[str, str]:
    """What a server needs for a secure port beside its plain one."""
    return {
        "secureClientPort": str(port),
        "secureClientPortAddress": "127.0.0.1",
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": certificate.both,
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": trusted,
        "ssl.trustStore.type": "PEM",
        "ssl.clientAuth": asks_clients,
    }


def test_a_lock_of_a_digest_user_is_closed_to_everybody_else(world: World) -> None:
    owner = world.writer("owner", auth_data=f"digest:spark:{SECRET}", acl="creator")
    owner.probe()
    lease = owner.acquire(wait_s=12)
    stranger = world.writer("stranger", auth_data="digest:other:other")
    with pytest.raises(LockError, match=world.path) as refused:
        stranger.acquire(wait_s=5)
    assert "lock.options.acl" in refused.value.hint and not isinstance(refused.value, ProviderUnavailable)
    with pytest.raises(LockError):
        stranger.probe()
    with pytest.raises(LockError):
        stranger.inspect()
    owner.release(lease)


def test_a_list_of_permissions_lets_others_look(world: World) -> None:
    from kazoo.security import make_digest_acl_credential

    user = make_digest_acl_credential("spark", SECRET)
    owner = world.writer("owner", auth_data=f"digest:spark:{SECRET}", acl=f"digest:{user}:cdrwa,world:anyone:r")
    lease = owner.acquire(wait_s=12)
    stranger = world.writer("stranger")
    holder = stranger.inspect().holder
    assert holder is not None and holder.token == lease.token
    with pytest.raises(LockError):
        stranger.acquire(wait_s=0)
    with pytest.raises(LockError):
        stranger.break_lock(lease.token, force=True)
    owner.renew(lease)


def test_a_writer_that_may_not_remove_its_node_frees_the_lock_by_ending_its_session(world: World) -> None:
    from kazoo.client import KazooClient
    from kazoo.security import make_acl

    host, _, path = world.uri.partition("://")[2].partition("/")
    client = KazooClient(host)
    client.start(30)
    client.ensure_path(f"/{path}".rpartition("/")[0])
    client.create(f"/{path}", acl=[make_acl("world", "anyone", read=True, create=True)])
    first, second = world.writer("first"), world.writer("second")
    first.release(first.acquire(wait_s=12))
    second.release(second.acquire(wait_s=12))
    with pytest.raises(LockError, match="may not use the node"):
        first.probe()
    second.release(second.acquire(wait_s=12))
    client.stop()
    client.close()


@pytest.mark.parametrize("acl", ["closed", "digest:spark", "world:anyone:x", ","])
def test_an_acl_that_cannot_be_read_is_refused(world: World, acl: str) -> None:
    with pytest.raises(LakelockError, match=r"lock\.options\.acl"):
        world.writer("one", acl=acl).acquire(wait_s=1)


def test_sasl_authenticates_and_a_wrong_password_is_said_at_once(secured: Secured) -> None:
    world = World(secured.service)
    spark = {"sasl_options__mechanism": "DIGEST-MD5", "sasl_options__username": "spark"}
    owner = world.writer("owner", lease_s=6.0, **spark, sasl_options__password=SECRET, acl="sasl:spark:cdrwa")
    lease = owner.acquire(wait_s=10)
    lease.ensure_active()
    other = world.writer(
        "other",
        lease_s=6.0,
        sasl_options__mechanism="DIGEST-MD5",
        sasl_options__username="other",
        sasl_options__password="other",
    )
    with pytest.raises(LockError, match=world.path):
        other.acquire(wait_s=5)
    wrong = world.writer("wrong", lease_s=6.0, **spark, sasl_options__password="guess")
    began_s = world.runtime.monotonic_s()
    with pytest.raises(LockError, match="credentials"):
        wrong.acquire(wait_s=20)
    assert world.runtime.monotonic_s() - began_s < 10
    owner.release(lease)
    world.close()


def test_tls_is_spoken_and_the_server_must_prove_its_identity(secured: Secured) -> None:
    world = World(secured.service)
    uri = f"zookeeper://127.0.0.1:{secured.tls_port}/tls/{world.name}"
    trusting = world.writer("trusting", lease_s=6.0, uri=uri, use_ssl=True, ca=secured.ca)
    lease = trusting.acquire(wait_s=10)
    lease.ensure_active()
    trusting.release(lease)
    with pytest.raises(ProviderUnavailable):
        world.writer("doubting", uri=uri, use_ssl=True).acquire(wait_s=1)
    with pytest.raises(ProviderUnavailable, match=str(secured.tls_port)):
        world.writer("plain", uri=uri).acquire(wait_s=1)
    named = uri.replace("127.0.0.1", "localhost")
    with pytest.raises(ProviderUnavailable):
        world.writer("strict", uri=named, use_ssl=True, ca=secured.ca).acquire(wait_s=1)
    world.writer("careless", lease_s=6.0, uri=uri, use_ssl=True, verify_certs=False).acquire(wait_s=10).ensure_active()
    world.close()


def test_a_server_that_demands_a_certificate_lets_only_its_owner_to_the_lock(tmp_path: Path) -> None:
    server, mine, unknown = (new_certificate(tmp_path, name, key) for name, key in [("zk", ""), ("me", SECRET), ("you", "")])
    tls_port = free_port()
    extra = speaking_tls(tls_port, server, trusted=mine.public, asks_clients="need")
    extra["authProvider.1"] = "org.apache.zookeeper.server.auth.X509AuthenticationProvider"
    with zookeeper_server(tmp_path / "server", extra, own=True) as service:
        world = World(service)
        uri = f"zookeeper://127.0.0.1:{tls_port}/mutual/{world.name}"
        secure = {"uri": uri, "use_ssl": True, "ca": server.public}
        shown = {"certfile": mine.public, "keyfile": mine.key, "keyfile_password": SECRET}
        owner = world.writer("owner", lease_s=6.0, **secure, **shown, acl="creator")
        owner.probe()
        lease = owner.acquire(wait_s=10)
        lease.ensure_active()
        with pytest.raises(ProviderUnavailable, match=str(tls_port)):
            world.writer("nameless", **secure).acquire(wait_s=1)
        with pytest.raises(ProviderUnavailable, match=str(tls_port)):
            world.writer("unknown", **secure, certfile=unknown.public, keyfile=unknown.key).acquire(wait_s=1)
        with pytest.raises(LockError, match="may not use the node"):
            world.writer("plain", uri=uri.replace(str(tls_port), str(service.port))).acquire(wait_s=5)
        world.writer("again", lease_s=6.0, **secure, **shown).inspect()
        owner.release(lease)
        world.close()


def test_an_unusable_certificate_is_refused_at_once(world: World, tmp_path: Path) -> None:
    mine, other = new_certificate(tmp_path, "me", SECRET), new_certificate(tmp_path, "other")
    (tmp_path / "junk.pem").write_text("junk")
    for wrong in (
        {"ca": str(tmp_path / "junk.pem")},
        {"ca": str(tmp_path / "nowhere.pem")},
        {"certfile": mine.public, "keyfile": other.key},
        {"certfile": mine.public, "keyfile": mine.key},
        {"certfile": mine.public, "keyfile": mine.key, "keyfile_password": f"not {SECRET}"},
    ):
        with pytest.raises(SettingsError, match="certificates for TLS to ZooKeeper cannot be used") as refused:
            world.writer("one", use_ssl=True, **wrong)
        assert SECRET not in f"{refused.value} {refused.value.as_dict()}"


def test_secrets_are_in_no_text_and_in_no_log(
    secured: Secured, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(1)
    caplog.set_level(1, "lakelock.zookeeper")
    world = World(secured.service)
    options = {
        "sasl_options__mechanism": "DIGEST-MD5",
        "sasl_options__username": "spark",
        "sasl_options__password": SECRET,
        "auth_data": f"digest:spark:{SECRET}",
    }
    provider = world.writer("one", lease_s=6.0, uri=f"zookeeper://127.0.0.1:{secured.service.port}/secrets", **options)
    lease = provider.acquire(wait_s=10)
    provider.renew(lease)
    state = provider.inspect()
    texts = [repr(provider), str(vars(lease)), str(state), provider.identity, str(provider.strength), str(vars(provider))]
    provider.release(lease)
    world.close()
    given = {name.replace("__", "."): value for name, value in options.items()}
    texts += [repr(Settings(lock_options=given)), repr(ZooKeeperOptions.of(given))]
    texts += [record.getMessage() for record in caplog.records] + list(capfd.readouterr())
    assert any("Create2" in text for text in texts), "kazoo's own log was not even read"
    assert not [text for text in texts if SECRET in text]
    resolved = Settings.resolve({"lock.options.auth_data": f"digest:spark:{SECRET}", "lock.options.keyfile_password": SECRET})
    assert SECRET not in str(resolved.explain())


def test_a_uri_with_credentials_is_refused_without_showing_them(world: World) -> None:
    with pytest.raises(LakelockError, match=r"lock\.options\.auth_data") as refused:
        world.writer("one", uri=f"zookeeper://spark:{SECRET}@127.0.0.1:2181/lock")
    assert SECRET not in str(refused.value)
