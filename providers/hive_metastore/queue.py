"""The requests for one lock in the metastore: who made each of them, and whose maker is dead.

The metastore keeps a user, a host and 128 characters of "agent info" with a request. Ours say which grant it is, so that a
request whose reply was lost is found again, and how long its maker may be silent, so that the next one in the queue need not
wait for the metastore's own time-out (five minutes by default). Requests of others are never judged here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from lakelock.identity import WriterIdentity
from lakelock.providers.base import DRIFT_MARGIN_S, Holder, past_ms
from lakelock.providers.hive_metastore.thrift_calls import ACQUIRED, LockRow

LONGEST_TEXT = 128
_MARK = "lakelock1"
_LONGEST_APPLICATION = 24
"""The length where room is needed for what a request is about."""

_UNSAFE = re.compile(r"[^A-Za-z0-9_.@ -]")


@dataclass(frozen=True)
class Agent:
    """What a request of ours says about itself: `mark;grant;writer;lease;pid;application`, of data locks also `;about`."""

    grant: str
    writer_id: str
    lease_s: float
    pid: int
    application: str
    about: str = ""

    @classmethod
    def by(cls, writer: WriterIdentity, grant: str, lease_s: float, about: str = "") -> Agent:
        return cls(grant, writer.writer_id, lease_s, writer.pid, writer.application, about)

    @property
    def text(self) -> str:
        """The agent info; the metastore builds SQL from it, so anything unusual becomes a dash."""
        ids = f"{_short(self.grant)};{_short(self.writer_id)};{round(self.lease_s * 1000)};{self.pid}"
        application = plain(self.application)
        texts = f"{application[:_LONGEST_APPLICATION]};{plain(self.about)}" if self.about else application
        return f"{_MARK};{ids};{texts}"[:LONGEST_TEXT]

    @classmethod
    def of(cls, text: str) -> Agent | None:
        """Read what `text` wrote; None for anything else."""
        parts = text.split(";")
        if len(parts) not in (6, 7) or parts[0] != _MARK or not parts[3].isdecimal() or not parts[4].isdecimal():
            return None
        return cls(_long(parts[1]), _long(parts[2]), int(parts[3]) / 1000, int(parts[4]), *parts[5:])


def plain(text: str) -> str:
    """`text` as a metastore can keep it in SQL that it builds itself."""
    return _UNSAFE.sub("-", text)[:LONGEST_TEXT]


def holder_of(row: LockRow) -> Holder:
    """Who made a request, for people."""
    agent = Agent.of(row.agent)
    renewed_ms, since_ms = row.heartbeat_ms or None, past_ms(row.acquired_ms) if row.state == ACQUIRED else None
    if agent is None:
        owner = f"{row.user}@{row.host}, lock {row.lock_id}" + (f", {row.agent}" if row.agent else "")
        return Holder(owner, None, row.lock_id, None, renewed_ms, since_ms)
    writer = WriterIdentity(agent.writer_id, agent.application, row.host, agent.pid, row.user)
    return Holder(agent.grant, writer, row.lock_id, agent.lease_s, renewed_ms, since_ms)


def is_of(row: LockRow, grant: str) -> bool:
    """Whether a request was made for `grant`."""
    agent = Agent.of(row.agent)
    return agent is not None and agent.grant == grant


def holding(rows: Sequence[LockRow]) -> LockRow | None:
    """The request that is granted; of several (readers of Hive share a lock) the first."""
    return next((row for row in rows if row.state == ACQUIRED), None)


def watch_s(lease_s: float) -> float:
    """How long a live maker of a request with this lease may leave its heartbeat as it is, and somewhat more."""
    return lease_s / 3 + DRIFT_MARGIN_S


class Watch:
    """Finds requests ahead of mine whose makers are dead, comparing no two machines' clocks.

    A request is dead when both hold: I have seen its heartbeat unchanged for a third of its lease, within which a live
    maker renews; and that heartbeat is older than its lease, either by the database's clock (against the heartbeat of my own
    request, just made) or because I have watched it that long. The rule is that of the lock file next to the table: there, one
    holder is watched, here a whole queue.
    """

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, float]] = {}

    def dead(self, rows: Sequence[LockRow], mine: int, now_s: float) -> list[LockRow]:
        """Those of `rows`, just read, that may be removed."""
        own = next((row for row in rows if row.lock_id == mine), None)
        before, self._seen = self._seen, {}
        found = []
        for row in rows:
            agent = Agent.of(row.agent)
            if row.lock_id >= mine or agent is None:
                continue
            heartbeat_ms, since_s = before.get(row.lock_id, (row.heartbeat_ms, now_s))
            if heartbeat_ms != row.heartbeat_ms:
                since_s = now_s
            self._seen[row.lock_id] = row.heartbeat_ms, since_s
            watched_s = now_s - since_s
            age_s = max(watched_s, (own.heartbeat_ms - row.heartbeat_ms) / 1000 if own else 0.0)
            if watched_s >= watch_s(agent.lease_s) and age_s >= agent.lease_s + DRIFT_MARGIN_S:
                found.append(row)
        return found


@dataclass
class Progress:
    """My place in the queue, and how long to stay away: half of the time until I am next, at the latest observed pace.

    Not longer: the pace is set by waiters that stay away, and would become slower and slower.
    """

    ahead: int = 0
    """How many requests were before mine at the latest look."""
    _moved_s: float = 0.0
    _turn_s: float = 0.0

    def saw(self, rows: Sequence[LockRow], mine: int, now_s: float) -> None:
        """Learn from `rows`, just read."""
        ahead, before = sum(row.lock_id < mine for row in rows), self.ahead
        if ahead < before:
            self._turn_s = (now_s - self._moved_s) / (before - ahead)
        elif before:
            self._turn_s = max(self._turn_s, now_s - self._moved_s)
        if ahead != before:
            self.ahead, self._moved_s = ahead, now_s

    def pause_s(self, look_s: float, poll_s: float) -> float:
        """0 for whoever is next. A turn counts as `poll_s` at most, and as two calls of `look_s` each at least."""
        return (self.ahead - 1) / 2 * max(min(self._turn_s, poll_s), 2 * look_s) if self.ahead > 1 else 0.0


def _short(identifier: str) -> str:
    """A UUID without its hyphens; any other identifier as far as it fits."""
    try:
        return UUID(identifier).hex
    except ValueError:
        return plain(identifier)[:32]


def _long(identifier: str) -> str:
    try:
        return str(UUID(identifier)) if len(identifier) == 32 else identifier
    except ValueError:
        return identifier
