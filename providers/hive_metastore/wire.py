"""The connection to one metastore below thrift: a socket whose every call has a deadline, TLS, and frames.

SASL and thrift's framed transport put messages on the wire in the same way, a length of four bytes and then the message, so
one class serves both.
"""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from typing import cast

from lakelock.clock import Runtime
from lakelock.providers.tls import tls_context
from lakelock.settings.hive_metastore import HiveMetastoreSettings

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
