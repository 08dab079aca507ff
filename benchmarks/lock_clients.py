"""The least that each service's own driver needs for a lock: take it under a condition, and give it back if it is ours.

They lack what lakelock adds: a token that grows, a queue, waiting, lost replies, renewal, who holds it.
Each function yields one round of taking and giving back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast
from uuid import uuid4

from tests.servers import S3_OPTIONS

from lakelock.clock import SystemRuntime
from lakelock.providers.hive_metastore.client import Calls
from lakelock.providers.hive_metastore.connection import Address, Wire
from lakelock.settings.sections import HiveMetastoreSettings
from lakelock.storage.local import LocalStorage

if TYPE_CHECKING:
    from obstore.store import S3Config

LEASE_MS = 15_000
REGION = "us-east-1"

_RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"
_LONG_S = 600.0

Round = Callable[[], object]


@contextmanager
def zookeeper(port: int, lists: bool = False) -> Iterator[Round]:
    """kazoo: create a contender with Curator's name, delete it; `lists`: and see in between whether it is the first.

    The listing is sent behind the creation, without waiting for its answer, so both are the same round trip.
    """
    from kazoo.client import KazooClient

    client = KazooClient(f"127.0.0.1:{port}", timeout=30.0)
    client.start()
    client.ensure_path("/bare")

    def one() -> None:
        made = client.create_async(f"/bare/_c_{uuid4()}-lock-", b"", ephemeral=True, sequence=True)
        if lists:
            client.get_children("/bare")
        client.delete(made.get())

    try:
        yield one
    finally:
        client.stop()
        client.close()


@contextmanager
def dynamodb(port: int) -> Iterator[Round]:
    """boto3: a conditional PutItem and a conditional DeleteItem."""
    import boto3

    client = boto3.client("dynamodb", endpoint_url=f"http://127.0.0.1:{port}", region_name=REGION)
    table = "bare_locks"
    with suppress(client.exceptions.ResourceInUseException):
        client.create_table(
            TableName=table,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": "key", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "key", "KeyType": "HASH"}],
        )
    client.get_waiter("table_exists").wait(TableName=table, WaiterConfig={"Delay": 1})

    def one() -> None:
        owner = {"S": str(uuid4())}
        client.put_item(
            TableName=table, Item={"key": {"S": "lock"}, "owner": owner}, ConditionExpression="attribute_not_exists(#k)",
            ExpressionAttributeNames={"#k": "key"},
        )  # fmt: skip
        client.delete_item(
            TableName=table, Key={"key": {"S": "lock"}}, ConditionExpression="#o = :o",
            ExpressionAttributeNames={"#o": "owner"}, ExpressionAttributeValues={":o": owner},
        )  # fmt: skip

    try:
        yield one
    finally:
        client.close()


@contextmanager
def redis(port: int) -> Iterator[Round]:
    """redis-py: SET NX PX, and the script that deletes the key if it is still ours."""
    from redis import Redis

    with Redis("127.0.0.1", port, protocol=2) as client:
        release = client.register_script(_RELEASE)

        def one() -> None:
            owner = str(uuid4())
            client.set("bare", owner, nx=True, px=LEASE_MS)
            release(["bare"], [owner])

        yield one


@contextmanager
def hive_metastore(port: int) -> Iterator[Round]:
    """thrift: `lock` and `unlock` on one connection."""
    runtime = SystemRuntime()
    wire = Wire.connect(runtime, Address("127.0.0.1", port), HiveMetastoreSettings(), runtime.monotonic_s() + _LONG_S)
    calls = Calls(wire, "binary")

    def one() -> None:
        calls.unlock(calls.lock("bare", "bare", user="bench", host="localhost", agent=str(uuid4())).lock_id)

    try:
        yield one
    finally:
        wire.close()


@contextmanager
def s3(port: int) -> Iterator[Round]:
    """obstore: two conditional puts, as the object must stay for the next one to have a version to compare."""
    import obstore
    from obstore.store import S3Store

    config = cast("S3Config", {**S3_OPTIONS, "endpoint": f"http://127.0.0.1:{port}"})
    store = S3Store("lake", config=config, client_options={"allow_http": True})
    version = [obstore.put(store, "bare", b"{}", mode="overwrite")]

    def one() -> None:
        for state in (b'{"expired":false}', b'{"expired":true}'):
            version[0] = obstore.put(store, "bare", state, mode={"e_tag": version[0]["e_tag"]})

    yield one


@contextmanager
def local(folder: Path, _: int) -> Iterator[Round]:
    """Two conditional puts of lakelock's own local storage: obstore has none on a disk."""
    storage = LocalStorage(folder / "bare")
    version = [storage.put_if_absent("bare", b"{}")]

    def one() -> None:
        for state in (b'{"expired":false}', b'{"expired":true}'):
            version[0] = storage.put_if_match("bare", state, str(version[0]))

    yield one


BARE: dict[str, Callable[[int], AbstractContextManager[Round]]] = {
    "zookeeper": zookeeper,
    "dynamodb": dynamodb,
    "redis": redis,
    "hive_metastore": hive_metastore,
    "s3": s3,
}
"""By service: given its port, one round with its own driver."""

CORRECT: dict[str, Callable[[int], AbstractContextManager[Round]]] = {"zookeeper": partial(zookeeper, lists=True)}
"""The same where the bare client does not learn whether it got the lock: the least that does."""
