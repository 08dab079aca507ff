"""Logging in to ZooKeeper by SASL or a certificate: what kazoo and pure-sasl need for it, and what their errors mean."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from lakelock.errors import ProviderRefused
from lakelock.providers.tls import tls_context
from lakelock.settings.zookeeper import ZooKeeperSettings

INSTALL = "pip install 'lakelock[zookeeper]'"

_KERBEROS = "pip install 'lakelock[kerberos]'; it is compiled, with gcc and Debian's libkrb5-dev"
_NO_KDC = -1765328228  # KRB5_KDC_UNREACH


def sasl_options(settings: ZooKeeperSettings) -> dict[str, str]:
    """Kazoo's options; `ProviderRefused` that says how to install what is missing."""
    if find_spec("puresasl") is None:
        raise ProviderRefused("zookeeper.sasl_mechanism needs pure-sasl, which is not installed", hint=INSTALL)
    if settings.sasl_mechanism == "GSSAPI" and find_spec("kerberos") is None:
        raise ProviderRefused("the package kerberos, which GSSAPI with ZooKeeper needs, is not installed", hint=_KERBEROS)
    options = {
        "mechanism": settings.sasl_mechanism,
        "service": settings.sasl_service,
        "username": settings.sasl_username,
        "password": settings.sasl_password,
        "principal": settings.sasl_principal,
    }
    return {name: value for name, value in options.items() if value}


def check_certificates(settings: ZooKeeperSettings) -> None:
    """`SettingsError` when a file for TLS cannot be used."""
    tls_context(
        "ZooKeeper",
        ca=settings.tls_ca,
        certificate=settings.tls_certificate,
        key=settings.tls_key,
        password=settings.tls_key_password,
        hint="check zookeeper.tls_ca, tls_certificate, tls_key and tls_key_password: PEM files that this user may read",
        setting="zookeeper.tls",
    )


def login_hint(settings: ZooKeeperSettings) -> str:
    """What to do when the server does not accept the credentials."""
    if settings.sasl_mechanism == "GSSAPI":
        return "run `kinit` (`klist` shows the current ticket), and see zookeeper.sasl_service and zookeeper.sasl_principal"
    return "see zookeeper.sasl_mechanism, zookeeper.sasl_username and zookeeper.digest"


def understood(connect: Callable[..., Any], settings: ZooKeeperSettings, errors: Any) -> Callable[..., Any]:
    """`connect` with Kerberos' errors turned into kazoo's `errors`: an unreachable KDC is tried again, all else is final.

    Left alone, an error at the beginning ends kazoo's thread, and any later one counts as a refusal.
    """
    if settings.sasl_mechanism != "GSSAPI":
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
