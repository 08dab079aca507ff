"""Clients of AWS's services, by boto3. Making one is mostly reading the driver's descriptions, so they are read once."""

from __future__ import annotations

import os
from functools import cache
from typing import Any


@cache
def _descriptions() -> Any:
    """The driver's descriptions of AWS's services, for all clients of this process."""
    import botocore.session

    return botocore.session.get_session().get_component("data_loader")


def aws_client(service: str, *, region: str, endpoint_url: str, config: Any, **more: Any) -> Any:
    """A client of `service`; nothing is contacted yet. `ImportError` without boto3, `BotoCoreError` or `ValueError` if none can
    be made: usually nothing says which region.

    An empty `region` is that of AWS_REGION, as Java and the AWS tools have it (boto3 itself knows only AWS_DEFAULT_REGION), or
    of the profile. An empty `endpoint_url` is the region's. `more` are other arguments of boto3's `client`.
    """
    import boto3
    import botocore.session

    session = botocore.session.get_session()
    session.register_component("data_loader", _descriptions())
    return boto3.session.Session(botocore_session=session).client(
        service,
        region_name=region or os.environ.get("AWS_REGION") or None,
        endpoint_url=endpoint_url or None,
        config=config,
        **more,
    )
