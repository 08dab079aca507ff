"""What Hadoop, by which Spark reads data files, must know of a store: settings, default file system, connector.

Two clients reach a table: obstore, for lakelock, and Hadoop's connector. Both get the same credentials, endpoint, region
and style. For endpoint, region and credentials, each as a whole, lakelock's own options (`storage.*`) go first, then
Hadoop's settings `fs.*` (those of the bucket first), then what a client finds by itself (environment variables, the
machine's role).

Some paths leave something to Hadoop's setting `fs.defaultFS`: their file system, or the name node of `hdfs:///data/t`.
Which connector Spark needs depends on the store and the release of Hadoop.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from lakelock.errors import SettingsError
from lakelock.storage.hdfs_cluster import ADDRESSES, HA, POLICY, Get, from_hadoop
from lakelock.storage.location import canonical_uri

SETTING = "fs.defaultFS"

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_NO_NAME_NODE = re.compile(r"hdfs:(?://)?(/(?!/).*)", re.IGNORECASE | re.DOTALL)

AnyPath = TypeVar("AnyPath", bound="str | os.PathLike[str]")


def with_name_node(path: str, get: Get) -> str:
    """`hdfs:///data/t` with the name node or name service of `fs.defaultFS`; any other path, or without such one, as it is."""
    match = _NO_NAME_NODE.fullmatch(path.strip())
    default = _default(get) if match else ""
    return f"{default}{match[1]}" if match and default.lower().startswith("hdfs://") else path


def as_spark_reads(path: AnyPath, get: Get) -> AnyPath | str:
    """The path in full, as Spark's readers take it: one without a scheme is in `fs.defaultFS`, wherever that is.

    A `pathlib.Path`, and a path that starts with `~/`, is on this machine. `SettingsError` for a relative path in a default
    file system elsewhere, and for a file system that lakelock does not have.
    """
    if not isinstance(path, str):
        return path
    text = path.strip()
    if _SCHEME.match(text):
        return with_name_node(text, get)
    default = _default(get)
    if not text or text.startswith("~/") or default.partition(":")[0].lower() in ("", "file"):
        return path
    where = f"{text!r} has no scheme, so it is in Spark's default file system, {default} ({SETTING})"
    hint = f"write {default}/..., or file:///... for a folder of this machine"
    if not text.startswith("/"):
        raise SettingsError(f"{where}, and it is not absolute", hint=hint)
    try:
        canonical_uri(f"{default}{text}")
    except SettingsError as error:
        hint = "name it by a file system that lakelock has, such as hdfs://CLUSTER/..., or write file:///... for this machine"
        raise SettingsError(f"{where}: {error.message}", hint=hint) from error
    return f"{default}{text}"


def _default(get: Get) -> str:
    return (get(SETTING) or "").strip().rstrip("/")


_ANONYMOUS = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
_S3_SAME = {"endpoint_url": "endpoint", "endpoint_url_s3": "endpoint", "default_region": "region", "token": "session_token"}
_S3_PAIRS = {
    "access_key_id": "access.key",
    "secret_access_key": "secret.key",
    "session_token": "session.token",
    "region": "endpoint.region",
}
S3_SETTINGS = (*_S3_PAIRS.values(), "endpoint", "aws.credentials.provider", "connection.ssl.enabled")
"""Hadoop's settings of S3 that both clients have, after `fs.s3a.` or `fs.s3a.bucket.NAME.`."""
S3A, OF_BUCKET = "fs.s3a.", "fs.s3a.bucket."
PREFIXES = (OF_BUCKET, HA, *ADDRESSES)
"""What the names of settings begin with that have the name of a bucket or of a name node in them."""
_GROUPS = (("access_key_id", "secret_access_key", "session_token", "skip_signature"), ("endpoint", "allow_http"), ("region",))
_ENVIRONMENT = ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")
_S3_CENTRAL = "s3.amazonaws.com"

_GS_KEYFILES = ("fs.gs.auth.service.account.json.keyfile", "google.cloud.auth.service.account.json.keyfile")
_AZURE_KEY, _AZURE_SAS = "fs.azure.account.key", "fs.azure.sas.fixed.token"


