"""What every service of data locks promises: requests granted as a whole, first come, first served, as leases.

The leases are of the same kind as those of the commit lock (`lakelock.providers.base.Lease`): owner, growing token, deadline,
loss with a reason. They are kept for a whole write, and renewed meanwhile by `lakelock.providers.renewing`.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from lakelock.clock import Runtime
from lakelock.data_locks.request import LockRequest
from lakelock.errors import InputError, LockError, LockTimeout
from lakelock.identity import WriterIdentity
from lakelock.providers.base import Lease, LeaseService, too_short
from lakelock.texts import command

FIRST_TOKEN = 1
"""The least token of a request: 0 is none."""


@dataclass(frozen=True)
class LockedData:
    """A request as the service shows it, held or waiting. Times are for people: milliseconds, None if not known.

    `writer` is None for anybody but a lakelock writer; `owner` tells what is known. `blocked_by` are the tokens of the requests
    that have to go first.
    """

    token: int
    owner: str
    request: LockRequest
    held: bool
    writer: WriterIdentity | None = None
    lease_s: float | None = None
    since_ms: int | None = None
    acquired_ms: int | None = None
    renewed_ms: int | None = None
    blocked_by: tuple[int, ...] = ()

    def __str__(self) -> str:
        about = f", {self.request.about}" if self.request.about else ""
        return f"{self.writer or self.owner}{about} (token {self.token})"


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


class DataLocks(LeaseService):
    """The shared and exclusive locks of one table. A lease is for all locks of a request."""

    @abstractmethod
    def acquire(self, request: LockRequest, *, wait_s: float | None = None) -> DataLease:
        """Take all locks of the request within `wait_s` seconds (None: as configured), or take none and raise `LockTimeout`.

        Nothing is held while it waits. 0 asks once. A grant whose reply was lost is found again; giving up leaves nothing
        behind. Threads of one writer are different writers to each other.
        """

    def watch_s(self, lease_s: float) -> float:
        """As `LockProvider.watch_s`, for a holder of data locks."""
        return 0.0

    @abstractmethod
    def inspect(self) -> tuple[LockedData, ...]:
        """Who holds and who waits, in order of arrival."""

    def break_lock(self, token: int, *, force: bool = False) -> None:
        """Take the locks of the request with this `token` away, for an operator who knows that its holder is gone.

        Without `force` its lease is watched until it is over, and `LockError` raised as soon as it is renewed. Locks that are
        already gone are no error. `InputError` for a number that is no token.
        """
        if token < FIRST_TOKEN:
            raise InputError(
                f"{token} is not a token of data locks, which count from {FIRST_TOKEN}",
                hint="inspect() tells the tokens; break_all() takes all locks away from everybody",
            )
        self._break(token, force=force)

    @abstractmethod
    def _break(self, token: int, *, force: bool) -> None:
        """As `break_lock` promises."""

    @abstractmethod
    def break_all(self) -> None:
        """Take all locks of the table away from whoever holds or awaits them, also what cannot be read: for an operator.

        Leases are not watched. A holder that is alive finds out when it renews, and its commit is checked in any case.
        """


def timeout(
    table: str, request: LockRequest, blockers: tuple[LockedData, ...], waited_s: float, watch_s: float = 0.0
) -> LockTimeout:
    """The error of a request that was not granted in time; names the holders in its way.

    `watch_s` is how long they have to be watched to tell whether they are dead.
    """
    who = "; ".join(map(str, blockers[:3])) or "somebody who has left since"
    more = f" and {len(blockers) - 3} more" if len(blockers) > 3 else ""
    return LockTimeout(
        f"data locks of {table} ({_short(request)}) are blocked by {who}{more}; gave up after {waited_s:g} s",
        hint=f"`{command('locks', 'ls', table)}` shows who blocks whom; raise data_locks.attempts if they are only slow"
        + too_short(watch_s, waited_s, "data_locks.attempts x data_locks.sleep_s"),
        blocked_by=[blocker.token for blocker in blockers],
        holders=[str(blocker) for blocker in blockers[:20]],
        waited_s=waited_s,
    )


def still_renewed(token: int, writer: WriterIdentity | None) -> LockError:
    """The error for breaking locks whose holder has just shown a sign of life."""
    return LockError(
        f"the data locks with token {token} are held by {writer}, which renewed them just now",
        hint="wait: a dead holder is replaced without your help; to break them anyway, use force",
        token=token,
    )


def _short(request: LockRequest) -> str:
    leaves = request.leaves
    more = f" and {len(leaves) - 3} more" if len(leaves) > 3 else ""
    return ", ".join(map(str, leaves[:3])) + more
