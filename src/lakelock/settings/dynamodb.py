"""Settings of the DynamoDB lock. Table and item are in the URI: `dynamodb://TABLE/PARTITION-KEY`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from lakelock.settings.fields import Section, setting


@dataclass(frozen=True)
class DynamodbSettings(Section):
    """The DynamoDB table with the lock. Credentials come from the default chain: environment, profile, role."""

    section: ClassVar[str] = "dynamodb"
    region: str = setting("", "AWS region; empty means that of the environment or profile, as for the AWS tools")
    endpoint_url: str = setting("", "Endpoint to use instead of the region's, for VPC endpoints and for tests")
    create_table: bool = setting(False, "Create the lock table when it is missing")
    billing_mode: Literal["PAY_PER_REQUEST", "PROVISIONED"] = setting(
        "PAY_PER_REQUEST", "Billing mode of a table that is created here"
    )
    read_capacity: int = setting(20, "Read capacity of a PROVISIONED table that is created here", at_least=1, at_most=40_000)
    write_capacity: int = setting(10, "Write capacity of a PROVISIONED table that is created here", at_least=1, at_most=40_000)
    create_wait_s: float = setting(
        600.0, "How long to wait for a new table to become active", unit="s", at_least=1, at_most=86_400
    )
    connect_timeout_s: float = setting(2.0, "How long one request waits for a connection", unit="s", at_least=0.05, at_most=60)
    read_timeout_s: float = setting(3.0, "How long one request waits for its reply", unit="s", at_least=0.05, at_most=60)
