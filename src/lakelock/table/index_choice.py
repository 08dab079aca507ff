"""Which index a table's writers use: buckets, one place for each key in the whole table, or none."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakelock.errors import InputError
from lakelock.json_object import JsonObject
from lakelock.near_misses import did_you_mean
from lakelock.table.buckets import FORMAT, INDEX_TYPE, BucketIndex

_KINDS = ("bucket", "global")
_HOW = (
    'write index="bucket:16", or index="global" if a key is in one partition at most; without an index keys are found by key '
    "ranges, bloom filters and key columns, in their partitions"
)


@dataclass(frozen=True)
class GlobalIndex:
    """A key identifies a row in the whole table: an upsert looks into every partition, and a row may move to another one.

    Hudi's `GLOBAL_SIMPLE` with `hoodie.simple.index.update.partition.path=true`, its default.
    """

    def hashing(self, keys: Sequence[str]) -> GlobalIndex:
        """Itself: it hashes nothing."""
        return self

    def as_values(self) -> dict[str, str]:
        """Hudi's keys of this index, as a Java writer has to set them."""
        return {INDEX_TYPE: "GLOBAL_SIMPLE"}

    def to_bytes(self) -> bytes:
        return json.dumps({"format": FORMAT, "kind": "global"}).encode()

    def __str__(self) -> str:
        return "global"


TableIndex = BucketIndex | GlobalIndex


def parsed_index(text: str) -> TableIndex:
    """`global`, `bucket:16`, or `bucket:16:customer,day`; `InputError` for anything else."""
    if not isinstance(text, str):
        raise InputError(f"index is {text!r}, not a text", hint=_HOW)
    given = text.partition(":")[0]
    kind = given.strip().lower()
    if kind not in _KINDS:
        guess = did_you_mean(kind, _KINDS)
        raise InputError(f"index is {text!r}, and {given!r} is no index that lakelock knows{guess}", hint=_HOW)
    if kind == "bucket":
        return BucketIndex.parse(text)
    if text.strip().lower() != "global":
        raise InputError(f"index is {text!r}: a global index takes nothing after its name", hint='write index="global"')
    return GlobalIndex()


def index_from_bytes(data: bytes) -> TableIndex:
    """`ValueError` for bytes that are no record of an index, or that of a later lakelock version."""
    found = JsonObject.parse(data)
    if found.text("kind") != "global":
        return BucketIndex.from_bytes(data)
    if found.integer("format") != FORMAT:
        raise ValueError("a later version wrote it")
    return GlobalIndex()


def stated_index(values: Mapping[str, str], keys: Sequence[str]) -> TableIndex | None:
    """The index that Hudi's own keys describe; None where they describe none that lakelock has, or not a whole one."""
    if values.get(INDEX_TYPE, "").strip().upper() == "GLOBAL_SIMPLE":
        return GlobalIndex()
    return BucketIndex.stated(values, keys)
