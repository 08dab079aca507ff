"""The connection to one metastore below thrift: a socket whose every call has a deadline, TLS, frames, and the login by SASL.

SASL and thrift's framed transport put messages on the wire in the same way, a length of four bytes and then the message,
so one class serves both. Logins are SASL's PLAIN, DIGEST-MD5 with a delegation token, and Kerberos (GSSAPI, with a ticket
from `kinit` or one that a keytab gets), in thrift's negotiation. Only authentication (`auth`) is spoken: to keep others
from reading, use TLS. What is secret stays in these objects; no error repeats any of it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import socket
import ssl
from dataclasses import dataclass
from typing import Any, Protocol, cast

from lakelock.clock import Runtime
from lakelock.errors import ProviderRefused, SettingsError
from lakelock.providers.connections import tls_context
from lakelock.settings.sections import HiveMetastoreSettings

LONGEST_MESSAGE = 16 << 20
"""No answer that a lock needs comes near this; whatever sends a longer one is not a metastore."""

_CHUNK = 1 << 16
_SHORTEST_WAIT_S = 0.001


class WireError(OSError):
    """The connection broke, timed out, or what came over it cannot be from a metastore. The socket must not be used again."""


class LoginRefused(Exception):
    """The metastore does not accept our identity, or cannot prove its own: trying again would not help."""

    def __init__(self, why: str, hint: str = "") -> None:
        super().__init__(why)
        self.hint = hint or "check hive_metastore.auth and the user, password, token or principal that goes with it"


@dataclass(frozen=True)
class Address:
    """One metastore."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Wire:
    """What thrift's protocols call a transport. `until_s` bounds everything that waits, on the monotonic clock."""

    def __init__(self, runtime: Runtime, sock: socket.socket, until_s: float) -> None:
        self.until_s = until_s
        self.framed = False
        self._runtime, self._sock = runtime, sock
        self._in, self._out, self._frame_left = b"", bytearray(), 0

    @classmethod
    def connect(cls, runtime: Runtime, address: Address, settings: HiveMetastoreSettings, until_s: float) -> Wire:
        """A connected (and, if so set, encrypted) wire, or `WireError`."""
        context = _context(settings) if settings.tls else None
        left_s = max(_SHORTEST_WAIT_S, until_s - runtime.monotonic_s())
        sock = None
        try:
            sock = socket.create_connection((address.host, address.port), timeout=left_s)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                sock.settimeout(max(_SHORTEST_WAIT_S, until_s - runtime.monotonic_s()))
                sock = context.wrap_socket(sock, server_hostname=address.host)
        except (OSError, ValueError) as error:  # ValueError: a host name that cannot be one
            if sock is not None:
                sock.close()
            raise WireError(_reason(error)) from error
        return cls(runtime, sock, until_s)

    def close(self) -> None:
        """Close the socket without telling the server: a forked child closes its copy while the parent goes on."""
        self._sock.close()

    def send(self, data: bytes) -> None:
        """Send all of `data` as it is."""
        try:
            self._sock.settimeout(self._left_s())
            self._sock.sendall(data)
        except OSError as error:
            raise WireError(_reason(error)) from error

    def receive(self, size: int) -> bytes:
        """Exactly `size` bytes as they came."""
        while len(self._in) < size:
            self._in += self._some()
        taken, self._in = self._in[:size], self._in[size:]
        return taken

    # The four methods that thrift's protocols use, by their names there.

    def write(self, data: bytes) -> None:
        self._out += data

    def flush(self) -> None:
        message, self._out = bytes(self._out), bytearray()
        self.send(len(message).to_bytes(4, "big") + message if self.framed else message)

    def readAll(self, size: int) -> bytes:  # noqa: N802
        if not 0 <= size <= LONGEST_MESSAGE:
            raise WireError(f"an answer of {size} bytes is not from a metastore")
        if self.framed and not self._frame_left:
            self._begin_frame()
        if self.framed:
            if size > self._frame_left:
                raise WireError("an answer is longer than its frame")
            self._frame_left -= size
        return self.receive(size)

    def read(self, size: int) -> bytes:
        return self.readAll(size)

    def _begin_frame(self) -> None:
        length = int.from_bytes(self.receive(4), "big", signed=True)
        if not 0 < length <= LONGEST_MESSAGE:
            raise WireError(f"a frame of {length} bytes is not from a metastore that uses frames")
        self._frame_left = length

    def _some(self) -> bytes:
        try:
            self._sock.settimeout(self._left_s())
            data = self._sock.recv(_CHUNK)
        except OSError as error:
            raise WireError(_reason(error)) from error
        if not data:
            raise WireError("the metastore closed the connection")
        return data

    def _left_s(self) -> float:
        left_s = self.until_s - self._runtime.monotonic_s()
        if left_s <= 0:
            raise TimeoutError
        return left_s


def _context(settings: HiveMetastoreSettings) -> ssl.SSLContext:
    return tls_context(
        "the metastore",
        ca=settings.tls_ca_file,
        certificate=settings.tls_certificate_file,
        key=settings.tls_key_file,
        password="",
        hint="check hive_metastore.tls_ca_file, tls_certificate_file and tls_key_file: PEM files, the key without password",
        setting="hive_metastore.tls",
    )


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return cast("str | None", getattr(error, "strerror", None)) or str(error) or type(error).__name__


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
    """How to log in to `host` by these settings; None where no login is needed."""
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
