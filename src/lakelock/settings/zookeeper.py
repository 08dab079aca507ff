"""Settings of the lock provider `zookeeper:`. The address is in the URI `lock.provider`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from lakelock.errors import SettingsError
from lakelock.settings.fields import Section, setting


@dataclass(frozen=True)
class ZooKeeperSettings(Section):
    """The connection to a ZooKeeper that keeps the table lock. The session time-out is `lock.lease_s`."""

    section: ClassVar[str] = "zookeeper"
    connect_timeout_s: float = setting(
        15.0, "Longest wait for a connection, within lock.wait_s", unit="s", at_least=0.1, at_most=600
    )
    request_timeout_s: float = setting(
        10.0, "A request without an answer for this long has failed", unit="s", at_least=0.1, at_most=600
    )
    acl: str = setting(
        "open",
        "Who may use the nodes that are made for the lock: open, creator (this user), or a list of scheme:id:cdrwa",
        in_repr=False,
    )
    digest: str = setting("", "User and password, as user:password, for the scheme digest", secret=True, in_repr=False)
    sasl_mechanism: Literal["none", "DIGEST-MD5", "GSSAPI", "PLAIN"] = setting("none", "How to authenticate by SASL")
    sasl_username: str = setting("", "User name for DIGEST-MD5 and PLAIN")
    sasl_password: str = setting("", "Password for DIGEST-MD5 and PLAIN", secret=True, in_repr=False)
    sasl_service: str = setting("zookeeper", "Name of the service, the first part of the server's Kerberos principal")
    sasl_principal: str = setting("", "Kerberos principal of this client, for GSSAPI; empty uses that of the ticket cache")
    tls: bool = setting(False, "Use TLS with the server's secure client port")
    tls_ca: str = setting("", "PEM file of the authorities to trust in addition to those of the system")
    tls_certificate: str = setting("", "PEM file of this client's certificate, where the server asks for one")
    tls_key: str = setting("", "PEM file of the key of tls_certificate", in_repr=False)
    tls_key_password: str = setting("", "Password of tls_key", secret=True, in_repr=False)
    tls_verify: bool = setting(True, "Refuse a server whose certificate no trusted authority has signed")
    tls_check_hostname: bool = setting(True, "Refuse a server whose certificate is for another name")

    def check_together(self) -> None:
        if bool(self.tls_certificate) != bool(self.tls_key):
            raise SettingsError(
                "zookeeper.tls_certificate and zookeeper.tls_key belong together, and only one of them is given",
                hint="give both, or neither",
                key="zookeeper.tls_key" if self.tls_certificate else "zookeeper.tls_certificate",
            )
        if self.digest and not all(self.digest.partition(":")):
            raise SettingsError(
                "zookeeper.digest is not of the form user:password", hint="write both, with a colon", key="zookeeper.digest"
            )
        if self.sasl_mechanism in ("DIGEST-MD5", "PLAIN") and not (self.sasl_username and self.sasl_password):
            raise SettingsError(
                f"zookeeper.sasl_mechanism {self.sasl_mechanism} needs zookeeper.sasl_username and zookeeper.sasl_password",
                hint="set both",
                key="zookeeper.sasl_username",
            )
        if not self.tls:
            self.refuse_unused(
                ("tls_ca", "tls_certificate", "tls_key"),
                "zookeeper.tls is not: the connection would not be encrypted",
                instead="set zookeeper.tls = true",
                key="zookeeper.tls",
            )
        if self.sasl_mechanism == "none":
            self.refuse_unused(
                ("sasl_username", "sasl_password", "sasl_principal"),
                "zookeeper.sasl_mechanism is none: nobody would log in",
                instead="set zookeeper.sasl_mechanism",
                key="zookeeper.sasl_mechanism",
            )
        if self.acl == "creator" and not self.digest and self.sasl_mechanism == "none" and not self.tls_certificate:
            raise SettingsError(
                "zookeeper.acl is creator, but this client does not authenticate",
                hint="set zookeeper.digest, zookeeper.sasl_mechanism or zookeeper.tls_certificate",
                key="zookeeper.acl",
            )
