"""What every test server offers: where it is, and the means to make trouble."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


class ServerError(Exception):
    """A server cannot be had; the message says why."""


class ServerMissing(ServerError):
    """What a server needs is not on this machine, or the server may not be stopped; the message says how to get it."""


class ServerFailed(ServerError):
    """A server did not come up; the message ends with the end of its log."""


def nothing() -> None:
    """What is done to a service that cannot be stopped: it has no server, or it is somebody else's."""


def freeze(process: subprocess.Popen[bytes]) -> None:
    """Stop a process until it gets SIGCONT; on return none of its threads runs, which the signal alone does not promise."""
    process.send_signal(signal.SIGSTOP)
    if process.returncode is None:
        os.waitpid(process.pid, os.WUNTRACED)


@dataclass(frozen=True)
class Service:
    """A running lock service.

    `options` are lakelock settings beside `lock.provider`; `stop` and `start` restart it with its data, `pause` and `resume`
    freeze it.
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
    forks: bool = True
    """Whether a client goes on working in a forked process."""
