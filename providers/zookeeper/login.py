"""Logging in to ZooKeeper by SASL or a certificate: what kazoo and pure-sasl need for it, and what their errors mean."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from lakelock.errors import ProviderRefused
from lakelock.providers.tls import tls_context
from lakelock.providers.zookeeper.options import INSTALL, ZooKeeperOptions

_KERBEROS = "pip install 'lakelock[kerberos]'; it is compiled, with gcc and Debian's libkrb5-dev"
_NO_KDC = -1765328228  # KRB5_KDC_UNREACH


def sasl_options(options: ZooKeeperOptions) -> dict[str, str]:
    """Kazoo's options; `ProviderRefused` that says how to install what is missing."""
    if find_spec("puresasl") is None:
        raise ProviderRefused("lock.options.sasl_options needs pure-sasl, which is not installed", hint=INSTALL)
    if options.sasl.get("mechanism") == "GSSAPI" and find_spec("kerberos") is None:
        raise ProviderRefused("the package kerberos, which GSSAPI with ZooKeeper needs, is not installed", hint=_KERBEROS)
    return {name: str(value) for name, value in options.sasl.items() if value}


def check_certificates(options: ZooKeeperOptions) -> None:
    """`SettingsError` when a file for TLS cannot be used."""
    tls_context(
        "ZooKeeper",
        ca=str(options.driver.get("ca") or ""),
        certificate=str(options.driver.get("certfile") or ""),
        key=str(options.driver.get("keyfile") or ""),
        password=str(options.driver.get("keyfile_password") or ""),
        hint="check lock.options.ca, certfile, keyfile and keyfile_password: PEM files that this user may read",
        setting="lock.options.use_ssl",
    )


def login_hint(options: ZooKeeperOptions) -> str:
    """What to do when the server does not accept the credentials."""
    if options.sasl.get("mechanism") == "GSSAPI":
        return "run `kinit` (`klist` shows the current ticket), and see service and principal in lock.options.sasl_options"
    return "see lock.options.sasl_options and lock.options.auth_data"


def understood(connect: Callable[..., Any], options: ZooKeeperOptions, errors: Any) -> Callable[..., Any]:
    """`connect` with Kerberos' errors turned into kazoo's `errors`: an unreachable KDC is tried again, all else is final.

    Left alone, an error at the beginning ends kazoo's thread, and any later one counts as a refusal.
    """
    if options.sasl.get("mechanism") != "GSSAPI":
        return connect
    failed: type[Exception] = import_module("kerberos").GSSError

    def connected(*where: object) -> Any:
        try:
            return connect(*where)
        except (failed, errors.AuthFailedError) as error:
            cause = error if isinstance(error, failed) else error.__cause__
            away = str(_NO_KDC) in str(cause)
            raise (errors.ConnectionDropped if away else errors.AuthFailedError)(f"Kerberos: {cause}") from error

    return connected
