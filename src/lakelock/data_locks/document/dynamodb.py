"""The document of data locks in DynamoDB: an item of its own in the lock table, replaced under a condition.

It is kept compressed: a request for a thousand partitions is then a few KB, and DynamoDB charges each KB that is written.
"""

from __future__ import annotations

import zlib
from urllib.parse import quote

from lakelock.data_locks.document.register import Register, Version
from lakelock.errors import LockError
from lakelock.providers.base import Opening
from lakelock.providers.dynamodb.options import DynamodbOptions
from lakelock.providers.dynamodb.place import place_of
from lakelock.providers.dynamodb.table import ConditionFailed, DynamodbTable

_MOST_BYTES = 390_000
"""DynamoDB takes items of 400 KB. The rest is kept for requests that are already in the table: their renewals must not fail."""
_RENEWAL_BYTES = 200
"""By how much a document may grow without a new request in it."""
_LONGEST = 1 << 26


class DynamodbRegister(Register):
    """One item; its version is a new UUID with every write."""

    def __init__(self, opening: Opening) -> None:
        name, key = place_of(opening.uri, opening.storage)
        self._key = f"{key}#lakelock-data"
        options, self._runtime = DynamodbOptions.of(opening.settings.lock_options), opening.runtime
        self._table = DynamodbTable(name, options, opening.runtime)

    @property
    def identity(self) -> str:
        return f"dynamodb://{self._table.name}/{quote(self._key)}?{self._table.place}"

    def read(self) -> Version | None:
        item = self._table.get(self._key)
        if item is None or "documentVersion" not in item:
            return None
        return Version(_unpacked(bytes(item.get("document", {}).get("B", b""))), str(item["documentVersion"].get("S")))

    def swap(self, data: bytes, before: Version | None) -> Version | None:
        new, packed = Version(data, self._runtime.uuid()), zlib.compress(data)
        if len(packed) > _MOST_BYTES and len(data) > len(before.data if before else b"") + _RENEWAL_BYTES:
            raise LockError(
                f"the data locks of this table would take {len(packed)} bytes, and a DynamoDB item takes 400 KB",
                hint="lower data_locks.escalate_above, so that a request for many partitions becomes one lock on their parent",
            )
        values: dict[str, dict[str, str | bytes]] = {":new": {"S": new.tag}, ":data": {"B": packed}}
        when = "attribute_not_exists(#dv)"
        if before is not None:
            when, values[":seen"] = "#dv = :seen", {"S": before.tag}
        try:
            self._table.update(self._key, "SET #dv = :new, #dd = :data", values, when, returning=False)
        except ConditionFailed:
            return None
        return new

    def close(self) -> None:
        self._table.close()


def _unpacked(data: bytes) -> bytes:
    """The document; bytes that are not one are returned unchanged, and the reader then finds them broken."""
    try:
        return zlib.decompressobj().decompress(data, _LONGEST)
    except zlib.error:
        return data
