"""A TCP proxy in front of a real service, to cut connections, delay answers and lose them.

    with Proxy(service.port, host=service.host) as proxy:
        proxy.drop_replies(1)      # the next answer gets lost; the request has taken effect
        proxy.drop_replies()       # every answer from now on
        proxy.delay(0.2)           # every answer comes this much later
        proxy.answer(b"no\n")      # every request gets this answer, and the service never hears of it
        proxy.cut()                # connections are closed, and new ones as soon as they are made
        proxy.heal()               # everything works again, for new connections and for the remaining ones
        proxy.round_trips          # how often a client spoke and then had to wait for an answer

A reply is what one read from the service gives: one answer, for clients that ask and then wait.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from dataclasses import dataclass, field
from types import TracebackType

from lakelock.testing.service import LOOPBACK

_CHUNK = 1 << 16


@dataclass
class _Talk:
    """The state of one connection: the latest piece of a request, and whether anything has come back since."""

    latest: bytes = b""
    answered: bool = True


@dataclass
class Proxy:
    """Listens on `port` of the loopback address and passes everything on to `target`, a port of `host`."""

    target: int
    port: int = 0
    dropped: int = 0
    """How many replies got lost so far."""
    tls: ssl.SSLContext | None = None
    """Clients speak TLS to the proxy, which speaks plain text to the service."""
    connections: int = 0
    """How many connections were made so far."""
    round_trips: int = 0
    """How often a client spoke first, or after it had been answered: requests sent back to back count once."""
    host: str = LOOPBACK
    severs: bool = False
    """A lost reply ends its connection, for protocols that count replies."""
    _is_cut: bool = False
    _delay_s: float = 0.0
    _to_drop: float = 0.0
    _answer: bytes | None = None
    answered: int = 0
    """How many requests the proxy has answered itself."""
    _asked: bytes = b""
    _pipes: set[asyncio.StreamWriter] = field(default_factory=set)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)

    def cut(self) -> None:
        """Close every connection, and each new one at once."""
        self._is_cut = True
        self._on_loop(self._close_all)

    def interrupt(self) -> None:
        """Close every connection; new ones are made as usual."""
        self._on_loop(self._close_all)

    def delay(self, seconds: float) -> None:
        """Hold back every reply by this time."""
        self._delay_s = seconds

    def drop_replies(self, number: int | None = None, *, to: bytes = b"") -> None:
        """Lose the next `number` replies, or all from now on; only those to requests that contain `to`."""
        self._asked, self._to_drop = to, float("inf") if number is None else number

    def answer(self, reply: bytes) -> None:
        """Answer each request with these bytes, and end its connection; the service does not hear of it."""
        self._answer = reply

    def heal(self, *, reconnect: bool = False) -> None:
        """Stop making trouble; `reconnect` ends connections that could not go on after a lost reply."""
        self._is_cut, self._delay_s, self._to_drop, self._answer = False, 0.0, 0, None
        if reconnect:
            self.interrupt()

    def __enter__(self) -> Proxy:
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        starting = asyncio.start_server(self._serve, LOOPBACK, self.port, ssl=self.tls)
        self._server = asyncio.run_coroutine_threadsafe(starting, self._loop).result(10)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _on_loop(self, action: object) -> None:
        async def run() -> None:
            action()  # type: ignore[operator]

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(10)

    def _close_all(self) -> None:
        for pipe in list(self._pipes):
            pipe.close()

    async def _end(self) -> None:
        self._server.close()
        self._close_all()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        self.connections += 1
        to_service = None
        try:
            if self._is_cut:
                return
            from_service, to_service = await asyncio.open_connection(self.host, self.target)
            self._pipes |= {to_client, to_service}
            talk = _Talk()
            directions = [
                asyncio.ensure_future(self._requests(from_client, to_service, to_client, talk)),
                asyncio.ensure_future(self._replies(from_service, to_client, talk)),
            ]
            # Whichever side closes, the other is closed too.
            _, open_ones = await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
            for each in open_ones:
                each.cancel()
            await asyncio.gather(*directions, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for pipe in (to_client, to_service):
                if pipe is not None:
                    self._pipes.discard(pipe)
                    pipe.close()

    async def _requests(
        self, client: asyncio.StreamReader, service: asyncio.StreamWriter, to_client: asyncio.StreamWriter, talk: _Talk
    ) -> None:
        while data := await client.read(_CHUNK):
            if self._answer is not None:
                self.answered += 1
                to_client.write(self._answer)
                await to_client.drain()
                return
            self.round_trips += talk.answered
            talk.latest, talk.answered = data, False
            service.write(data)
            await service.drain()

    async def _replies(self, service: asyncio.StreamReader, client: asyncio.StreamWriter, talk: _Talk) -> None:
        while data := await service.read(_CHUNK):
            if self._to_drop > 0 and self._asked in talk.latest:
                talk.answered = True
                self._to_drop -= 1
                self.dropped += 1
                if self.severs:
                    return
                continue
            if self._delay_s:
                await asyncio.sleep(self._delay_s)
            talk.answered = True
            client.write(data)
            await client.drain()