@dataclass(frozen=True)
class Mismatch:
    """A value that the two clients would not share: the name that each has for it. The values may be secrets."""

    option: str
    setting: str


def completed(uri: str, options: Mapping[str, str], get: Get) -> dict[str, str]:
    """`options`, and Hadoop's settings for the storage of a canonical URI where these options say nothing."""
    theirs = _from_hadoop(uri, get)
    if uri.startswith("s3://"):
        given = {_plain(name) for name in options}
        taken = {name for group in _GROUPS if given.intersection(group) for name in group}
    else:
        taken = set(theirs) if any("key" in name or "service_account" in name for name in options) else set()
    return {**{name: value for name, value in theirs.items() if name not in taken}, **options}


def settings_for_hadoop(uri: str, options: Mapping[str, str]) -> dict[str, str]:
    """The Hadoop settings by which its client does what these options say, for this bucket or account only."""
    if not uri.startswith("s3://"):
        return _azure_settings(uri, options) if uri.startswith("abfs://") else {}
    given = {_plain(name): value for name, value in options.items()}
    found = {setting: given[option] for option, setting in _S3_PAIRS.items() if given.get(option)}
    if endpoint := given.get("endpoint"):
        found["endpoint"] = endpoint
        found["connection.ssl.enabled"] = str(not endpoint.startswith("http://")).lower()
        found["path.style.access"] = str(given.get("virtual_hosted_style_request", "").lower() != "true").lower()
    if given.get("skip_signature", "").lower() == "true":
        found["aws.credentials.provider"] = _ANONYMOUS
    bucket = _bucket(uri)
    return {f"{OF_BUCKET}{bucket}.{name}": value for name, value in found.items()}


def from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The endpoint and the region of S3 in AWS's variables, which obstore reads by itself and Hadoop's client does not."""
    found: dict[str, str] = {}
    for name in _ENVIRONMENT:
        if environ.get(name):
            found[_plain(name)] = environ[name]
    return found


def mismatches(uri: str, options: Mapping[str, str], get: Get) -> list[Mismatch]:
    """What `options` and Hadoop's settings both say, and differently. Name nodes may have several addresses."""
    theirs = _from_hadoop(uri, get) if not uri.startswith("hdfs://") else {}
    given = {_plain(name) if uri.startswith("s3://") else name: (name, value) for name, value in options.items()}
    return [
        Mismatch(given[name][0], _setting_of(uri, name, get))
        for name, value in theirs.items()
        if name in given and given[name][1].rstrip("/") != value.rstrip("/") and name != "allow_http"
    ]


def names_of_settings(found: Iterable[str]) -> list[str]:
    """Every Hadoop setting that says where a table is and how it is reached, given those that begin with one of `PREFIXES`."""
    return [SETTING, *(f"{S3A}{name}" for name in S3_SETTINGS), *_GS_KEYFILES, POLICY, *found]


def _from_hadoop(uri: str, get: Get) -> dict[str, str]:
    scheme = uri.partition("://")[0]
    if scheme == "s3":
        return _from_s3a(_bucket(uri), get)
    if scheme == "gs":
        keyfile = next((found for name in _GS_KEYFILES if (found := get(name))), None)
        return {"service_account": keyfile} if keyfile else {}
    if scheme == "hdfs":
        return from_hadoop(uri, get)
    return _from_azure(uri, get) if scheme == "abfs" else {}


def _from_s3a(bucket: str, get: Get) -> dict[str, str]:
    def value(name: str) -> str:
        return (get(f"{OF_BUCKET}{bucket}.{name}") or get(f"{S3A}{name}") or "").strip()

    found = {option: value(setting) for option, setting in _S3_PAIRS.items() if value(setting)}
    if not ("access_key_id" in found and "secret_access_key" in found):
        found = {"region": found["region"]} if "region" in found else {}
        if "Anonymous" in value("aws.credentials.provider"):
            found["skip_signature"] = "true"
    endpoint = value("endpoint").rstrip("/")
    if endpoint and endpoint != _S3_CENTRAL:
        plain = value("connection.ssl.enabled").lower() == "false"
        found["endpoint"] = endpoint if "://" in endpoint else f"{'http' if plain else 'https'}://{endpoint}"
        if found["endpoint"].startswith("http://"):
            found["allow_http"] = "true"
    return found


