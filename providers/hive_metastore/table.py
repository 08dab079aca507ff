"""The calls to a metastore for the locks under one name, with errors that providers understand."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

from lakelock.errors import LockError, ProviderUnavailable, SettingsError
from lakelock.identity import WriterIdentity
from lakelock.providers.base import Opening
from lakelock.providers.hive_metastore.client import MetastoreClient
from lakelock.providers.hive_metastore.messages import ServerError
from lakelock.providers.hive_metastore.place import LONGEST_NAME, Place
from lakelock.providers.hive_metastore.queue import Agent, is_of, plain
from lakelock.providers.hive_metastore.thrift_calls import EXCLUSIVE, Calls, LockAnswer, LockRow, Part
from lakelock.providers.lock_client import LeaseSettings

T = TypeVar("T")

HIVE_TIMEOUT_S = 300.0
"""How long a metastore keeps a lock without a heartbeat, unless it is configured otherwise."""

_DURATION = re.compile(r"\s*(\d+)\s*([a-z]*)\s*", re.IGNORECASE)
_UNIT_S = {"ms": 0.001, "msec": 0.001, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "hour": 3600.0, "d": 86400.0}


class NoSuchLock(Exception):
    """The metastore no longer knows the lock id."""


class LockCalls:
    """The requests for the locks at `place`. Every call is bounded by `within_s`; `call_s` is the most that one may take."""

    def __init__(self, opening: Opening, place: Place, warn: Callable[[str], None]) -> None:
        settings = opening.settings.hive_metastore
        self._place, self.call_s, self._lease_fits = place, settings.socket_timeout_s, False
        self._client = MetastoreClient(opening.runtime, settings, place.addresses, opening.writer.user, warn)

    def lock(
        self,
        writer: WriterIdentity,
        agent: Agent,
        within_s: float,
        *,
        sending: Callable[[], None],
        suffix: str = "",
        parts: Sequence[Part] = ((EXCLUSIVE, None),),
    ) -> LockAnswer:
        """Ask once for all `parts`; `sending` is called when the request may be about to reach the metastore."""

        def ask(calls: Calls) -> LockAnswer:
            sending()
            user, host = plain(writer.user) or "-", plain(writer.host) or "-"
            return calls.lock(self._place.database, self._table(suffix), user=user, host=host, agent=agent.text, parts=parts)

        return self._ask(ask, within_s, repeat=False)

    def check(self, lock_id: int, within_s: float) -> LockAnswer:
        """Whether the lock is granted by now; keeps the place of a waiter. `NoSuchLock` when it expired."""
        return self._ask(lambda calls: calls.check_lock(lock_id), within_s)

    def heartbeat(self, lock_id: int, within_s: float) -> None:
        """Keep a granted lock; `NoSuchLock` when it expired or was broken."""
        self._ask(lambda calls: calls.heartbeat(lock_id), within_s)

    def unlock(self, lock_id: int, within_s: float) -> None:
        """Take a request away, granted or not; nothing happens if it is not there."""
        with suppress(NoSuchLock):
            self._ask(lambda calls: calls.unlock(lock_id), within_s)

    def rows(self, within_s: float, suffix: str = "") -> list[LockRow]:
        """All requests, by id."""
        return self._ask(lambda calls: calls.show_locks(self._place.database, self._table(suffix)), within_s)

    def remove(self, grant: str, within_s: float) -> None:
        """Take away every request that was made for `grant`."""
        for lock_id in {row.lock_id for row in self.rows(within_s) if is_of(row, grant)}:
            self.unlock(lock_id, within_s)

    def timeout_s(self, within_s: float) -> float:
        """After how long without a heartbeat the metastore drops a lock."""
        try:
            told = self._client.call(lambda calls: calls.get_config_value("hive.txn.timeout", "300s"), within_s=within_s)
        except ServerError:
            return HIVE_TIMEOUT_S
        found = _DURATION.fullmatch(told)
        if found is None:
            return HIVE_TIMEOUT_S
        unit = found[2].lower()
        return int(found[1]) * _UNIT_S.get(unit, _UNIT_S.get(unit.rstrip("s"), 1.0))

    def ensure_lease_fits(self, leasing: LeaseSettings, within_s: float) -> None:
        """`SettingsError` if the metastore drops a lock before its lease is over: it would grant the lock to two at once."""
        if self._lease_fits:
            return
        timeout_s, lease_s, key = self.timeout_s(within_s), leasing.lease_s, f"{leasing.section}.lease_s"
        if lease_s > timeout_s:
            raise SettingsError(
                f"{key} is {lease_s:g} s, but the metastore drops a lock after {timeout_s:g} s (its hive.txn.timeout)",
                hint=f"set {key} to {timeout_s:g} or less, or raise hive.txn.timeout of the metastore",
                key=key,
            )
        self._lease_fits = True

    def close(self) -> None:
        """Let go of the connection; the next call opens another."""
        self._client.close()

    @contextmanager
    def trial(self, writer: WriterIdentity, agent: Agent, within_s: float) -> Iterator[LockRow | None]:
        """Hold a lock with a name that nobody else uses while the block runs; its row as the metastore shows it."""
        suffix = f".trial-{agent.text.split(';')[1][:12]}"
        lock_id = self.lock(writer, agent, within_s, sending=lambda: None, suffix=suffix).lock_id
        try:
            yield next((row for row in self.rows(within_s, suffix) if row.lock_id == lock_id), None)
        finally:
            self.unlock(lock_id, within_s)

    def _table(self, suffix: str) -> str:
        return self._place.table[: LONGEST_NAME - len(suffix)] + suffix if suffix else self._place.table

    def _ask(self, ask: Callable[[Calls], T], within_s: float, *, repeat: bool = True) -> T:
        try:
            return self._client.call(ask, within_s=within_s, repeat=repeat)
        except ServerError as error:
            if error.name == "NoSuchLockException":
                raise NoSuchLock from None
            if error.name == "TxnOpenException":
                raise LockError(
                    "this lock belongs to a transaction of Hive, and only the transaction can end it",
                    hint="end the transaction: ABORT TRANSACTIONS in Hive",
                ) from error
            raise ProviderUnavailable(
                f"the metastore does not do what the lock needs: {error}",
                hint="hive_metastore:// needs the lock manager of a Hive metastore 1.3 or later; AWS Glue's catalog has none. "
                "Other locks need no metastore: storage:, dynamodb://, zookeeper://, redis://",
            ) from error
