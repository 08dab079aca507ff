"""Logging in to a metastore by Kerberos: SASL's GSSAPI, with a ticket from `kinit` or one that a keytab gets."""

from __future__ import annotations

import os
from typing import Any

from lakelock.errors import ProviderRefused
from lakelock.providers.hive_metastore.wire import LoginRefused, WireError
from lakelock.settings.hive_metastore import HiveMetastoreSettings

_SERVER_UNKNOWN, _NO_KDC = 2529638919, 2529639068  # KRB5KDC_ERR_S_PRINCIPAL_UNKNOWN, KRB5_KDC_UNREACH
_AUTH_ONLY, _NO_LARGER_MESSAGE = 1, b"\x00\x00\x00"


class Kerberos:
    """One log-in with a ticket of the user's; `LoginRefused` says what is wrong with it, and what to do."""

    name = "GSSAPI"

    def __init__(self, settings: HiveMetastoreSettings, host: str, nonce: str) -> None:
        try:
            import gssapi
        except ImportError as error:
            raise ProviderRefused(
                "the package gssapi, which Kerberos needs, is not installed",
                hint="pip install 'lakelock[kerberos]'; it is compiled, with gcc and Debian's libkrb5-dev",
            ) from error
        self._gssapi: Any = gssapi
        self._settings, self.complete = settings, False
        # The metastore names itself as Hadoop does: the host in lower case.
        self._target = settings.principal.replace("_HOST", host.lower())
        try:
            name = gssapi.Name(self._target, gssapi.NameType.kerberos_principal)
            self._context: Any = gssapi.SecurityContext(name=name, usage="initiate", creds=self._credentials(nonce))
        except gssapi.exceptions.GSSError as error:
            raise self._failure(error) from error

    def _credentials(self, nonce: str) -> Any:
        """Credentials from the keytab or of the named user; None to use whatever ticket there is."""
        user, keytab = self._settings.user, self._settings.keytab
        if not (user or keytab):
            return None
        if keytab and not os.access(keytab, os.R_OK):
            raise LoginRefused(
                f"Kerberos: the keytab {keytab} cannot be read", "check hive_metastore.keytab and its permissions"
            )
        name = self._gssapi.Name(user, self._gssapi.NameType.kerberos_principal) if user else None
        # The tickets that a keytab gets stay in memory: they must not replace those of the user's own `kinit`.
        store = {"client_keytab": keytab, "ccache": f"MEMORY:lakelock-{nonce}"} if keytab else None
        return self._gssapi.Credentials(name=name, usage="initiate", store=store)

    def step(self, challenge: bytes) -> bytes:
        try:
            if not self._context.complete:
                return self._context.step(challenge or None) or b""
            if self.complete:
                return b""
            offered = self._context.unwrap(challenge).message
            if not offered or not offered[0] & _AUTH_ONLY:
                raise LoginRefused("the metastore asks for protection of each message, and only auth is spoken here")
            self.complete = True
            wrapped: bytes = self._context.wrap(bytes([_AUTH_ONLY]) + _NO_LARGER_MESSAGE, False).message
            return wrapped
        except self._gssapi.exceptions.GSSError as error:
            raise self._failure(error) from error

    def _failure(self, error: Any) -> Exception:
        code, user, keytab = error.min_code, self._settings.user, self._settings.keytab
        why = "; ".join(error.get_all_statuses(code, False)) if code else str(error)
        if code == _NO_KDC:
            return WireError(f"Kerberos: {why}; its servers are those of krb5.conf")
        if code == _SERVER_UNKNOWN:
            return LoginRefused(
                f"Kerberos: {why}",
                "set hive_metastore.principal to the metastore's own, hive.metastore.kerberos.principal in its hive-site.xml",
            )
        if keytab:
            return LoginRefused(
                f"Kerberos: the keytab {keytab} did not log in {user or 'its first principal'} ({why})",
                f"`klist -k {keytab}` lists the principals that it can log in; choose one with hive_metastore.user",
            )
        command = f"kinit {user}" if user else "kinit"
        return LoginRefused(f"Kerberos: {why}", f"run `{command}`, or set hive_metastore.keytab")
