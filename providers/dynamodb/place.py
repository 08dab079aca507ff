"""Which item of which table is the lock: from the URI `dynamodb://TABLE/PARTITION-KEY`, or as Java Hudi derives it."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from lakelock.errors import SettingsError
from lakelock.providers.java_names import path_hash, table_name
from lakelock.providers.uri_text import sendable
from lakelock.storage import Storage

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
