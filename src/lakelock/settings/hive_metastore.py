"""Settings of the client of a Hive metastore, for the lock provider `hive_metastore` and for `catalog.type`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from lakelock.errors import SettingsError
from lakelock.settings.fields import Section, constant, setting

_NEEDED = {"PLAIN": ("user", "password"), "DIGEST": ("delegation_token",), "KERBEROS": ("principal",)}
_OF_ONE_AUTH = {"PLAIN": ("password",), "DIGEST": ("delegation_token",), "KERBEROS": ("principal", "keytab")}


@dataclass(frozen=True)
class HiveMetastoreSettings(Section):
    """How a metastore is reached, for `lock.provider = "hive_metastore://..."` and `catalog.type = "hive_metastore"`."""

    section: ClassVar[str] = "hive_metastore"
    uris: str = setting(
        "",
        "Metastores as Hive lists them (thrift://host:port, separated by commas), when lock.provider names no host",
        in_repr=False,
    )
    uri_selection: Literal["random", "sequential"] = setting(
        "random", "Which metastore of several is tried first: any, or always the first of the list"
    )
    connect_rounds: int = constant(3, "How many times all metastores are tried in turn", at_least=1, at_most=100)
    connect_delay_s: float = constant(1.0, "Pause between two rounds in which no metastore answered", at_least=0, at_most=600)
    socket_timeout_s: float = setting(
        10.0, "How long to wait for a connection and for each answer", unit="s", at_least=0.05, at_most=3_600
    )
    socket_lifetime_s: float = setting(
        0.0, "A connection that is older than this is replaced before the next call; 0 keeps it", unit="s", at_least=0
    )
    failure_retries: int = constant(
        1, "How many times a call that may be repeated is sent again, on a new connection", at_least=0, at_most=100
    )
    failure_delay_s: float = constant(0.1, "Pause before a call is sent again to the metastore", at_least=0, at_most=600)
    transport: Literal["buffered", "framed"] = setting(
        "buffered", "Use framed where the server has hive.metastore.thrift.framed.transport.enabled"
    )
    protocol: Literal["binary", "compact"] = setting(
        "binary", "Use compact where the server has hive.metastore.thrift.compact.protocol.enabled"
    )
    set_ugi: bool = constant(True, "Tell the metastore the user's name where auth is NONE")
    auth: Literal["NONE", "PLAIN", "DIGEST", "KERBEROS"] = setting(
        "NONE", "How to log in: PLAIN with user and password, DIGEST with a delegation token, KERBEROS with a ticket"
    )
    user: str = setting(
        "", "Name to log in with; empty means the user of this process, with KERBEROS the owner of the ticket or keytab"
    )
    password: str = setting("", "Password for auth PLAIN", secret=True, in_repr=False)
    delegation_token: str = setting(
        "", "Delegation token of the metastore as Hadoop writes it for URLs, for auth DIGEST", secret=True, in_repr=False
    )
    principal: str = setting("", "Kerberos principal of the metastore, such as hive/_HOST@EXAMPLE.ORG")
    keytab: str = setting("", "Keytab to get Kerberos tickets with; empty uses the tickets that kinit got")
    tls: bool = setting(False, "Encrypt the connection; the server's certificate and name are checked")
    tls_ca_file: str = setting("", "Certificates to trust, as a PEM file; empty means those of the system")
    tls_certificate_file: str = setting("", "Certificate to show to the server, as a PEM file")
    tls_key_file: str = setting("", "Private key of that certificate, as a PEM file")

    def check_together(self) -> None:
        missing = [name for name in _NEEDED.get(self.auth, ()) if not getattr(self, name)]
        if missing:
            raise SettingsError(
                f"hive_metastore.auth is {self.auth}, but hive_metastore.{missing[0]} is not set",
                hint=f"set hive_metastore.{missing[0]}",
                key=f"hive_metastore.{missing[0]}",
            )
        for auth, names in _OF_ONE_AUTH.items():
            if self.auth != auth:
                self.refuse_unused(
                    names,
                    f"hive_metastore.auth is {self.auth}, which does not use it",
                    instead=f"set hive_metastore.auth = {auth}",
                    key="hive_metastore.auth",
                )
        if self.auth != "NONE" and self.transport == "framed":
            raise SettingsError(
                f"hive_metastore.transport is framed, but with auth {self.auth} the login has its own framing",
                hint="leave hive_metastore.transport out",
                key="hive_metastore.transport",
            )
        if self.tls_key_file and not self.tls_certificate_file:
            raise SettingsError(
                "hive_metastore.tls_key_file is set without its certificate",
                hint="set hive_metastore.tls_certificate_file",
                key="hive_metastore.tls_certificate_file",
            )
        if not self.tls:
            self.refuse_unused(
                ("tls_ca_file", "tls_certificate_file"),
                "hive_metastore.tls is not: the connection would not be encrypted",
                instead="set hive_metastore.tls = true",
                key="hive_metastore.tls",
            )
