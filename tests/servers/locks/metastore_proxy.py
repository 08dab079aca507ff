"""A proxy in front of a metastore that loses requests and replies, or answers with an error, by the name of the call."""

from __future__ import annotations

import select
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from lakelock.testing.service import LOOPBACK

_CALL = b"\x80\x01\x00\x01"
"""How a call begins; what else comes is the rest of one."""
_PIECE_BYTES = 1 << 16


class MetastoreProxy:
    """Passes calls on. `lose_reply`, `lose_request` and `hold_request` hold names of calls, each to be hit once.

    Reads thrift's binary protocol without frames. A call that is held or failed is small enough to come in one piece.
    """

    def __init__(self, port: int, host: str) -> None:
        self._to = (host, port)
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port: int = self._listener.getsockname()[1]
        self.lose_reply: list[str] = []
        self.lose_request: list[str] = []
        self.hold_request: list[str] = []
        self.fail: dict[str, list[int]] = {}
        """The errors with which the next calls are answered, by name of the call: kinds of thrift's TApplicationException."""
        self.refuse = False
        """Whether new connections are closed at once."""
        self.silent = False
        """Whether requests are accepted and never answered."""
        self.calls: Counter[str] = Counter()
        self.connections = 0
        self._held: list[bytes] = []

    def serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            if self.refuse:
                client.close()
                continue
            threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def deliver(self) -> None:
        """Send the requests that were held to the metastore now."""
        while self._held:
            with socket.create_connection(self._to, timeout=10) as server:
                server.sendall(self._held.pop())
                server.recv(_PIECE_BYTES)

    def _pass_on(self, client: socket.socket) -> None:
        """Until one side closes its connection, or something is lost."""
        with suppress(OSError), client, socket.create_connection(self._to, timeout=30) as server:
            loses = False
            while True:
                ready, _, _ = select.select([client, server], [], [])
                if server in ready:
                    reply = server.recv(_PIECE_BYTES)
                    if loses or not reply:
                        return
                    client.sendall(reply)
                if client not in ready:
                    continue
                request = client.recv(_PIECE_BYTES)
                name = _name_of(request)
                if name:
                    self.calls[name] += 1
                    loses = _hit(self.lose_reply, name)
                if not request or self._is_lost(name, request):
                    return
                if self.fail.get(name):
                    client.sendall(_error(request, len(name), self.fail[name].pop(0)))
                elif not self.silent:
                    server.sendall(request)

    def _is_lost(self, name: str, request: bytes) -> bool:
        held = _hit(self.hold_request, name)
        if held:
            self._held.append(request)
        return held or _hit(self.lose_request, name)


def _name_of(request: bytes) -> str:
    """The name of the call that begins here; empty for a piece in the middle of one."""
    return request[8 : 8 + int.from_bytes(request[4:8], "big")].decode() if request.startswith(_CALL) else ""


def _error(request: bytes, name_length: int, kind: int) -> bytes:
    """A TApplicationException: a head like that of the request, and a text and the kind as fields 1 and 2."""
    text = f"error of kind {kind}".encode()
    head = b"\x80\x01\x00\x03" + request[4 : 12 + name_length]
    return head + b"\x0b\x00\x01" + len(text).to_bytes(4, "big") + text + b"\x08\x00\x02" + kind.to_bytes(4, "big") + b"\x00"


def _hit(names: list[str], name: str) -> bool:
    if name in names:
        names.remove(name)
        return True
    return False


@contextmanager
def metastore_proxy(port: int, host: str = LOOPBACK) -> Iterator[MetastoreProxy]:
    """A proxy on a port of its own, in front of the metastore on `port` of `host`."""
    proxy = MetastoreProxy(port, host)
    thread = threading.Thread(target=proxy.serve, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.close()
        thread.join(5)
