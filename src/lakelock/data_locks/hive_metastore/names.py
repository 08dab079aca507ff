"""The names of data locks in a metastore, chosen so that two of them overlap only if they are for the same resource.

In Hive a lock on a table overlaps all its partitions, which Hive's older model, ours, does not want. Therefore all data
locks of a table are partitions of one name that no table has, that of the table itself too. The names are lower-case and of
few characters: a metastore may build SQL from them, compare them without regard to case, or rewrite them as
`key=value`. A request for few locks can be read one by one in Hive's SHOW LOCKS; many share rows, for speed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence

from lakelock.data_locks.request import LockRequest, Mode, Resource
from lakelock.providers.hive_metastore.place import LONGEST_NAME, OWN_DATABASE, Place
from lakelock.providers.hive_metastore.thrift_calls import EXCLUSIVE, SHARED_READ, Part

LONGEST_ROW = 700
"""Characters of a row; the column has 767."""

FEW = 8
"""Up to this many locks have a row each."""

_PREFIX = "path="
_CUT = "~~"
"""Stands before the hash of a name that is too long; `~` is followed by a hexadecimal digit anywhere else."""

_DIGEST = 32
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_.-")
_ESCAPED = re.compile(r"\+([a-z])|\$|~([0-9a-f]{2})")
_HALF = re.compile(r"(\+|~[0-9a-f]?)$")


def data_place(place: Place) -> Place:
    """Where the data locks go with the commit lock at `place`: apart from all locks of Java Hudi and of Hive."""
    return Place(place.addresses, OWN_DATABASE, _bounded("data" + _joined((place.database, place.table)), LONGEST_NAME))


def name_of(resource: Resource) -> str:
    """`month=1/day=Mon` as `@month$1@day$+mon`; a name that is too long ends with its hash."""
    return _bounded(_joined(resource.parts) or "@", LONGEST_ROW - len(_PREFIX))


def resource_of(name: str) -> Resource:
    """The resource of this name, as much as is left of a name that was cut; any other text unchanged."""
    whole, _, digest = name.partition(_CUT)
    if digest:
        whole = _HALF.sub("", whole) + "..." + digest
    return Resource(tuple(_decoded(part) for part in whole.removeprefix("@").split("@")) if whole != "@" else ())


def parts_of(request: LockRequest) -> list[Part]:
    """The rows of a request."""
    few = len(request.locks) <= FEW
    rows: list[Part] = []
    for mode, kind in ((Mode.SHARED, SHARED_READ), (Mode.EXCLUSIVE, EXCLUSIVE)):
        names = [name_of(lock.resource) for lock in request.locks if lock.mode is mode]
        rows += ((kind, _PREFIX + ",".join(row)) for row in ([[name] for name in names] if few else _packed(names)))
    return rows


def names_in(partition: str) -> list[str]:
    """The names of the resources in a row."""
    return partition.removeprefix(_PREFIX).split(",")


def _packed(names: Sequence[str]) -> Iterator[list[str]]:
    row: list[str] = []
    for name in names:
        if row and len(_PREFIX) + sum(map(len, row)) + len(row) + len(name) > LONGEST_ROW:
            yield row
            row = []
        row.append(name)
    if row:
        yield row


def _joined(parts: Sequence[str]) -> str:
    return "".join(f"@{_encoded(part)}" for part in parts)


def _bounded(name: str, longest: int) -> str:
    if len(name) <= longest:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST]
    return name[: longest - len(_CUT) - _DIGEST] + _CUT + digest


def _encoded(part: str) -> str:
    return "".join(_letter(byte) for byte in part.encode("utf-8", "surrogatepass"))


def _letter(byte: int) -> str:
    character = chr(byte)
    if byte in _PLAIN:
        return character
    if character == "=":
        return "$"
    return f"+{character.lower()}" if "A" <= character <= "Z" else f"~{byte:02x}"


def _decoded(text: str) -> str:
    def byte(found: re.Match[str]) -> str:
        upper, code = found.groups()
        return upper.upper() if upper else chr(int(code, 16)) if code else "="

    # Plain letters are single bytes too, so the whole text goes through the bytes that it stands for.
    return _ESCAPED.sub(byte, text).encode("latin-1", "replace").decode("utf-8", "replace")
