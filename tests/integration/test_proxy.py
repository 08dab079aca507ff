"""The proxy that troubles connections does what its tests rely on."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator

import pytest

from lakelock.testing.proxy import Proxy


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while data := self.request.recv(1000):
            self.server.heard.append(data)  # type: ignore[attr-defined]
            self.request.sendall(b"re:" + data)


@pytest.fixture
def echo() -> Iterator[socketserver.ThreadingTCPServer]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        server.daemon_threads = True
        server.heard = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join(5)


@pytest.fixture
def proxy(echo: socketserver.ThreadingTCPServer) -> Iterator[Proxy]:
    with Proxy(echo.server_address[1]) as proxy:
        yield proxy


def connected(proxy: Proxy) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", proxy.port), timeout=5)
    made.settimeout(5)
    return made


def say(client: socket.socket, text: bytes) -> bytes:
    client.sendall(text)
    return client.recv(1000)


def test_a_dropped_reply_was_heard_by_the_service(proxy: Proxy, echo: socketserver.ThreadingTCPServer) -> None:
    with connected(proxy) as client:
        proxy.drop_replies(1, to=b"lose")
        assert say(client, b"keep") == b"re:keep"
        client.settimeout(0.1)
        with pytest.raises(TimeoutError):
            say(client, b"lose this")
        client.settimeout(5)
        assert say(client, b"lose no more") == b"re:lose no more"
    assert echo.heard == [b"keep", b"lose this", b"lose no more"]  # type: ignore[attr-defined]
    assert proxy.dropped == 1


def test_a_cut_closes_what_is_open_and_what_is_new_until_it_is_healed(proxy: Proxy) -> None:
    with connected(proxy) as client:
        assert say(client, b"a") == b"re:a"
        proxy.cut()
        assert client.recv(1) == b""
    with connected(proxy) as client:
        assert client.recv(1) == b""
    proxy.heal()
    with connected(proxy) as client:
        assert say(client, b"b") == b"re:b"


def test_the_proxy_answers_itself_and_the_service_hears_nothing(proxy: Proxy, echo: socketserver.ThreadingTCPServer) -> None:
    with connected(proxy) as client:
        proxy.answer(b"busy")
        assert say(client, b"one") == b"busy" and client.recv(10) == b""
    assert echo.heard == [] and proxy.answered == 1  # type: ignore[attr-defined]
    proxy.heal()
    with connected(proxy) as client:
        assert say(client, b"two") == b"re:two"
