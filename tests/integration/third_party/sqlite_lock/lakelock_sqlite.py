"""The table lock as a row of a SQLite database: for writers on one machine. `lock.provider = "sqlite:/var/lib/locks.db"`.

A grant is one transaction (BEGIN IMMEDIATE), so the database decides who is first. Nobody compares clocks: a waiter watches
the row, and takes over a holder that has not renewed for one lease by the waiter's own monotonic clock.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from lakelock.errors import ProviderUnavailable, SettingsError
from lakelock.identity import WriterIdentity
from lakelock.providers import Attempt, Holder, Lease, LockState, Opening, PollingProvider, Strength

STRENGTH = Strength(
    exclusion="transactions of one database file; a lease, so a holder that pauses beyond it is replaced and finds out",
    token="a counter in the row, which is never deleted; grows across release and crash",
    crash_release="after one lease from when the next writer first looked",
    failover="none: one file on a local disk of one machine",
    clock_assumption="equal rates; no clock is compared, but `locks break` without force trusts the machine's wall clock",
    fairness="in order of arrival within a process; jittered polling between processes",
    cost="2 transactions for acquire and release",
)

_TABLE = """
CREATE TABLE IF NOT EXISTS locks (
  name TEXT PRIMARY KEY, token INTEGER NOT NULL, owner TEXT NOT NULL, writer TEXT NOT NULL,
  lease_s REAL NOT NULL, renewals INTEGER NOT NULL, since_ms INTEGER NOT NULL, renewed_ms INTEGER NOT NULL)
"""
_COLUMNS = "token, owner, writer, lease_s, renewals, since_ms, renewed_ms"
_BUSY_S = 1.0
"""How long one transaction waits for the database; the wait for the lock is made of several."""


@dataclass(frozen=True)
class Row:
    """The lock of one table; `owner` is the grant that holds it, empty when it is free."""

    token: int
    owner: str
    writer: str
    lease_s: float
    renewals: int
    since_ms: int
    renewed_ms: int

    @property
    def holder(self) -> Holder | None:
        if not self.owner:
            return None
        writer = WriterIdentity.from_dict(json.loads(self.writer))
        return Holder(self.owner, writer, self.token, self.lease_s, self.renewed_ms, self.since_ms)


class SqliteLockProvider(PollingProvider):
    """The lock of one table, in the database that the URI names."""

    def __init__(self, opening: Opening) -> None:
        if not opening.storage.uri.startswith(("file:", "memory:")):
            raise SettingsError(
                f"a lock on this machine keeps no other machine away from {opening.storage.uri}",
                hint='use the lock next to the table: lock.provider = "storage:"',
                key="lock.provider",
            )
        super().__init__(opening)
        self._path = opening.uri.partition(":")[2]
        self._lease_s = opening.settings.lock.lease_s
        self._watched: tuple[int, int] | None = None
        self._watched_s = 0.0

    @property
    def identity(self) -> str:
        return f"sqlite:{Path(self._path).resolve()}#{self.table}"

    @property
    def strength(self) -> Strength:
        return STRENGTH

    def watch_s(self, lease_s: float) -> float:
        return lease_s

    def attempt(self, attempt: Attempt) -> Lease | Holder | None:
        began_s = self.runtime.monotonic_s()
        with self._transaction() as database:
            row = self._row(database)
            if row is not None and row.owner == attempt.grant:
                # An earlier try of this acquire was committed without our hearing of it.
                return self.new_lease(attempt, row.token, attempt.sent[row.token])
            if row is not None and row.owner and not self._is_over(row):
                return row.holder
            token = row.token + 1 if row is not None else 1
            attempt.sent[token] = began_s
            now_ms, writer = self.runtime.now_ms(), json.dumps(self.writer.as_dict())
            values = (self.table, token, attempt.grant, writer, self._lease_s, 0, now_ms, now_ms)
            database.execute(f"INSERT OR REPLACE INTO locks (name, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
        return self.new_lease(attempt, token, began_s)

    def extend(self, lease: Lease) -> None:
        began_s = self.runtime.monotonic_s()
        changed = self._change(lease.grant, "renewals = renewals + 1, renewed_ms = ?", self.runtime.now_ms())
        if not changed:
            raise self.taken_over(lease, "went to another writer")
        lease.extend(began_s)

    def give_back(self, lease: Lease) -> None:
        self._change(lease.grant, "owner = ?", "")

    def abandon(self, attempt: Attempt) -> None:
        if attempt.doubt:
            self._change(attempt.grant, "owner = ?", "")

    def inspect(self) -> LockState:
        with self._transaction() as database:
            row = self._row(database)
        if row is None or row.holder is None:
            return LockState(None, row.token if row else 0)
        left_s = row.lease_s - (self.runtime.now_ms() - row.renewed_ms) / 1000
        return LockState(replace(row.holder, left_s=max(0.0, left_s)), row.token)

    def break_lock(self, token: int, *, force: bool = False) -> None:
        with self._transaction() as database:
            row = self._row(database)
            if row is None:
                return
            self.ensure_latest(token, row.token)
            if row.holder and not force and self.runtime.now_ms() < row.renewed_ms + row.lease_s * 1000:
                raise self.still_held(row.holder, "whose lease runs")
            database.execute("UPDATE locks SET owner = '' WHERE name = ?", (self.table,))

    def probe(self) -> None:
        with self._transaction() as database:
            self._row(database)

    def _change(self, grant: str, what: str, value: object) -> bool:
        """Change the row if it still is this grant's. Whether it was."""
        with self._transaction() as database:
            query = f"UPDATE locks SET {what} WHERE name = ? AND owner = ?"
            return database.execute(query, (value, self.table, grant)).rowcount == 1

    def _is_over(self, row: Row) -> bool:
        """Whether nothing has moved for one lease since this writer first saw the row as it is."""
        now_s, seen = self.runtime.monotonic_s(), (row.token, row.renewals)
        if seen != self._watched:
            self._watched, self._watched_s = seen, now_s
        return now_s - self._watched_s >= self.watch_s(row.lease_s)

    def _row(self, database: sqlite3.Connection) -> Row | None:
        found = database.execute(f"SELECT {_COLUMNS} FROM locks WHERE name = ?", (self.table,)).fetchone()
        return Row(*found) if found is not None else None

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """One transaction on a connection of its own: a connection must not be used by several threads or after a fork."""
        try:
            database = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None)
            try:
                database.execute(_TABLE)
                database.execute("BEGIN IMMEDIATE")
                yield database
                database.execute("COMMIT")
            finally:
                database.close()  # rolls back what was not committed
        except sqlite3.Error as error:
            raise ProviderUnavailable(
                f"the lock database {self._path} does not answer: {error}",
                hint="make its folder, and let this user write there" if "unable to open" in str(error) else "try again",
            ) from error
