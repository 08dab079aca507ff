"""Which item of which table is the lock: from the URI `dynamodb://TABLE/PARTITION-KEY`, or as Java Hudi derives it."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from lakelock.errors import SettingsError
from lakelock.java_properties import parse_java_properties
from lakelock.providers.uri_text import sendable
from lakelock.storage import Storage
from lakelock.table import layout
from lakelock.xxhash64 import HUDI_SEED, xxhash64

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
    except ValueError:  # a bracket that nobody closes, or a letter that stands for a slash
        parts = urlsplit("")
    name, key = unquote(parts.netloc), unquote(parts.path.removeprefix("/"))
    implicit = parts.query == _IMPLICIT
    wrong = parts.fragment or (parts.query and not implicit) or (implicit and key) or len(key.encode()) > _LONGEST_KEY
    if wrong or not _TABLE_NAME.fullmatch(name):
        raise SettingsError(
            "lock.provider of a DynamoDB lock is dynamodb://TABLE/PARTITION-KEY and nothing else; a table's name has 3 to 255 "
            f"letters, digits, dots, dashes and underscores, a key at most {_LONGEST_KEY} bytes",
            hint="region and endpoint are settings (dynamodb.region, dynamodb.endpoint_url); credentials are the environment's",
            key="lock.provider",
        )
    if implicit and storage.uri.startswith("file:"):
        raise SettingsError(
            "lock.provider has implicit=true for a local table, whose path Java spells in several ways that give several locks",
            hint=f"name the partition key that Java's log shows: dynamodb://{name}/PARTITION-KEY",
            key="lock.provider",
        )
    if implicit:
        return name, f"{xxhash64(storage.uri.encode(), HUDI_SEED):016X}"
    key = key or _name_of(storage)
    if not key:
        raise SettingsError(
            f"which item of the DynamoDB table {name} is the lock of {storage.uri}?",
            hint=f"name it: lock.provider = dynamodb://{name}/PARTITION-KEY, the same for all writers",
            key="lock.provider",
        )
    return name, key


def _name_of(storage: Storage) -> str:
    found = storage.get(layout.PROPERTIES)
    properties = parse_java_properties(found.data, layout.PROPERTIES) if found else {}
    return properties.get("hoodie.table.name", "").strip()
