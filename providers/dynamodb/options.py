"""`lock.options` of DynamoDB: those of boto3's client and of its `Config`, and one of ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from lakelock.errors import ProviderRefused
from lakelock.providers.driver_options import read_options
from lakelock.settings.fields import Section, setting

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
