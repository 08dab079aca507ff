"""What a lock service offers to the tests of its provider: its address, and ways to make trouble."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

LOOPBACK = "127.0.0.1"


def nothing() -> None:
    """Stands in for `stop` and the like where there is no server to stop."""


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
