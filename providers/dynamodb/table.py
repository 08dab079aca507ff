"""The few requests that the lock makes to its DynamoDB table, each sent once; the driver's errors in our terms."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from math import inf
from typing import Any
from urllib.parse import urlsplit

from lakelock.clock import Runtime
from lakelock.errors import LockError, ProviderRefused, ProviderUnavailable, SettingsError
from lakelock.providers.aws import aws_client
from lakelock.providers.dynamodb.item import Attributes
from lakelock.providers.dynamodb.options import DynamodbOptions
from lakelock.settings.secrets import masked_uri

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
    "#dv": "documentVersion",
    "#dd": "document",
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

    def update(
        self,
        key: str,
        expression: str,
        values: Attributes,
        when: str = "",
        within_s: float = inf,
        *,
        returning: bool = True,
    ) -> Attributes:
        """Change one item, created if missing, if `when` holds; the changed attributes. `ConditionFailed` if it does not.

        Without `returning` the answer has no attributes, whatever happens: for an item that is large.
        """
        used = _NAME.findall(f"{expression} {when}")
        condition = {"ConditionExpression": when} if when else {}
        if when and returning:
            condition["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        reply = self._send(
            "update_item",
            within_s,
            Key={"key": {"S": key}},
            UpdateExpression=expression,
            ExpressionAttributeNames={name: _NAMES[name] for name in used},
            **({"ExpressionAttributeValues": dict(values)} if values else {}),
            ReturnValues="UPDATED_NEW" if returning else "NONE",
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
            raise self.stranger()
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

    def stranger(self) -> ProviderUnavailable:
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
            raise self.stranger() from error
        # The driver takes a page of HTML for an answer without anything in it.
        if "json" not in reply["ResponseMetadata"]["HTTPHeaders"].get("content-type", "json"):
            raise self.stranger()
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
        """Create the table and wait until it is active; somebody else may be creating it at the same time."""
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
