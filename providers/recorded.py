"""From the identity of a lock, which a table has on record, to the settings that name this lock."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl

from lakelock.providers.registry import provider_name


def settings_of(identity: str) -> Mapping[str, str]:
    """The settings with which a writer takes the lock that has this identity. What a provider accepts as it is stays so."""
    name = provider_name(identity)
    if name == "dynamodb":
        uri, _, place = identity.partition("?")
        found = dict(parse_qsl(place))
        settings = {"lock.provider": uri} | ({"lock.options.region_name": found["region"]} if "region" in found else {})
        return settings | ({"lock.options.endpoint_url": _url(found["endpoint"])} if "endpoint" in found else {})
    if name == "zookeeper":
        # The path is recorded as it is in ZooKeeper, and unquoted when it is read from a setting.
        return {"lock.provider": identity.replace("%", "%25").replace("?", "%3F")}
    return {"lock.provider": identity}


def as_settings(identity: str) -> str:
    """The same for a hint: `lock.provider to "dynamodb://locks/t", lock.options.region_name to "eu-west-1"`."""
    return ", ".join(f'{key} to "{value}"' for key, value in settings_of(identity).items())


def _url(endpoint: str) -> str:
    """An endpoint that is not AWS's own. The record has no scheme; services with a port of their own rarely speak TLS."""
    port = endpoint.rpartition("]")[2].partition(":")[2]
    return f"{'https' if port in ('', '443') else 'http'}://{endpoint}"
