"""What every test server offers: where it is, and the means to make trouble."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Service:
    """A running lock service. `options` are lakelock settings beside `lock.provider`; `stop` and `start` restart it with its
    data, `pause` and `resume` freeze it."""

    name: str
    url: Callable[[str], str]  # lock.provider for a table with this name
    port: int
    stop: Callable[[], None]
    start: Callable[[], None]
    pause: Callable[[], None]
    resume: Callable[[], None]
    options: Mapping[str, str] = field(default_factory=dict)
