"""A proxy before a metastore that loses requests and replies, by the name of the call."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class MetastoreProxy:
    """Passes calls on. `lose_reply`, `lose_request` and `hold_request` hold names of calls, each to be hit once.

    Reads thrift's binary protocol without frames; a call is small enough to come in one piece.
    """

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.lose_reply: list[str] = []
        self.lose_request: list[str] = []
        self.hold_request: list[str] = []
        self.refuse = False
        """Whether new connections are closed at once."""
        self.silent = False
        """Whether requests are taken and never answered."""
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
        """Let the requests that were held arrive at the metastore now."""
        while self._held:
            with socket.create_connection(("127.0.0.1", self._to), timeout=10) as server:
                server.sendall(self._held.pop())
                server.recv(1 << 16)

    def _pass_on(self, client: socket.socket) -> None:
        with suppress(OSError), client, socket.create_connection(("127.0.0.1", self._to), timeout=30) as server:
            while request := client.recv(1 << 16):
                name = request[8 : 8 + int.from_bytes(request[4:8], "big")].decode()
                self.calls[name] += 1
                if self.silent:
                    continue
                if _hit(self.lose_request, name):
                    return
                if _hit(self.hold_request, name):
                    self._held.append(request)
                    return
                server.sendall(request)
                reply = server.recv(1 << 16)
                if _hit(self.lose_reply, name):
                    return
                client.sendall(reply)


def _hit(names: list[str], name: str) -> bool:
    if name in names:
        names.remove(name)
        return True
    return False


@contextmanager
def metastore_proxy(port: int) -> Iterator[MetastoreProxy]:
    """A proxy on a port of its own before the metastore on `port`."""
    proxy = MetastoreProxy(port)
    thread = threading.Thread(target=proxy.serve, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.close()
        thread.join(5)
