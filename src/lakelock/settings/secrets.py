"""What must never be shown: credentials in option values and in URIs."""

from __future__ import annotations

import re

from lakelock.settings.fields import LOCK_OPTIONS

_SECRET_NAME = re.compile(
    r"secret|passw|token|credential|auth_data|access_?key|account_?key|api_?key|sas|signature|private", re.IGNORECASE
)
_USER_INFO = re.compile(r"(\b[\w+.-]+)?://([^/@?#:]*)(:[^/?#]*)?@")
_CONTAINERS = ("abfs", "abfss", "wasb", "wasbs")
"""Schemes in which a container is before the `@`, and no user."""
_UNQUOTED = re.compile(r"((?:://|\b(?:redis|valkey)s?(?:\+\w+)?:/?)[^/@?#:\s]*):(?:(?![?&]\w+=)\S)*@")
"""A password with characters that a URI should have quoted: it ends at the last `@`. Also where the slashes are missing."""
_BARE = re.compile(r"^((?://|[\w+]+:)?[^/@?#:\s]*):(?!/)(?:(?![?&]\w+=)\S)*@")
"""User and password without a scheme, or without the slashes after it."""
_SECRET_VALUE = re.compile(r"(?<=[?&;])([^=&;#]+)=([^&;#]*)")
_QUERY_VALUE = re.compile(r"(?<=[?&;])([^=&;#\s]+)=([^&;#\s]+)")
_SHOWN = ("key", "implicit", "base_path", "region", "endpoint")
"""Parameters of lock URIs, which hold no secret. Any other parameter may be one."""

_HARMLESS = re.compile(
    r"(region_name|endpoint_url|mechanism|service|acl|.*timeout.*|ca|.*_ca_certs|(ssl_)?(certfile|keyfile)|.*username)"
)
"""Options of a lock service's driver that are shown. Any other text may be a secret, also one whose name is misspelt."""

MASK = "***"


def masked(key: str, value: object, *, secret: bool = False) -> str:
    """The value as text that is safe to show: hidden when the key names a secret, URIs without their passwords."""
    if secret or _SECRET_NAME.search(key):
        return MASK
    if key.startswith(LOCK_OPTIONS) and isinstance(value, str) and not _HARMLESS.fullmatch(key.rpartition(".")[2]):
        return MASK
    return masked_uri(value) if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)


def masked_uri(uri: str) -> str:
    """A URI without its password, and without whatever else in it may be one."""
    text = _USER_INFO.sub(_without_user, uri)
    for spelling in (_UNQUOTED, _BARE):
        text = spelling.sub(lambda found: f"{found[1]}:{MASK}@", text)
    text = _SECRET_VALUE.sub(lambda found: f"{found[1]}={MASK}" if _SECRET_NAME.search(found[1]) else found[0], text)
    return _QUERY_VALUE.sub(lambda found: found[0] if found[1].lower() in _SHOWN else f"{found[1]}={MASK}", text)


def _without_user(found: re.Match[str]) -> str:
    scheme, user, password = found[1] or "", found[2], found[3]
    if password:
        return f"{scheme}://{user}:{MASK}@"
    return found[0] if scheme.lower() in _CONTAINERS else f"{scheme}://{MASK}@"
