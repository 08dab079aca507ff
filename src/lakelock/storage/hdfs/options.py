"""How a cluster's name nodes are reached: lakelock's options `storage.*` of an `hdfs:` path, and Hadoop's settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields

from lakelock.errors import SettingsError
from lakelock.near_misses import did_you_mean

Get = Callable[[str], str | None]
"""The value of a Hadoop setting by its name, None where it is not set."""

HTTP_PORT, HTTPS_PORT, RPC_PORT = "9870", "9871", "8020"
"""Hadoop's own defaults. The last is the port of an `hdfs:` URI that names none."""

HA, POLICY = "dfs.ha.namenodes.", "dfs.http.policy"
ADDRESSES = ("dfs.namenode.http-address", "dfs.namenode.https-address", "dfs.namenode.rpc-address")
_LONGEST_WAIT_S = 3_600.0


@dataclass(frozen=True)
class HdfsOptions:
    """The options of one cluster, all of them texts in a user's settings."""

    namenodes: tuple[str, ...]
    """The name nodes' web addresses, such as `http://nn1:9870`: one, or all of a cluster that fails over."""
    user: str = ""
    """Who asks, where the cluster has no Kerberos: it believes any name."""
    delegation_token: str = field(default="", repr=False)
    """A token of the cluster as Hadoop writes it for URLs, for processes that have no Kerberos ticket."""
    ca_certificate: str = ""
    """A file with the certificates to trust, for addresses with https."""
    timeout_s: float = 60.0
    """How long to wait for each answer."""

    @classmethod
    def of(cls, uri: str, options: Mapping[str, str], user: str) -> HdfsOptions:
        """The options for a canonical URI; `SettingsError` for one that HDFS has not, or that is no address or number."""
        known = [each.name for each in fields(cls)]
        for name in options:
            if name not in known:
                raise SettingsError(
                    f"HDFS has no option storage.{name}{did_you_mean(name, known)}",
                    hint="the options are " + ", ".join(f"storage.{each}" for each in known),
                    key=f"storage.{name}",
                )
        listed = options.get("namenodes") or f"http://{authority(uri).partition(':')[0]}:{HTTP_PORT}"
        return cls(
            namenodes=tuple(_address(each.strip()) for each in listed.strip(", ").split(",")),
            user=options.get("user") or user,
            delegation_token=options.get("delegation_token", ""),
            ca_certificate=options.get("ca_certificate", ""),
            timeout_s=_seconds(options.get("timeout_s", "60")),
        )


def authority(uri: str) -> str:
    """The name service, or the name node's host and port, of a canonical URI."""
    return uri.partition("://")[2].partition("/")[0]


def from_hadoop(uri: str, get: Get) -> dict[str, str]:
    """What Hadoop's settings say of the name nodes of a canonical URI; nothing where they do not know them."""
    service = authority(uri)
    secure = (get(POLICY) or "").strip().upper() == "HTTPS_ONLY"
    scheme, port, setting = ("https", HTTPS_PORT, ADDRESSES[1]) if secure else ("http", HTTP_PORT, ADDRESSES[0])

    def address(suffix: str, host: str = "") -> str:
        """The web address of one name node; where it listens on every address, that of its RPC interface or of the URI."""
        found = (get(f"{setting}{suffix}") or "").strip()
        known = ((get(f"{ADDRESSES[2]}{suffix}") or "").strip() or host).partition(":")[0]
        name, _, own_port = found.partition(":")
        name = known if name in ("", "0.0.0.0") else name
        return f"{scheme}://{name}:{own_port or port}" if name and (not host or name == host) else ""

    names = [name.strip() for name in (get(f"{HA}{service}") or "").split(",") if name.strip()]
    if names:
        found = [address(f".{service}.{name}") for name in names]
    else:
        found = [address(f".{service}") or address("", service.partition(":")[0])]
    return {"namenodes": ",".join(filter(None, found))} if any(found) else {}


def _address(text: str) -> str:
    scheme, there, rest = text.rstrip("/").partition("://")
    if not there or scheme.lower() not in ("http", "https") or not rest or "/" in rest or "@" in rest:
        raise SettingsError(
            f"storage.namenodes names {text!r}, which is not the web address of a name node",
            hint="write http://HOST:9870, or several with commas between them: dfs.namenode.http-address in hdfs-site.xml",
            key="storage.namenodes",
        )
    return f"{scheme.lower()}://{rest}"


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _LONGEST_WAIT_S:
        raise SettingsError(
            f"storage.timeout_s is {text!r}, which is not a number of seconds",
            hint=f"write a number up to {_LONGEST_WAIT_S:.0f}",
            key="storage.timeout_s",
        )
    return seconds
