"""What must never be shown: credentials in option values and in URIs."""

from __future__ import annotations

import re

_SECRET_NAME = re.compile(
    r"secret|passw|token|credential|access_?key|account_?key|api_?key|sas|signature|private", re.IGNORECASE
)
_USER_INFO = re.compile(r"(?<=://)([^/@?#:]*)(?::[^/?#]*)?@")
_UNQUOTED = re.compile(r"((?:://|\b(?:redis|valkey)s?(?:\+\w+)?:/?)[^/@?#:\s]*):(?:(?![?&]\w+=)\S)*@")
"""A password with characters that a URI should have quoted: it ends at the last `@`. Also where the slashes are missing."""
_QUERY_VALUE = re.compile(r"(?<=[?&;])([^=&;#]+)=([^&;#]*)")

MASK = "***"


def masked(key: str, value: object, *, secret: bool = False) -> str:
    """The value as text that is safe to show: hidden when the key names a secret, URIs without their passwords."""
    if secret or _SECRET_NAME.search(key):
        return MASK
    return masked_uri(value) if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)


def masked_uri(uri: str) -> str:
    """A URI without password and without the values of secret query parameters."""
    without_user = _USER_INFO.sub(lambda found: f"{found[1]}:{MASK}@" if ":" in found[0] else found[0], uri)
    without_user = _UNQUOTED.sub(lambda found: f"{found[1]}:{MASK}@", without_user)
    return _QUERY_VALUE.sub(lambda found: f"{found[1]}={MASK}" if _SECRET_NAME.search(found[1]) else found[0], without_user)
