"""The lock's item and table in DynamoDB: the item of the awslabs lock client, its requests, and the URI that names it.

```
key                  S  the partition key: one item per lock
ownerName            S  one name per grant, so that equal names mean the same grant
leaseDuration        S  milliseconds, as text
recordVersionNumber  S  a new UUID with every grant and renewal
isReleased           S  "1" when the lock is free, otherwise absent
```

Java Hudi uses that client, and reads the first four without checking that they exist, so they always do. It ignores
`token`, `tokenLimit`, `writer` and `since`, which are ours, and drops them when it writes; it deletes the item when it
releases. Therefore nothing may depend on finding them: see `lakelock.providers.dynamodb` for the token.

No clock value is stored except `since`, when the holder took the lock by its own clock, and that is only shown. A holder
is dead once a waiter has watched the same recordVersionNumber for a whole lease, by its own monotonic clock, starting
after its first read. The holder's deadline counts from before it wrote that number, so it has passed by then, whatever
any clock shows.

Each request is sent once, and the driver's errors become ours. `lock.options` are those of boto3's client and
of its `Config`, and one of ours. Which item of which table is the lock: from the URI `dynamodb://TABLE/PARTITION-KEY`, or
as Java Hudi derives it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

from lakelock.clock import Runtime
from lakelock.errors import LockError, ProviderRefused, ProviderUnavailable, SettingsError
from lakelock.identity import WriterIdentity
from lakelock.parsing import JsonObject
from lakelock.providers.base import Holder, past_ms
from lakelock.providers.connections import aws_client, path_hash, read_options, sendable, table_name
from lakelock.settings.fields import Section, setting
from lakelock.settings.secrets import masked_uri
from lakelock.storage import Storage

_OURS = dict.fromkeys(("service_name", "config", "retries", "tcp_keepalive", "parameter_validation"), "leave it out")


@dataclass(frozen=True)
class DynamodbOptions(Section):
    """What lakelock reads of them. `client` and `config` are what only boto3 reads; credentials come from its default chain."""

    section: ClassVar[str] = "lock.options"
    region_name: str = setting("", "AWS region; empty means that of the environment or profile, as for the AWS tools")
    endpoint_url: str = setting("", "Endpoint to use instead of the region's, for VPC endpoints and for tests")
    create_table: bool = setting(False, "Create the lock table when it is missing, billed by request")
    connect_timeout: float = setting(2.0, "How long one request waits for a connection", unit="s", at_least=0.05, at_most=60)
    read_timeout: float = setting(3.0, "How long one request waits for its reply", unit="s", at_least=0.05, at_most=60)
    client: Mapping[str, Any] = field(default_factory=dict, repr=False)
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, given: Mapping[str, object]) -> DynamodbOptions:
        """The options; `SettingsError` for one that is unknown, `ProviderRefused` without boto3."""
        try:
            from boto3.session import Session
            from botocore.config import Config
        except ImportError as error:
            raise ProviderRefused(
                "the DynamoDB lock needs boto3, which is not installed", hint="pip install 'lakelock[dynamodb]'"
            ) from error
        own, theirs = read_options(cls, given, "DynamoDB", Session.client, Config.OPTION_DEFAULTS, reserved=_OURS)
        config = {name: value for name, value in theirs.items() if name in Config.OPTION_DEFAULTS}
        return replace(own, client={name: theirs[name] for name in theirs.keys() - config.keys()}, config=config)


Attributes = Mapping[str, Mapping[str, Any]]
"""An item or part of one as DynamoDB's API has it: `{"ownerName": {"S": "..."}}`."""

_MOST_DIGITS = 38
"""The most that DynamoDB's numbers have."""

_DRIFT = 0.01
"""Share of a lease by which a waiter waits longer than the lease: allowance for clocks that run at different rates."""


