"""What the URIs of all lock providers have in common: text that can be sent, recorded and shown."""

from __future__ import annotations

from lakelock.errors import SettingsError


def sendable(uri: str) -> str:
    """`uri` without the white space around it, or `SettingsError` when UTF-8 cannot hold it (half of a surrogate pair)."""
    text = uri.strip()
    try:
        text.encode()
    except UnicodeEncodeError:
        # The message leaves the URI out: it could be neither printed nor logged.
        raise SettingsError(
            "lock.provider holds half of a surrogate pair, which is no character",
            hint="write the URI in UTF-8, anything unusual in it as %XX",
            key="lock.provider",
        ) from None
    return text


def is_host(name: str) -> bool:
    """Whether a name server can be asked for `name` at all: no part is empty or longer than 63 characters."""
    try:
        name.encode("idna")
    except UnicodeError:
        return False
    return True
