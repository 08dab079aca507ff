"""What every test server offers: its address, and ways to make trouble."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

LOOPBACK = "127.0.0.1"


class ServerError(Exception):
    """A server is not available; the message says why."""


class ServerMissing(ServerError):
    """A server lacks something on this machine, or may not be stopped; the message says what to do."""


class ServerFailed(ServerError):
    """A server did not come up; the message ends with the end of its log."""


def nothing() -> None:
    """Stands in for `stop` and the like where there is no server to stop."""


def not_ours(variable: str) -> Callable[[], None]:
    """Stands in for `stop` and the like of a server that this environment variable names: refuses."""

    def refuse() -> None:
        raise ServerMissing(f"the server of {variable} is not ours to stop")

    return refuse


@dataclass(frozen=True)
class Place:
    """Where a server is that the environment names; `text` is how the URL writes it."""

    host: str
    port: int
    text: str

    @staticmethod
    def of(url: str, port: int) -> Place:
        """That of a URL, which may leave out the usual `port`. Of several servers, a proxy stands in front of the first."""
        # `urlsplit` knows no scheme with an underscore, as in hive_metastore://
        text = re.split("[/?]", url.partition("://")[2])[0].rpartition("@")[2]
        first = urlsplit(f"//{text.partition(',')[0]}")
        return Place(first.hostname or LOOPBACK, first.port or port, text)


def freeze(process: subprocess.Popen[bytes]) -> None:
    """Stop a process until it gets SIGCONT; on return none of its threads runs, which the signal alone does not ensure."""
    process.send_signal(signal.SIGSTOP)
    if process.returncode is None:
        os.waitpid(process.pid, os.WUNTRACED)


@dataclass(frozen=True)
class Service:
    """A running lock service.

    `options` are lakelock settings in addition to `lock.provider`; `stop` and `start` restart it with its data, `pause` and
    `resume` freeze it.
    """

    name: str
    url: Callable[[str], str]  # lock.provider for a table with this name
    port: int
    stop: Callable[[], None] = nothing
    start: Callable[[], None] = nothing
    pause: Callable[[], None] = nothing
    resume: Callable[[], None] = nothing
    options: Mapping[str, str] = field(default_factory=dict)
    queues: bool = False
    """Whether waiters are served in order of arrival, not by who happens to look first."""
    tables: str = ""
    """The URI below which tables lie, for a lock that is in the table's storage; `table_options` are that storage's."""
    table_options: Mapping[str, str] = field(default_factory=dict)
    sessions: bool = False
    """Whether a session holds the lock: a silent holder keeps it as long as it lives, and a lost reply ends the connection."""
    tells_left: bool = True
    """Whether it can tell at once how much longer a lease runs."""
    forks: bool = True
    """Whether a client keeps working in a forked process."""
    host: str = LOOPBACK
    """Where `port` is; a proxy on this machine connects there."""
    address: str = ""
    """How `url` and the options write host and port; empty for a server of this machine, which its port tells apart."""

    def through(self, port: int, values: Mapping[str, Any]) -> dict[str, Any]:
        """Settings or options of a client that reaches the service through a proxy on this port of this machine."""
        own = rf"(?<=[/@]){re.escape(self.address)}(?=[/?]|$)" if self.address else rf"(?<=:){self.port}(?!\d)|^{self.port}$"
        proxy = f"{LOOPBACK}:{port}" if self.address else str(port)
        return {key: re.sub(own, proxy, value) if isinstance(value, str) else value for key, value in values.items()}
