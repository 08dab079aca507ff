"""Settings of the Redis (or Valkey) client. The address is in the URI `lock.provider`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lakelock.errors import SettingsError
from lakelock.settings.fields import Section, setting


@dataclass(frozen=True)
class RedisSettings(Section):
    """The lock in Redis or Valkey, for `lock.provider = "redis://..."` and its variants."""

    section: ClassVar[str] = "redis"
    socket_timeout_s: float = setting(
        2.0,
        "How long one request may take before it counts as unanswered; never longer than a third of the lease",
        unit="s",
        at_least=0.05,
        at_most=60,
    )
    connect_timeout_s: float = setting(2.0, "How long connecting may take", unit="s", at_least=0.05, at_most=60)
    wait_replicas: int = setting(
        0, "How many replicas must have a grant or renewal before it counts (WAIT); 0 does not ask", at_least=0, at_most=100
    )
    wait_replicas_timeout_s: float = setting(0.5, "How long to wait for these replicas", unit="s", at_least=0.01, at_most=30)
    username: str = setting("", "ACL user; a user in the URI takes precedence")
    password: str = setting("", "Password; one in the URI takes precedence", secret=True, in_repr=False)
    sentinel_username: str = setting("", "ACL user of the Sentinels")
    sentinel_password: str = setting("", "Password of the Sentinels", secret=True, in_repr=False)
    tls_ca_file: str = setting("", "Certificates to check the server's against; empty means those of the system")
    tls_cert_file: str = setting("", "Client certificate")
    tls_key_file: str = setting("", "Key of the client certificate")
    tls_key_password: str = setting("", "Password of that key", secret=True, in_repr=False)
    tls_check_hostname: bool = setting(True, "Check that the certificate is for the host in the URI")

    def check_together(self) -> None:
        if self.wait_replicas and self.wait_replicas_timeout_s >= self.socket_timeout_s:
            raise SettingsError(
                f"redis.wait_replicas_timeout_s ({self.wait_replicas_timeout_s:g} s) must be less than "
                f"redis.socket_timeout_s ({self.socket_timeout_s:g} s), or the client gives up before the answer can come",
                hint="lower the first or raise the second",
                key="redis.wait_replicas_timeout_s",
            )
        if bool(self.tls_cert_file) != bool(self.tls_key_file):
            raise SettingsError(
                "redis.tls_cert_file and redis.tls_key_file go together, and only one of them is set",
                hint="set both, or neither",
                key="redis.tls_cert_file",
            )