@dataclass(frozen=True)
class LockItem:
    """The lock item. `token`, `limit` (see `lakelock.providers.dynamodb`) are 0 and `writer` is None after a Java writer."""

    key: str
    owner: str
    version: str
    lease_ms: int
    released: bool = False
    token: int = 0
    limit: int = 0
    writer: WriterIdentity | None = None
    since_ms: int | None = None

    @classmethod
    def parse(cls, item: Attributes) -> LockItem:
        """Read an item; `LockError` for one that no lock client can have written: an unknown state never counts as free."""
        try:
            key, owner, version, lease = (
                item[name]["S"] for name in ("key", "ownerName", "recordVersionNumber", "leaseDuration")
            )
            lease_ms = int(lease)
            if lease_ms <= 0:
                raise ValueError(f"leaseDuration is {lease}")
        except (KeyError, ValueError) as error:
            raise LockError(
                f"the lock item {item.get('key', {}).get('S', '?')} cannot be read as a lock ({error!r})",
                hint="make sure that no writer runs, then delete the item",
            ) from error
        return cls(
            key,
            owner,
            version,
            lease_ms,
            released=item.get("isReleased", {}).get("S") == "1",
            token=_count(item.get("token")),
            limit=_count(item.get("tokenLimit")),
            writer=_writer(item.get("writer")),
            since_ms=past_ms(_count(item.get("since"))),
        )

    @property
    def lease_s(self) -> float:
        return self.lease_ms / 1000

    @property
    def numbered(self) -> bool:
        """Whether the next token can be taken from the item itself."""
        return 0 < self.token < self.limit

    @property
    def holder(self) -> Holder:
        return Holder(self.owner, self.writer, self.token, self.lease_s, since_ms=self.since_ms)


def _count(value: Mapping[str, str] | None) -> int:
    text = (value or {}).get("N", "")
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else 0


def _writer(value: Mapping[str, str] | None) -> WriterIdentity | None:
    try:
        return WriterIdentity.from_dict(JsonObject.parse((value or {}).get("S", "")).fields)
    except ValueError:
        return None


def writer_text(writer: WriterIdentity) -> str:
    """The attribute `writer`: for people, and for `inspect`."""
    return json.dumps(writer.as_dict(), separators=(",", ":"))


@dataclass(frozen=True)
class Sighting:
    """One version of a held item, and since when it is being watched, by our monotonic clock.

    Simpler than that of a lock file: an item has no age of its own, so only the time it was watched counts.
    """

    item: LockItem
    since_s: float

    @classmethod
    def of(cls, item: LockItem, now_s: float, before: Sighting | None) -> Sighting:
        """What is seen at `now_s`, after the reply arrived; the watch continues if `before` shows the same version."""
        if before is not None and before.item.version == item.version and before.item.owner == item.owner:
            return replace(before, item=item)
        return cls(item, now_s)

    @property
    def over_at_s(self) -> float:
        """When the holder may be replaced unless it renews until then."""
        return self.since_s + watch_s(self.item.lease_s)


def watch_s(lease_s: float) -> float:
    """How long a silent holder with this lease is watched before it is replaced."""
    return lease_s * (1 + _DRIFT)


_NAMES = {
    "#key": "key",
    "#on": "ownerName",
    "#ld": "leaseDuration",
    "#rvn": "recordVersionNumber",
    "#ir": "isReleased",
    "#tk": "token",
    "#tl": "tokenLimit",
    "#w": "writer",
    "#si": "since",
}
_NAME = re.compile(r"#\w+")
_AWS = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")
_MOST_SHOWN = 200
_ACTIVE_POLL_S, _CREATE_WAIT_S = 0.5, 600.0
_HURRIED_S = (1.0, 0.5, 0.25)
"""Time-outs of clients for requests that have less time than the settings give them."""
_ABOUT_S = 0.05

_THROTTLED = (
    "ProvisionedThroughputExceededException",
    "ThrottlingException",
    "RequestLimitExceeded",
    "Throttling",
    "LimitExceededException",
)
_SIGNATURE = ("InvalidSignatureException", "SignatureDoesNotMatch", "RequestTimeTooSkewed", "RequestExpired")
_CREDENTIALS = ("UnrecognizedClientException", "InvalidClientTokenId", "ExpiredTokenException", "MissingAuthenticationToken")
_DENIED = ("AccessDeniedException", "AccessDenied")
_MISSING = "ResourceNotFoundException"
_FINAL = (*_SIGNATURE, *_CREDENTIALS, *_DENIED, _MISSING)


