"""The model of data locks: shared and exclusive locks on a table and its partitions, in requests that are granted as a whole.

Hive's model: two modes, where only shared goes with shared, and no intention modes. Instead a lock on a partition is
accompanied by a shared lock on each of its ancestors (the partition prefixes and the table), so an exclusive lock on any
of these keeps all others out below it. Two requests are in each other's way if both lock the same resource and one of
them does so exclusively; there is nothing else to compare.

The leases are of the same kind as those of the commit lock (`lakelock.providers.base.Lease`): owner, growing token,
deadline, loss with a reason. They are kept for a whole write, and renewed meanwhile by `lakelock.providers.renewing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import takewhile

from lakelock.clock import Runtime
from lakelock.identity import WriterIdentity
from lakelock.providers.base import Lease


class Mode(str, Enum):
    """How a resource is locked. The values are Hive's names in SHOW LOCKS."""

    SHARED = "SHARED"
    EXCLUSIVE = "EXCLUSIVE"

    @property
    def short(self) -> str:
        return "S" if self is Mode.SHARED else "X"


@dataclass(frozen=True, order=True)
class Resource:
    """The table (no parts) or a partition or partition prefix of it: `("month=1", "day=2")`, as in the table's paths."""

    parts: tuple[str, ...] = ()

    @classmethod
    def of(cls, path: str) -> Resource:
        """From a partition path, `""` for the table. `ValueError` for a path that no partition can have."""
        parts = tuple(path.split("/")) if path else ()
        if any(part in ("", ".", "..") for part in parts):
            raise ValueError(f"{path!r} is not a partition path")
        return cls(parts)

    @property
    def path(self) -> str:
        return "/".join(self.parts)

    @property
    def ancestors(self) -> tuple[Resource, ...]:
        """From the table down to the parent; empty for the table."""
        return tuple(Resource(self.parts[:depth]) for depth in range(len(self.parts)))

    def __str__(self) -> str:
        return self.path or "the table"


TABLE = Resource()


@dataclass(frozen=True, order=True)
class DataLock:
    """One lock on one resource."""

    resource: Resource
    mode: Mode

    def __str__(self) -> str:
        return f"{self.mode.short} on {self.resource}"


@dataclass(frozen=True)
class LockRequest:
    """All locks of one operation: each resource once, each ancestor with it, in the canonical order (by path, part by part).

    `about` says in a few words what they are for.
    """

    locks: tuple[DataLock, ...]
    about: str = ""

    @property
    def modes(self) -> Mapping[Resource, Mode]:
        return {lock.resource: lock.mode for lock in self.locks}

    @property
    def leaves(self) -> tuple[DataLock, ...]:
        """The locks that were asked for: all but the shared ones that only accompany another."""
        accompanied = {ancestor for lock in self.locks for ancestor in lock.resource.ancestors}
        return tuple(lock for lock in self.locks if lock.mode is Mode.EXCLUSIVE or lock.resource not in accompanied)

    def __str__(self) -> str:
        return ", ".join(map(str, self.locks))


def lock_request(
    shared: Iterable[Resource] = (), exclusive: Iterable[Resource] = (), *, about: str = "", escalate_above: int | None = None
) -> LockRequest:
    """The request for these resources: exclusive wins where one is named twice, and ancestors are shared.

    Resources below an exclusive lock need none. With more than `escalate_above` resources, one exclusive lock on what they
    have in common replaces them, even for a reader: a shared lock on the table does not keep out a writer of a partition.
    """
    modes = dict.fromkeys(shared, Mode.SHARED) | dict.fromkeys(exclusive, Mode.EXCLUSIVE)
    if not modes:
        raise ValueError("a request needs at least one resource")
    covered = {resource for resource in modes if any(modes.get(up) is Mode.EXCLUSIVE for up in resource.ancestors)}
    asked = {resource: mode for resource, mode in modes.items() if resource not in covered}
    if escalate_above is not None and len(asked) > escalate_above:
        asked = {_common(asked): Mode.EXCLUSIVE}
    accompanying = {ancestor: Mode.SHARED for resource in asked for ancestor in resource.ancestors}
    return LockRequest(tuple(DataLock(*each) for each in sorted((accompanying | asked).items())), about)


def _common(resources: Iterable[Resource]) -> Resource:
    """The deepest resource that is or contains each of these."""
    depths = zip(*(resource.parts for resource in resources), strict=False)
    return Resource(tuple(parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, depths)))


def collide(one: LockRequest, other: LockRequest) -> tuple[Resource, ...]:
    """The resources that keep the two apart, in canonical order; empty when both can be granted at once."""
    theirs = other.modes
    return tuple(
        lock.resource
        for lock in one.locks
        if (mode := theirs.get(lock.resource)) is not None and Mode.EXCLUSIVE in (mode, lock.mode)
    )


FIRST_TOKEN = 1
"""The least token of a request: 0 is none."""


@dataclass(frozen=True)
class LockedData:
    """A request, held or waiting. Times are milliseconds, for people. `blocked_by` are the tokens of those that go first."""

    token: int
    request: LockRequest
    held: bool
    writer: WriterIdentity
    lease_s: float
    since_ms: int
    acquired_ms: int | None
    blocked_by: tuple[int, ...]

    def __str__(self) -> str:
        about = f", {self.request.about}" if self.request.about else ""
        return f"{self.writer}{about} (token {self.token})"


class DataLease(Lease):
    """A granted request; all its locks are held until it is released, or lost."""

    def __init__(
        self,
        runtime: Runtime,
        owner: WriterIdentity,
        request: LockRequest,
        *,
        grant: str,
        token: int,
        lease_s: float,
        began_s: float,
    ) -> None:
        super().__init__(runtime, owner, grant=grant, token=token, lease_s=lease_s, began_s=began_s)
        self.request = request
