"""`lock.options` of Redis and Valkey: those of redis-py's connections, and a few of ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from lakelock.errors import ProviderRefused, SettingsError
from lakelock.providers.driver_options import PREFIX, read_options, refuse_unused
from lakelock.providers.redis.address import RedisAddress
from lakelock.providers.tls import tls_context
from lakelock.settings.fields import Section, setting

_TLS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_password")
_SENTINEL = ("sentinel_username", "sentinel_password")
_IN_URI = dict.fromkeys(("host", "port", "db"), "write it into lock.provider")
_OURS = dict.fromkeys(
    ("client_name", "decode_responses", "encoding", "protocol", "retry", "retry_on_error", "retry_on_timeout"), "leave it out"
)


@dataclass(frozen=True)
class RedisOptions(Section):
    """What lakelock reads of them. `driver` is what only redis-py reads."""

    section: ClassVar[str] = "lock.options"
    socket_timeout: float = setting(
        2.0, "How long one request may take, at most a third of the lease", unit="s", at_least=0.05, at_most=60
    )
    socket_connect_timeout: float = setting(2.0, "How long connecting may take", unit="s", at_least=0.05, at_most=60)
    wait_replicas: int = setting(
        0, "How many replicas must have a grant or renewal before it counts (WAIT)", at_least=0, at_most=100
    )
    sentinel_username: str = setting("", "ACL user of the Sentinels")
    sentinel_password: str = setting("", "Password of the Sentinels", secret=True, in_repr=False)
    driver: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, given: Mapping[str, object], address: RedisAddress) -> RedisOptions:
        """The options for a lock at `address`; `SettingsError` for one that is unknown, or that does nothing there."""
        driver = redis_driver()
        own, theirs = read_options(cls, given, "Redis", driver.SSLConnection, driver.Connection, reserved={**_IN_URI, **_OURS})
        if not address.tls:
            hint = "write lock.provider with rediss:"
            refuse_unused(given, _TLS, "lock.provider does not use TLS", instead=hint, key="lock.provider")
        if address.kind != "sentinel":
            hint = "write lock.provider with redis+sentinel:"
            refuse_unused(given, _SENTINEL, "lock.provider names no Sentinels", instead=hint, key="lock.provider")
        if bool(theirs.get("ssl_certfile")) != bool(theirs.get("ssl_keyfile")):
            raise SettingsError(
                f"{PREFIX}ssl_certfile and {PREFIX}ssl_keyfile go together, and only one of them is set",
                hint="set both, or neither",
                key=f"{PREFIX}ssl_certfile",
            )
        if address.tls:
            _check_certificates(theirs)
        return replace(own, driver=theirs)


def redis_driver() -> Any:
    """redis-py, without its types: they cover only part of it."""
    try:
        import redis
    except ImportError as error:
        raise ProviderRefused(
            "the lock in Redis needs the package redis, which is not installed",
            hint="pip install 'lakelock[redis]'",
        ) from error
    return redis


def _check_certificates(options: Mapping[str, Any]) -> None:
    """`SettingsError` when a file for TLS cannot be used."""
    ca, certificate, key, password = (str(options.get(name) or "") for name in _TLS)
    tls_context(
        "Redis",
        ca=ca,
        certificate=certificate,
        key=key,
        password=password,
        hint=f"check {', '.join(PREFIX + name for name in _TLS)}: PEM files that this user may read",
        setting=f"{PREFIX}ssl_certfile",
    )