def _from_azure(uri: str, get: Get) -> dict[str, str]:
    host = _bucket(uri).partition("@")[2]
    if key := get(f"{_AZURE_KEY}.{host}") or get(_AZURE_KEY):
        return {"account_key": key}
    if token := get(f"{_AZURE_SAS}.{host}") or get(_AZURE_SAS):
        return {"sas_key": token}
    return {}


def _azure_settings(uri: str, options: Mapping[str, str]) -> dict[str, str]:
    host = _bucket(uri).partition("@")[2]
    key = options.get("account_key") or options.get("azure_storage_account_key")
    return {f"{_AZURE_KEY}.{host}": key} if key and host else {}


def _setting_of(uri: str, option: str, get: Get) -> str:
    name = _S3_PAIRS.get(option, option)
    own = f"{OF_BUCKET}{_bucket(uri)}.{name}"
    if not uri.startswith("s3://"):
        return {"service_account": _GS_KEYFILES[0], "account_key": _AZURE_KEY, "sas_key": _AZURE_SAS}.get(option, option)
    return own if get(own) else f"{S3A}{name}"


def _bucket(uri: str) -> str:
    return uri.partition("://")[2].partition("/")[0]


def _plain(option: str) -> str:
    """An option of S3 without the prefix and the synonyms that obstore allows."""
    name = option.lower().removeprefix("aws_")
    return _S3_SAME.get(name, name)


def release(version: str) -> tuple[int, ...]:
    """`2.3.0.dev1` as (2, 3), and `3.5-vendor` as (3, 5): the first two numbers, 0 for a part that has none."""
    return tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in version.split(".")[:2])


HADOOP_WITH_GOOGLES_STORAGE = (3, 5)
"""The first release with a connector of its own for `gs:`. By the defaults of this one Google's does not start."""


@dataclass(frozen=True)
class Connector:
    """What a session needs to reach one kind of store: a jar, named as Maven does, and settings.

    `coordinates` end with the release of the jar, or with `VERSION` where that of Hadoop is not known.
    """

    coordinates: str
    settings: str

    @property
    def jar(self) -> str:
        """How the name of its jar begins."""
        return self.coordinates.split(":")[1]

    def is_among(self, jars: Iterable[str]) -> bool:
        return any(name.startswith(f"{self.jar}-") for name in jars)


_AZURE_CONNECTOR = ("hadoop-azure", "set the credentials in spark.hadoop.fs.azure.account.*")
_CONNECTORS_OF_HADOOP = {
    "s3": (
        "hadoop-aws",
        "where the keys are not in the environment, or the service is not AWS, set spark.hadoop.fs.s3a.access.key, "
        "...secret.key, ...endpoint and ...path.style.access",
    ),
    "gs": ("hadoop-gcp", "set the credentials in spark.hadoop.fs.gs.auth.*"),
    "abfs": _AZURE_CONNECTOR,
    "az": _AZURE_CONNECTOR,
}
_CONNECTOR_OF_GOOGLE = Connector(
    "com.google.cloud.bigdataoss:gcs-connector:hadoop3-2.2.26",
    "set spark.hadoop.fs.gs.impl=com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem and the credentials in "
    "spark.hadoop.fs.gs.auth.*",
)


def connector(scheme: str, hadoop: str, jars: Iterable[str] = ()) -> Connector | None:
    """The connector for tables of that scheme; None for those that Spark reaches without one.

    `scheme` is that of the table's canonical URI, `hadoop` the release that Spark runs on, empty where it is not known, and
    `jars` the names of those that Spark has: with Google's own connector among them it needs no other.
    """
    if scheme not in _CONNECTORS_OF_HADOOP:
        return None
    if scheme == "gs" and hadoop and (release(hadoop) < HADOOP_WITH_GOOGLES_STORAGE or _CONNECTOR_OF_GOOGLE.is_among(jars)):
        return _CONNECTOR_OF_GOOGLE
    artifact, settings = _CONNECTORS_OF_HADOOP[scheme]
    return Connector(f"org.apache.hadoop:{artifact}:{hadoop or 'VERSION'}", settings)
