"""A proxy between lakelock and a DynamoDB service: counts and shows requests, and makes trouble as planned."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, Literal

from lakelock.testing.service import LOOPBACK
from tests.servers.http_front import in_threads

Trouble = Literal["lost reply", "lost request", "late", "throttled", "unknown table"]

_SHOWN_HEADERS = ("content-type", "x-amz-target", "authorization", "x-amz-date")
_REFUSALS: Mapping[str | None, Mapping[str, str]] = {
    "unknown table": {"__type": "com.amazonaws.dynamodb.v20120810#ResourceNotFoundException", "message": "not found"},
    "throttled": {"__type": "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException", "message": "slow down"},
}


@dataclass
class Rule:
    """What happens to requests that `concerns` names, `times` times. `meanwhile` runs after the service has answered."""

    concerns: Callable[[str, dict[str, Any]], bool]
    trouble: Trouble | None
    times: int = 1
    meanwhile: Callable[[], object] = lambda: None


def operation(name: str) -> Callable[[str, dict[str, Any]], bool]:
    """Every request of one operation."""
    return lambda seen, _: seen == name


def updates(text: str) -> Callable[[str, dict[str, Any]], bool]:
    """Every UpdateItem whose expression contains `text`."""
    return lambda seen, body: seen == "UpdateItem" and text in body["UpdateExpression"]


@dataclass
class Proxy:
    """`requests` are all that came in, as operation and body; `deliver` sends the requests that were held back as late."""

    url: str
    port_behind: int
    host_behind: str = LOOPBACK
    plan: list[Rule] = field(default_factory=list)
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    late: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    mutex: threading.Lock = field(default_factory=threading.Lock)

    @property
    def operations(self) -> list[str]:
        return [name for name, _ in self.requests]

    def deliver(self) -> list[int]:
        """Send the held-back requests now; the status of each answer."""
        held, self.late = self.late, []
        return [self.forward(*one)[0] for one in held]

    def rule_for(self, name: str, body: dict[str, Any]) -> Rule | None:
        with self.mutex:
            self.requests.append((name, body))
            for rule in self.plan:
                if rule.times > 0 and rule.concerns(name, body):
                    rule.times -= 1
                    return rule
        return None

    def forward(self, headers: dict[str, str], body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(self.host_behind, self.port_behind, timeout=10)
        try:
            connection.request("POST", "/", body, headers)
            reply = connection.getresponse()
            return reply.status, reply.getheaders(), reply.read()
        finally:
            connection.close()


def _handler(proxy: Proxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", "0")))
            headers = {name: value for name, value in self.headers.items() if name.lower() in _SHOWN_HEADERS}
            rule = proxy.rule_for(self.headers["x-amz-target"].partition(".")[2], json.loads(body))
            trouble = rule.trouble if rule else None
            if trouble in _REFUSALS:
                said = json.dumps(_REFUSALS[trouble]).encode()
                return self.answer(400, [("content-type", "application/x-amz-json-1.0")], said)
            if trouble == "late":
                proxy.late.append((headers, body))
            if trouble in ("late", "lost request"):
                self.close_connection = True
                return None
            status, reply_headers, reply = proxy.forward(headers, body)
            if rule:
                rule.meanwhile()
            if trouble == "lost reply":
                self.close_connection = True
                return None
            return self.answer(status, reply_headers, reply)

        def answer(self, status: int, headers: list[tuple[str, str]], reply: bytes) -> None:
            self.send_response_only(status)
            for name, value in headers:
                if name.lower().startswith(("x-amz", "content-type")):
                    self.send_header(name, value)
            self.send_header("content-length", str(len(reply)))
            with suppress(OSError):  # the client may have given up
                self.end_headers()
                self.wfile.write(reply)

        def log_message(self, *_: Any) -> None: ...

    return Handler


@contextmanager
def proxy_to(port: int, host: str = LOOPBACK) -> Iterator[Proxy]:
    """A proxy in front of the service on `port` of `host`."""
    proxy = Proxy("", port, host)
    with in_threads(_handler(proxy)) as proxy.url:
        yield proxy
