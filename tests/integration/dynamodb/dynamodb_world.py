"""Writers whose locks are in one DynamoDB table, in the time of the test, and the requests of Java Hudi's lock client."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from typing import Any

from tests.api import Event, EventKind, Events, Lease, LockProvider, MemoryStorage, Runtime, WriterIdentity, open_provider
from tests.servers.locks.dynamodb import REGION, TABLE
from tests.servers.locks.dynamodb_proxy import Proxy, proxy_to

from lakelock.settings import Settings
from lakelock.testing import ManualRuntime
from lakelock.testing.service import Service

LEASE_S = 15.0
UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
JAVA_OWNER = "vm06b9b046-6485-421f-8b2c-d896376ddda7"
_numbers = count(1)


@cache
def plain_client(url: str) -> Any:
    import boto3

    return boto3.session.Session().client("dynamodb", endpoint_url=url, region_name=REGION)


@dataclass
class World:
    """One lock item, one clock, and any number of writers."""

    service: Service
    key: str
    runtime: ManualRuntime = field(default_factory=ManualRuntime)
    seen: list[Event] = field(default_factory=list)
    proxy: Proxy | None = None

    @property
    def uri(self) -> str:
        return self.service.url(self.key)

    def writer(self, name: str, *, runtime: Runtime | None = None, **options: object) -> LockProvider:
        """A writer; `proxied=True` sends its requests through the proxy."""
        clock = runtime or self.runtime
        given: dict[str, object] = {"lock.provider": self.uri, "lock.lease_s": LEASE_S, **self.service.options}
        if options.pop("proxied", False):
            assert self.proxy is not None
            given["lock.options.endpoint_url"] = self.proxy.url
        given |= {key.replace("__", "."): value for key, value in options.items()}
        settings = Settings.resolve(given).settings
        writer = WriterIdentity(clock.uuid(), name, "vm", 1, "user")
        storage = MemoryStorage(self.runtime.now_ms, name=self.key)
        return open_provider(settings, storage, clock, writer, Events((self.seen.append,)))

    def kinds(self) -> list[EventKind]:
        return [event.kind for event in self.seen]

    def request(self, name: str, **request: Any) -> dict[str, Any]:
        """A request of the plain driver: what Java, or an operator, would send."""
        reply: dict[str, Any] = getattr(plain_client(self.service.options["lock.options.endpoint_url"]), name)(
            **{"TableName": TABLE, **request}
        )
        return reply

    def item(self) -> dict[str, Any] | None:
        item: dict[str, Any] | None = self.request("get_item", Key={"key": {"S": self.key}}, ConsistentRead=True).get("Item")
        return item


def take(provider: LockProvider, wait_s: float = 0.0) -> Lease:
    return provider.acquire(wait_s=wait_s)


def new_world(service: Service) -> World:
    """A lock that no other test has."""
    return World(service, f"flights-{os.getpid()}-{next(_numbers)}")


@contextmanager
def troubling(world: World) -> Iterator[World]:
    """A lock that was used before, and a proxy in front of the service, which is the world's `proxy`."""
    with proxy_to(world.service.port, world.service.host) as world.proxy:
        provider = world.writer("earlier")
        provider.release(take(provider))
        yield world


def java_takes(world: World, condition: str = "attribute_not_exists(#pk)", lease_ms: int = 3000, **values: Any) -> None:
    """Java's PutItem, which replaces the whole item."""
    names = {"#pk": "key"} | ({"#ir": "isReleased"} if "#ir" in condition else {})
    names |= {"#rvn": "recordVersionNumber"} if "#rvn" in condition else {}
    world.request(
        "put_item",
        Item={
            "key": {"S": world.key},
            "ownerName": {"S": JAVA_OWNER},
            "leaseDuration": {"S": str(lease_ms)},
            "recordVersionNumber": {"S": world.runtime.uuid()},
        },
        ConditionExpression=condition,
        ExpressionAttributeNames=names,
        **({"ExpressionAttributeValues": values} if values else {}),
    )


def java_renews_or_deletes(world: World, *, delete: bool) -> None:
    """Java's heartbeat or release, on its condition."""
    item = world.item()
    assert item is not None
    request: dict[str, Any] = {
        "Key": {"key": {"S": world.key}},
        "ConditionExpression": "attribute_exists(#pk) AND #rvn = :rvn AND #on = :on",
        "ExpressionAttributeNames": {"#pk": "key", "#rvn": "recordVersionNumber", "#on": "ownerName"},
        "ExpressionAttributeValues": {":rvn": item["recordVersionNumber"], ":on": {"S": JAVA_OWNER}},
    }
    if delete:
        world.request("delete_item", **request)
        return
    request["ExpressionAttributeNames"]["#ld"] = "leaseDuration"
    request["ExpressionAttributeValues"] |= {":ld": item["leaseDuration"], ":newRvn": {"S": world.runtime.uuid()}}
    world.request("update_item", UpdateExpression="SET #ld = :ld, #rvn = :newRvn", **request)
