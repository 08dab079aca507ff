"""A server as a process of this machine: started, stopped, started again with its data, frozen."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import ClassVar, TypeVar

from tests.given_servers import ServerFailed

_END_WITHIN_S = 10.0

Server = TypeVar("Server", bound="ServerProcess")


def free_port() -> int:
    """A port of the loopback address on which nobody is listening."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    """Whether anybody accepts connections there."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def freeze(process: subprocess.Popen[bytes]) -> None:
    """Stop a process until it gets SIGCONT; on return none of its threads runs, which the signal alone does not ensure."""
    process.send_signal(signal.SIGSTOP)
    if process.returncode is None:
        os.waitpid(process.pid, os.WUNTRACED)


class ServerProcess:
    """One process, with its log and its data in `folder`. A subclass gives its command, and says when it is up."""

    title: ClassVar[str]
    up_within_s: ClassVar[float]
    ends_by: ClassVar[signal.Signals] = signal.SIGKILL
    """How it is stopped; SIGTERM where it must save something first."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        self.folder, self.port = folder.resolve(), port or free_port()
        self._running: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def command(self) -> Sequence[str]:
        raise NotImplementedError("say what to start")

    @property
    def environment(self) -> Mapping[str, str]:
        """The server's variables, in addition to those of this process."""
        return {}

    def is_up(self) -> bool:
        """Whether it serves; asked repeatedly after the start."""
        return listens(self.port)

    def start(self) -> None:
        """Start and wait until it serves."""
        self.launch()
        self.wait_until_it_serves()

    def launch(self) -> None:
        """Start, and do not wait."""
        with (self.folder / "log").open("ab") as log:
            variables = os.environ | self.environment
            self._running = subprocess.Popen(self.command(), stdout=log, stderr=log, cwd=self.folder, env=variables)

    def wait_until_it_serves(self) -> None:
        """Raise `ServerFailed`, with the end of its log, if it does not come up in time; it is then stopped."""
        assert self._running is not None
        until_s = monotonic() + self.up_within_s
        while not self.is_up():
            if self._running.poll() is not None or monotonic() > until_s:
                self.stop()
                raise ServerFailed(f"{self.title} did not start: {(self.folder / 'log').read_text()[-2000:]}")
            sleep(0.02)

    def stop(self) -> None:
        """End it, frozen or not; what is on disk stays."""
        if self._running is None:
            return
        self._running.send_signal(self.ends_by)
        self._running.send_signal(signal.SIGCONT)
        try:
            self._running.wait(_END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._running.kill()
            self._running.wait()
        self._running = None

    def pause(self) -> None:
        """Freeze it until `resume`."""
        assert self._running is not None
        freeze(self._running)

    def resume(self) -> None:
        if self._running is not None:
            self._running.send_signal(signal.SIGCONT)

    def __enter__(self: Server) -> Server:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
