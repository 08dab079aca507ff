"""Logging in to a name node by Kerberos: HTTP's Negotiate (RFC 4559), with the ticket that `kinit` got."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import urlsplit

from lakelock.errors import StorageError


def negotiated(address: str) -> str:
    """The `Authorization` header for a name node's web address; `StorageError` without the package or a ticket."""
    try:
        import gssapi
    except ImportError as error:
        raise StorageError(
            f"{address} asks for Kerberos, and the package gssapi is not installed",
            hint="set storage.delegation_token, or pip install 'lakelock[kerberos]', which gcc and libkrb5-dev compile",
        ) from error
    known: Any = gssapi
    host = (urlsplit(address).hostname or "").lower()
    try:
        service = known.Name(f"HTTP@{host}", known.NameType.hostbased_service)
        token: bytes = known.SecurityContext(name=service, usage="initiate").step() or b""
    except known.exceptions.GSSError as error:
        why = "; ".join(error.get_all_statuses(error.min_code, False)) if error.min_code else str(error)
        hint = "run `kinit`, or set storage.delegation_token"
        raise StorageError(f"{address} asks for Kerberos: {why}", hint=hint) from error
    return f"Negotiate {base64.b64encode(token).decode()}"
