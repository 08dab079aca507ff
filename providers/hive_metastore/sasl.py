"""Logging in to a metastore: SASL's PLAIN, DIGEST-MD5 with a delegation token, and Kerberos, in thrift's negotiation.

Only authentication (`auth`) is spoken: to keep others from reading, use TLS. What is secret stays in these objects; no error
repeats any of it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from typing import Any, Protocol

from lakelock.clock import Runtime
from lakelock.errors import SettingsError
from lakelock.providers.hive_metastore.kerberos import Kerberos
from lakelock.providers.hive_metastore.wire import LONGEST_MESSAGE, LoginRefused, Wire, WireError
from lakelock.settings.hive_metastore import HiveMetastoreSettings

_START, _OK, _BAD, _ERROR, _COMPLETE = 1, 2, 3, 4, 5
_MOST_STEPS = 20
_REALM = "default"
"""The realm and server name that Hadoop gives to token authentication everywhere."""

_DIGEST_URI = f"null/{_REALM}"
_PAIR = re.compile(r'\s*([\w-]+)=(?:"((?:[^"\\]|\\.)*)"|([^",\s]*))\s*(?:,|$)')


class Mechanism(Protocol):
    """One way to log in; `step` answers a challenge. The first challenge is empty."""

    name: str
    complete: bool

    def step(self, challenge: bytes) -> bytes: ...


def mechanism(settings: HiveMetastoreSettings, user: str, host: str, runtime: Runtime) -> Mechanism | None:
    """How to log in to `host` by these settings; None where nobody needs to."""
    if settings.auth == "PLAIN":
        return Plain(user, settings.password)
    if settings.auth == "DIGEST":
        name, password = digest_credentials(settings.delegation_token)
        return DigestMd5(name, password, runtime.uuid())
    if settings.auth == "KERBEROS":
        return Kerberos(settings, host, runtime.uuid())
    return None


def log_in(wire: Wire, way: Mechanism) -> None:
    """Negotiate over `wire`, which has frames from then on; `LoginRefused` or `WireError`."""
    _send(wire, _START, way.name.encode())
    response = way.step(b"")
    _send(wire, _COMPLETE if way.complete else _OK, response)
    for _ in range(_MOST_STEPS):
        status, payload = _receive(wire)
        if status == _COMPLETE:
            if not way.complete:
                way.step(payload)
            if not way.complete:
                raise LoginRefused("the metastore ended the log-in early")
            wire.framed = True
            return
        if status != _OK:
            raise LoginRefused(payload.decode(errors="replace")[:200] or "the metastore refused the log-in")
        response = way.step(payload)
        _send(wire, _COMPLETE if way.complete else _OK, response)
    raise WireError("the log-in did not end")


def _send(wire: Wire, status: int, payload: bytes) -> None:
    wire.send(bytes([status]) + len(payload).to_bytes(4, "big") + payload)


def _receive(wire: Wire) -> tuple[int, bytes]:
    status, length = wire.receive(1)[0], int.from_bytes(wire.receive(4), "big")
    if not _OK <= status <= _COMPLETE or length > LONGEST_MESSAGE:
        raise WireError("what answered the log-in is not a metastore with SASL")
    return status, wire.receive(length)


class Plain:
    """User and password as they are; they are private only over TLS."""

    name = "PLAIN"

    def __init__(self, user: str, password: str) -> None:
        self._response, self.complete = f"\0{user}\0{password}".encode(), False

    def step(self, challenge: bytes) -> bytes:
        self.complete = True
        return self._response


class DigestMd5:
    """A shared secret that is proven, not sent; the metastore proves that it knows it too."""

    name = "DIGEST-MD5"

    def __init__(self, user: str, password: str, client_nonce: str) -> None:
        self._user, self._password, self._client_nonce = user, password, client_nonce
        self._expected, self.complete = "", False

    def step(self, challenge: bytes) -> bytes:
        if not challenge:
            return b""
        given = _pairs(challenge)
        if self._expected:
            if not hmac.compare_digest(given.get("rspauth", ""), self._expected):
                raise LoginRefused("the metastore does not know the secret of the delegation token")
            self.complete = True
            return b""
        if "auth" not in given.get("qop", "auth").split(","):
            raise LoginRefused(f"the metastore asks for protection {given['qop']!r}, and only auth is spoken here")
        realm, nonce = given.get("realm", _REALM), given.get("nonce", "")
        self._expected = self._proof("", realm, nonce)
        fields = {"username": self._user, "realm": realm, "nonce": nonce, "cnonce": self._client_nonce}
        quoted = ",".join(f'{name}="{_escaped(value)}"' for name, value in fields.items())
        proof = self._proof("AUTHENTICATE", realm, nonce)
        return f'charset=utf-8,{quoted},nc=00000001,digest-uri="{_DIGEST_URI}",qop=auth,response={proof}'.encode()

    def _proof(self, verb: str, realm: str, nonce: str) -> str:
        first = _md5(f"{self._user}:{realm}:{self._password}".encode()).digest() + f":{nonce}:{self._client_nonce}".encode()
        key, what = _md5(first).hexdigest(), _md5(f"{verb}:{_DIGEST_URI}".encode()).hexdigest()
        proof: str = _md5(f"{key}:{nonce}:00000001:{self._client_nonce}:auth:{what}".encode()).hexdigest()
        return proof


def digest_credentials(token: str) -> tuple[str, str]:
    """Name and password out of a delegation token as Hadoop writes it for URLs (`Token.encodeToUrlString`)."""
    try:
        data = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        identifier, rest = _counted(data)
        password, _ = _counted(rest)
    except (ValueError, IndexError):
        raise SettingsError(
            "hive_metastore.delegation_token is not a delegation token as Hadoop writes it for URLs",
            hint="get one from the metastore for this user, in the form of Token.encodeToUrlString()",
            key="hive_metastore.delegation_token",
        ) from None
    return base64.b64encode(identifier).decode(), base64.b64encode(password).decode()


def _counted(data: bytes) -> tuple[bytes, bytes]:
    """The bytes that Hadoop's variable-length count announces, and the rest."""
    first, start = int.from_bytes(data[:1], "big", signed=True), 1
    if first < -112:  # the number of bytes of the count, less 112; negative counts begin at -121
        start = 1 + (-112 - first)
        first = int.from_bytes(data[1:start], "big") if first >= -120 else -1
    if first < 0 or len(data) < start + first or not data:
        raise ValueError("truncated")
    return data[start : start + first], data[start + first :]


def _pairs(challenge: bytes) -> dict[str, str]:
    text = challenge.decode(errors="replace")
    return {name: re.sub(r"\\(.)", r"\1", quoted) or plain for name, quoted, plain in _PAIR.findall(text)}


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _md5(data: bytes) -> Any:
    return hashlib.md5(data, usedforsecurity=False)
