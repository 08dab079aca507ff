"""The index of a table: Hudi's simple bucket index, one place for each key in the whole table (global), or none.

With buckets, the key tells every row's file group: a partition has at most one file group for each bucket, and its file
id begins with the bucket's number (Hudi 1.2, `BucketIdentifier`). So an upsert looks up nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakelock.errors import InputError
from lakelock.parsing import JsonObject
from lakelock.table.layout import FileGroupId
from lakelock.texts import did_you_mean

INDEX_TYPE = "hoodie.index.type"
ENGINE = "hoodie.index.bucket.engine"
NUM_BUCKETS = "hoodie.bucket.index.num.buckets"
HASH_FIELD = "hoodie.bucket.index.hash.field"
EXPRESSIONS = "hoodie.bucket.index.partition.expressions"
BUCKET_KEYS = (INDEX_TYPE, ENGINE, "hoodie.bucket.index.")
MOST_BUCKETS = 1_000_000
FORMAT = 1
_DIGITS = 8
_HOW_BUCKETS = 'write it as index="bucket:16", or with the key columns to hash: index="bucket:16:customer"'


@dataclass(frozen=True)
class BucketIndex:
    """`count` buckets in each partition. `fields` are the key columns that are hashed; none given means all of them."""

    count: int
    fields: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> BucketIndex:
        """Of `bucket:16`, or `bucket:16:customer,day`; `InputError` for a number of buckets that cannot be."""
        number, _, fields = text.partition(":")[2].partition(":")
        number = number.strip()
        if not (number.isascii() and number.isdigit() and 1 <= int(number[:9]) <= MOST_BUCKETS and len(number) < 9):
            raise InputError(f"index is {text!r}: the number of buckets must be from 1 to {MOST_BUCKETS:,}", hint=_HOW_BUCKETS)
        return cls(int(number), tuple(name.strip() for name in fields.split(",") if name.strip()))

    def hashing(self, keys: Sequence[str]) -> BucketIndex:
        """This index of a table with these key columns; `InputError` if it hashes another column.

        The order of the columns does not matter: Java hashes them in the order in which the key has them.
        """
        for name in self.fields:
            if name not in keys:
                hint = f"hash key columns only: {', '.join(keys)}; a row's bucket must follow from its key"
                raise InputError(f"the index hashes {name!r}, which is no key column{did_you_mean(name, keys)}", hint=hint)
        return BucketIndex(self.count, tuple(name for name in keys if name in self.fields or not self.fields))

    @classmethod
    def stated(cls, values: Mapping[str, str], keys: Sequence[str]) -> BucketIndex | None:
        """The index that Hudi's own keys describe; None where they describe none, or not a whole one."""
        if values.get(INDEX_TYPE, "").strip().upper() != "BUCKET":
            return None
        fields = values.get(HASH_FIELD, "").strip()
        try:
            return cls.parse(f"bucket:{values.get(NUM_BUCKETS, '')}:{fields}").hashing(keys)
        except InputError:
            return None

    def as_values(self) -> dict[str, str]:
        """Hudi's keys of this index, as a Java writer has to set them."""
        return {
            INDEX_TYPE: "BUCKET",
            ENGINE: "SIMPLE",
            NUM_BUCKETS: str(self.count),
            HASH_FIELD: ",".join(self.fields),
        }

    def to_bytes(self) -> bytes:
        fields = {"format": FORMAT, "kind": "bucket", "buckets": self.count, "fields": list(self.fields)}
        return json.dumps(fields, ensure_ascii=False).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> BucketIndex:
        """The recorded index; `ValueError` for bytes that are not a record of an index, or are of a later lakelock version."""
        found = JsonObject.parse(data)
        if found.integer("format") != FORMAT or found.text("kind") != "bucket":
            raise ValueError("a later version wrote it")
        fields = found.items("fields")
        if not all(isinstance(name, str) for name in fields):
            raise ValueError("fields has something else than names")
        return cls(found.integer("buckets", at_least=1), tuple(fields))

    def __str__(self) -> str:
        return f"bucket:{self.count}:{','.join(self.fields)}" if self.fields else f"bucket:{self.count}"


def bucket_name(bucket: int) -> str:
    """How the file ids of a bucket begin."""
    return f"{bucket:0{_DIGITS}d}"


def file_id_without_bucket(uuid: str) -> str:
    """A random id that cannot be mistaken for a bucket: one in forty thousand could, and a table may have a single file."""
    return f"f{uuid[1:]}" if uuid.startswith("000") and bucket_of(uuid) is not None else uuid


def new_file_id(bucket: int, partition: str, instant: str) -> str:
    """The file id of a new file group for a bucket, in Hudi's form: the number in place of the first part of a UUID.

    All attempts of a task of one transaction give the same one, so that a file of an attempt that was given up is never a
    second file group of the bucket. Another transaction gives another, for a file group that was replaced never comes back.
    """
    digits = hashlib.sha256(f"{instant}/{partition}/{bucket}".encode()).hexdigest()
    return f"{bucket_name(bucket)}-{digits[:4]}-{digits[4:8]}-{digits[8:12]}-{digits[12:24]}-0"


def bucket_of(file_id: str) -> int | None:
    """The bucket that a file id names, None for one that does not begin with a number."""
    name = file_id[:_DIGITS]
    return int(name) if len(name) == _DIGITS and name.isascii() and name.isdigit() else None


def bucket_group(partition: str, bucket: int) -> FileGroupId:
    """The name under which a writer claims the file group of a bucket before it has a file id."""
    return FileGroupId(partition, bucket_name(bucket))


def bucket_of_group(group: FileGroupId) -> FileGroupId:
    """The same name for a file group that has a file id."""
    return FileGroupId(group.partition, group.file_id[:_DIGITS])


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
    """The recorded index; `ValueError` for bytes that are not a record of an index, or are of a later lakelock version."""
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
