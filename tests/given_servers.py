"""Servers that the environment names, and errors that say what a server lacks."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from lakelock.testing.service import LOOPBACK


class ServerError(Exception):
    """A server is not available; the message says why."""


class ServerMissing(ServerError):
    """A server lacks something on this machine, or may not be stopped; the message says what to do."""


class ServerFailed(ServerError):
    """A server did not come up; the message ends with the end of its log."""


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
