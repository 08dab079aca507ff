"""A TCP proxy in front of a service, to cut connections and to lose replies."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType


class Proxy:
    """Passes everything on until it is told otherwise. A context manager."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._mutex = threading.Lock()
        self._refuses, self._swallows = False, False

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # A thread that blocks in accept() keeps the socket alive until it is shut down.
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()

    def cut(self) -> None:
        """End all connections; new ones are made as usual."""
        with self._mutex:
            ending, self._open = self._open, set()
        for one in ending:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def refuse(self) -> None:
        """End all connections and refuse new ones."""
        self._refuses = True
        self.cut()

    def lose_replies(self) -> None:
        """Requests get through, replies do not."""
        self._swallows = True

    def heal(self) -> None:
        """Pass everything on again. Connections whose replies were lost are ended: they could not go on."""
        if self._swallows:
            self.cut()
        self._refuses = self._swallows = False

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            if self._refuses:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._target_port), timeout=5)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            with self._mutex:
                self._open |= {client, server}
            threading.Thread(target=self._pass_on, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._pass_on, args=(server, client, True), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, replies: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if not (replies and self._swallows):
                    sink.sendall(data)
        for one in (source, sink):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        with self._mutex:
            self._open -= {source, sink}