class ConditionFailed(Exception):
    """A conditional request was refused. `item` is what stood in its way, where the service tells it."""

    def __init__(self, item: Attributes | None) -> None:
        super().__init__("the condition does not hold")
        self.item = item


class DynamodbTable:
    """One table. Connects at the first request, and again in a forked process; sends no request twice.

    `within_s` is how long an answer is worth waiting for. The driver's time-outs belong to its client, so requests with
    less time than the settings give them have clients of their own; each connects when it is first needed.
    """

    def __init__(self, name: str, options: DynamodbOptions, runtime: Runtime) -> None:
        self.name, self._options, self._runtime = name, options, runtime
        self._clients: dict[float, Any] = {}
        self._pid = os.getpid()

    @property
    def place(self) -> str:
        """Region, and endpoint unless it is one of AWS's own: they tell tables of one name apart."""
        meta = self._client().meta
        address = urlsplit(str(meta.endpoint_url))
        host = address.hostname or ""
        if host.endswith(_AWS):
            return f"region={meta.region_name}"
        return f"region={meta.region_name}&endpoint={host}{f':{address.port}' if address.port else ''}"

    def get(self, key: str, within_s: float = inf) -> Attributes | None:
        """The item as it is now (a strongly consistent read), or None."""
        reply = self._send("get_item", within_s, Key={"key": {"S": key}}, ConsistentRead=True)
        item: Attributes | None = reply.get("Item")
        return item

    def update(self, key: str, expression: str, values: Attributes, when: str = "", within_s: float = inf) -> Attributes:
        """Change one item, created if missing, if `when` holds; the changed attributes. `ConditionFailed` if it does not."""
        used = _NAME.findall(f"{expression} {when}")
        condition = {"ConditionExpression": when} if when else {}
        if when:
            condition["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        reply = self._send(
            "update_item",
            within_s,
            Key={"key": {"S": key}},
            UpdateExpression=expression,
            ExpressionAttributeNames={name: _NAMES[name] for name in used},
            **({"ExpressionAttributeValues": dict(values)} if values else {}),
            ReturnValues="UPDATED_NEW",
            **condition,
        )
        changed: Attributes = reply.get("Attributes", {})
        return changed

    def check(self) -> None:
        """Create the table if it is missing and the settings say so; an error unless it has the keys that the lock needs.

        A user who may not describe the table is not refused: the lock works without that permission.
        """
        try:
            table = self._send("describe_table").get("Table", {})
        except ProviderRefused as error:
            if error.details.get("service_code") in _DENIED:
                return
            raise
        if not {"KeySchema", "AttributeDefinitions"} <= table.keys():
            raise self.not_dynamodb()
        keys = [(key["AttributeName"], key["KeyType"]) for key in table["KeySchema"]]
        types = {one["AttributeName"]: one["AttributeType"] for one in table["AttributeDefinitions"]}
        if keys != [("key", "HASH")] or types["key"] != "S":
            shown = ", ".join(f"{name} {types[name]} ({kind})" for name, kind in keys)
            raise LockError(
                f"the DynamoDB table {self.name} has the primary key {shown}; a lock table has one text attribute named key",
                hint=f"name another table in lock.provider, or create one: {self._how_to_create()}",
            )

    def close(self) -> None:
        """Close the connections of this process; the next request opens new ones."""
        clients, self._clients = self._clients, {}
        if self._pid == os.getpid():
            for client in clients.values():
                client.close()

    def not_dynamodb(self) -> ProviderUnavailable:
        """The error of an answer that cannot be DynamoDB's: that of a proxy, of a page to sign in, of another service."""
        return ProviderUnavailable(
            f"what answered about the DynamoDB table {self.name} ({self.place}) is not DynamoDB",
            hint="check lock.options.endpoint_url, and the proxies between here and there",
        )

    def _send(self, operation: str, within_s: float = inf, **request: Any) -> dict[str, Any]:
        try:
            return self._call(operation, request, within_s)
        except ProviderRefused as error:
            if error.details.get("service_code") != _MISSING or not self._options.create_table:
                raise
        self._create()
        return self._call(operation, request)

    def _call(self, operation: str, request: Mapping[str, Any], within_s: float = inf) -> dict[str, Any]:
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError

        client = self._client(within_s)
        call: Callable[..., dict[str, Any]] = getattr(client, operation)
        try:
            reply = call(TableName=self.name, **request)
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            if code == "ConditionalCheckFailedException":
                raise ConditionFailed(error.response.get("Item")) from None
            raise self._refused(operation, code, error) from error
        except BotoCoreError as error:
            raise self._unreachable(error) from error
        except (ResponseParserError, AttributeError, KeyError, TypeError, ValueError) as error:  # from the driver's parser
            raise self.not_dynamodb() from error
        # The driver takes a page of HTML for an answer without anything in it.
        if "json" not in reply["ResponseMetadata"]["HTTPHeaders"].get("content-type", "json"):
            raise self.not_dynamodb()
        return reply

    def _refused(self, operation: str, code: str, error: Any) -> LockError:
        # AWS's text about a bad signature shows what was signed, so only the code is reported.
        text = "" if code in _SIGNATURE else str(error.response["Error"].get("Message", ""))[:_MOST_SHOWN]
        if code == _MISSING:
            hint = f"create it ({self._how_to_create()}), or let lakelock do it: lock.options.create_table = true"
        elif code in _THROTTLED:
            hint = "raise the table's capacity, or bill it PAY_PER_REQUEST"
        elif code in _DENIED:
            action = "".join(word.title() for word in operation.split("_"))
            hint = f"allow dynamodb:{action} on the table; the lock needs GetItem and UpdateItem, and at start DescribeTable"
        elif code in _CREDENTIALS:
            hint = "check the AWS credentials: `aws sts get-caller-identity` must answer"
        elif code in _SIGNATURE:
            hint = "check the secret key and this machine's clock"
        else:
            hint = "see the AWS service health page; run the operation again"
        operation = operation.replace("_", " ")
        return (ProviderRefused if code in _FINAL else ProviderUnavailable)(
            f"DynamoDB refused to {operation} in table {self.name}: {code}{f' ({text})' if text else ''}",
            hint=hint,
            service_code=code,
        )

    def _unreachable(self, error: Exception) -> LockError:
        kind = type(error).__name__
        there_are_none = kind in ("NoCredentialsError", "PartialCredentialsError")
        if there_are_none or kind in ("CredentialRetrievalError", "TokenRetrievalError"):
            hint = "give credentials by environment, profile (AWS_PROFILE) or role; `aws sts get-caller-identity` shows them"
        else:
            hint = "check the network, lock.options.region_name and lock.options.endpoint_url"
        return (ProviderRefused if there_are_none else ProviderUnavailable)(
            f"DynamoDB gave no answer about table {self.name}: {kind} ({masked_uri(str(error))[:_MOST_SHOWN]})", hint=hint
        )

    def _create(self) -> None:
        """Create the table and wait until it is active; another process may be creating it at the same time."""
        until_s = self._runtime.monotonic_s() + _CREATE_WAIT_S
        try:
            self._call(
                "create_table",
                {
                    "KeySchema": [{"AttributeName": "key", "KeyType": "HASH"}],
                    "AttributeDefinitions": [{"AttributeName": "key", "AttributeType": "S"}],
                    "BillingMode": "PAY_PER_REQUEST",
                },
            )
        except ProviderUnavailable as error:
            if error.details.get("service_code") != "ResourceInUseException":
                raise
        while not self._is_active():
            if self._runtime.monotonic_s() >= until_s:
                raise ProviderUnavailable(
                    f"the DynamoDB table {self.name} is not active {_CREATE_WAIT_S:g} s after its creation",
                    hint="look at it in the AWS console, and run the write again",
                )
            self._runtime.sleep(_ACTIVE_POLL_S)

    def _is_active(self) -> bool:
        """Whether the table that was just created can be used. DescribeTable may not know it yet for some seconds."""
        try:
            return bool(self._call("describe_table", {}).get("Table", {}).get("TableStatus") == "ACTIVE")
        except ProviderRefused as error:
            if error.details.get("service_code") != _MISSING:
                raise
            return False

    def _how_to_create(self) -> str:
        return (
            f"aws dynamodb create-table --table-name {self.name} --billing-mode PAY_PER_REQUEST "
            "--attribute-definitions AttributeName=key,AttributeType=S --key-schema AttributeName=key,KeyType=HASH"
        )

    def _client(self, within_s: float = inf) -> Any:
        """A client of this process whose time-outs fit; a forked child does not share its parent's connections."""
        if self._pid != os.getpid():
            self._clients, self._pid = {}, os.getpid()
        longest_s = inf
        if within_s < max(self._options.connect_timeout, self._options.read_timeout):
            longest_s = next((step_s for step_s in _HURRIED_S if step_s <= within_s + _ABOUT_S), _HURRIED_S[-1])
        if longest_s not in self._clients:
            self._clients[longest_s] = self._connect(longest_s)
        return self._clients[longest_s]

    def _connect(self, longest_s: float) -> Any:
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError

        options = self._options
        # The provider retries, within its bound and knowing what it sent and when; the driver must not.
        config = Config(
            **options.config,
            connect_timeout=min(longest_s, self._options.connect_timeout),
            read_timeout=min(longest_s, self._options.read_timeout),
            retries={"mode": "standard", "total_max_attempts": 1},
            tcp_keepalive=True,
            parameter_validation=False,  # the requests are those of this module, and checking each costs time
        )
        try:
            return aws_client(
                "dynamodb", region=options.region_name, endpoint_url=options.endpoint_url, config=config, **options.client
            )
        except (BotoCoreError, ValueError) as error:
            raise SettingsError(
                f"no connection to DynamoDB can be made: {masked_uri(str(error))}",
                hint="set lock.options.region_name, or AWS_REGION, or a region in the AWS profile",
                key="lock.options.region_name",
            ) from error


