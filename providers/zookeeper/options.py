"""`lock.options` of ZooKeeper: those of kazoo's client, and a few of ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from lakelock.errors import ProviderRefused, SettingsError
from lakelock.providers.driver_options import PREFIX, read_options, refuse_unused
from lakelock.settings.fields import Section, setting

INSTALL = "pip install 'lakelock[zookeeper]'"

_TLS = ("ca", "certfile", "keyfile", "keyfile_password")
_MECHANISMS = ("DIGEST-MD5", "GSSAPI", "PLAIN")
_SASL = ("mechanism", "service", "username", "password", "principal")
_OURS = {
    "hosts": "write them into lock.provider",
    "timeout": "set lock.lease_s",
    "default_acl": f"set {PREFIX}acl",
    **dict.fromkeys(("client_id", "handler", "connection_retry", "command_retry", "logger", "read_only"), "leave it out"),
}


@dataclass(frozen=True)
class ZooKeeperOptions(Section):
    """What lakelock reads of them. `driver` is what kazoo gets as it is, `sasl` its `sasl_options`."""

    section: ClassVar[str] = "lock.options"
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
    auth_data: str = setting("", "User and password, as digest:user:password", secret=True, in_repr=False)
    use_ssl: bool = setting(False, "Use TLS with the server's secure client port")
    driver: Mapping[str, Any] = field(default_factory=dict, repr=False)
    sasl: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, given: Mapping[str, object]) -> ZooKeeperOptions:
        """The options; `SettingsError` for one that is unknown or does nothing, `ProviderRefused` without kazoo."""
        try:
            from kazoo.client import KazooClient
        except ImportError as error:
            raise ProviderRefused("the lock provider zookeeper: needs kazoo, which is not installed", hint=INSTALL) from error
        own, theirs = read_options(cls, given, "ZooKeeper", KazooClient, reserved=_OURS)
        sasl = theirs.pop("sasl_options", {})
        _check_sasl(sasl)
        if own.auth_data and not (own.auth_data.startswith("digest:") and all(own.auth_data.split(":", 2)[1:])):
            raise _wrong("auth_data", "is not of the form digest:user:password", "write all three, with colons")
        if bool(theirs.get("certfile")) != bool(theirs.get("keyfile")):
            missing = "keyfile" if theirs.get("certfile") else "certfile"
            raise _wrong(missing, "is missing: certfile and keyfile belong together", "give both, or neither")
        if not own.use_ssl:
            why = f"{PREFIX}use_ssl is not: the connection would not be encrypted"
            refuse_unused(given, _TLS, why, instead=f"set {PREFIX}use_ssl = true", key=f"{PREFIX}use_ssl")
        if own.acl == "creator" and not (own.auth_data or sasl or theirs.get("certfile")):
            hint = f"set {PREFIX}auth_data, {PREFIX}sasl_options.mechanism or {PREFIX}certfile"
            raise _wrong("acl", "is creator, but this client does not authenticate", hint)
        if own.use_ssl:
            theirs.setdefault("check_hostname", theirs.get("verify_certs", True))
        return replace(own, driver=theirs, sasl={"service": "zookeeper", **sasl} if sasl else {})


def _check_sasl(sasl: object) -> None:
    """`SettingsError` unless these are kazoo's options for SASL, all that the mechanism needs."""
    if not isinstance(sasl, Mapping):
        raise _wrong("sasl_options", "is no table", f"write {PREFIX}sasl_options.mechanism and what it needs")
    if not sasl:
        return
    unknown = next((name for name in sasl if name not in _SASL), None)
    if unknown is not None:
        raise _wrong(f"sasl_options.{unknown}", "is no option", f"the options are {', '.join(_SASL)}")
    if sasl.get("mechanism") not in _MECHANISMS:
        raise _wrong("sasl_options.mechanism", "names no mechanism", f"set it to one of {', '.join(_MECHANISMS)}")
    if sasl["mechanism"] != "GSSAPI" and not (sasl.get("username") and sasl.get("password")):
        raise _wrong("sasl_options.username", f"and password are needed for {sasl['mechanism']}", "set both")


def _wrong(name: str, what: str, hint: str) -> SettingsError:
    return SettingsError(f"{PREFIX}{name} {what}", hint=hint, key=PREFIX + name)