_TABLE_NAME = re.compile(r"[A-Za-z0-9_.-]{3,255}")
_LONGEST_KEY = 2000  # bytes; DynamoDB takes 2048, and the counter's key is a little longer
_IMPLICIT = "implicit=true"


def place_of(uri: str, storage: Storage) -> tuple[str, str]:
    """Table name and partition key, or `SettingsError` that never shows what may be a password.

    Without a key in the URI it is the name of the guarded table, as in Java Hudi; with `?implicit=true` it is the hash of its
    path, as in Java's DynamoDBBasedImplicitPartitionKeyLockProvider.
    """
    try:
        parts = urlsplit(sendable(uri))
    except SettingsError:
        raise
    except ValueError:  # an unclosed bracket, or a character that normalises to a slash
        parts = urlsplit("")
    name, key = unquote(parts.netloc), unquote(parts.path.removeprefix("/"))
    implicit = parts.query == _IMPLICIT
    wrong = parts.fragment or (parts.query and not implicit) or (implicit and key) or len(key.encode()) > _LONGEST_KEY
    if wrong or not _TABLE_NAME.fullmatch(name):
        raise SettingsError(
            "lock.provider of a DynamoDB lock is dynamodb://TABLE/PARTITION-KEY and nothing else; a table's name has 3 to 255 "
            f"letters, digits, dots, dashes and underscores, a key at most {_LONGEST_KEY} bytes",
            hint="region and endpoint are lock.options.region_name and endpoint_url; credentials are the environment's",
            key="lock.provider",
        )
    if implicit and storage.uri.startswith("file:"):
        raise SettingsError(
            "lock.provider has implicit=true for a local table, whose path Java spells in several ways that give several locks",
            hint=f"name the partition key that Java's log shows: dynamodb://{name}/PARTITION-KEY",
            key="lock.provider",
        )
    if implicit:
        return name, path_hash(storage.uri)
    key = key or table_name(storage).strip()
    if not key:
        raise SettingsError(
            f"which item of the DynamoDB table {name} is the lock of {storage.uri}?",
            hint=f"name it: lock.provider = dynamodb://{name}/PARTITION-KEY, the same for all writers",
            key="lock.provider",
        )
    return name, key
