"""Requests for locks in a metastore: under which names, who made each of them, whose maker is dead, and lost replies.

The metastore keeps a user, a host and 128 characters of "agent info" with a request. Ours say which grant it is, so that
a request whose reply was lost is found again, and how long its maker may be silent, so that the next one in the queue
need not wait for the metastore's own time-out (five minutes by default). Requests of others are never judged here.

The metastore compares names byte by byte and builds SQL from them, so they are sent exactly as they are configured, and
what could end a string in SQL is refused.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import quote, unquote
from uuid import UUID

from lakelock.errors import LockError, ProviderUnavailable, SettingsError
from lakelock.identity import WriterIdentity
from lakelock.providers.base import DRIFT_MARGIN_S, Holder, Opening, past_ms
from lakelock.providers.connections import sendable
from lakelock.providers.hive_metastore.client import (
    ACQUIRED,
    Calls,
    LockAnswer,
    LockRow,
    MetastoreClient,
    ServerError,
)
from lakelock.providers.hive_metastore.connection import Address
from lakelock.settings.secrets import masked_uri

LONGEST_TEXT = 128
_MARK = "lakelock1"

_UNSAFE = re.compile(r"[^A-Za-z0-9_.@ -]")


@dataclass(frozen=True)
class Agent:
    """What a request of ours says about itself: `mark;grant;writer;lease;pid;application`."""

    grant: str
    writer_id: str
    lease_s: float
    pid: int
    application: str

    @classmethod
    def by(cls, writer: WriterIdentity, grant: str, lease_s: float) -> Agent:
        return cls(grant, writer.writer_id, lease_s, writer.pid, writer.application)

    @property
    def text(self) -> str:
        """The agent info; the metastore builds SQL from it, so anything unusual becomes a dash."""
        ids = f"{_short(self.grant)};{_short(self.writer_id)};{round(self.lease_s * 1000)};{self.pid}"
        return f"{_MARK};{ids};{plain(self.application)}"[:LONGEST_TEXT]

    @classmethod
    def of(cls, text: str) -> Agent | None:
        """Read what `text` wrote; None for anything else."""
        parts = text.split(";")
        if len(parts) != 6 or parts[0] != _MARK or not parts[3].isdecimal() or not parts[4].isdecimal():
            return None
        return cls(_long(parts[1]), _long(parts[2]), int(parts[3]) / 1000, int(parts[4]), parts[5])


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
        """0 for the next in the queue. A turn counts as `poll_s` at most, and as two calls of `look_s` each at least."""
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


DEFAULT_PORT = 9083
OWN_DATABASE = "lakelock"
"""Database of the names that are made here, when none are configured. It need not exist."""

LONGEST_NAME = 128
_NAME = re.compile(r"[A-Za-z0-9_.@$#/:+= -]+")
_HOST = re.compile(r"[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.-]+)?\]")
_SCHEMES = ("hive_metastore", "hive")


@dataclass(frozen=True)
class Place:
    """Servers that share one lock table, and the names of the lock in it."""

    addresses: tuple[Address, ...]
    database: str
    table: str

    @property
    def identity(self) -> str:
        """The lock as a URI that is the same for every order and spelling of the servers."""
        hosts = ",".join(sorted({str(address).lower() for address in self.addresses}))
        return f"hive_metastore://{hosts}/{quote(self.database, safe='')}/{quote(self.table, safe='')}"

    @classmethod
    def of(cls, uri: str, uris: str, table_uri: str) -> Place:
        """The place that `lock.provider` and `hive_metastore.uris` name; names they lack are derived from `table_uri`."""
        rest = sendable(uri).partition(":")[2]
        if "?" in rest or "#" in rest:
            raise _bad("has a part after ? or #", "settings of the client go into the section hive_metastore; write %23 for #")
        hosts, _, path = rest.removeprefix("//").partition("/")
        if "@" in hosts:
            raise _bad("holds a user name", "set hive_metastore.auth, user and password instead")
        if hosts and uris:
            raise _bad("and hive_metastore.uris both name metastores", "leave one of them out")
        addresses = listed(uris) if uris else tuple(_address(each, "lock.provider") for each in _split(hosts))
        if not addresses:
            raise _bad("names no metastore", 'write lock.provider = "hive_metastore://host:9083/database/table"')
        return cls(addresses, *_names(path, table_uri))


def _names(path: str, table_uri: str) -> tuple[str, str]:
    parts = path.rstrip("/").split("/") if path.rstrip("/") else []
    if not parts:
        # Derived names are lower case: all of lakelock's writers arrive at the same bytes.
        return OWN_DATABASE, "table_" + hashlib.sha256(table_uri.encode()).hexdigest()[:32]
    if len(parts) != 2:
        raise _bad("must end with /database/table, or name neither", "write a / within a name as %2F")
    return checked_name(unquote(parts[0])), checked_name(unquote(parts[1]))


def checked_name(name: str) -> str:
    """`name` unchanged, or `SettingsError` when a metastore cannot store it."""
    if not _NAME.fullmatch(name) or len(name) > LONGEST_NAME or name != name.strip():
        raise SettingsError(
            f"{name[:LONGEST_NAME]!r} cannot be the name of a lock in a metastore",
            hint=f"1 to {LONGEST_NAME} ASCII letters, digits and _ . - @ $ # / : + =, not quoted",
            key="lock.provider",
        )
    return name


def listed(uris: str, key: str = "hive_metastore.uris") -> tuple[Address, ...]:
    """The servers of a list as Hive has it, in which every entry has a scheme; `key` is the setting that holds it."""
    found = []
    for uri in _split(uris):
        scheme, there, rest = uri.partition("://")
        if not there or scheme.lower() != "thrift":
            raise SettingsError(
                f"{key} holds {_shown(uri)!r}, which does not begin with thrift://",
                hint="write thrift://host:9083,thrift://host2:9083",
                key=key,
            )
        found.append(_address(rest.rstrip("/"), key))
    return tuple(found)


def _split(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _address(text: str, key: str) -> Address:
    host, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not colon:
        host, port = text, str(DEFAULT_PORT)
    if not _HOST.fullmatch(host) or not port.isdecimal() or not 0 < int(port) < 65536:
        raise SettingsError(f"{key} holds {_shown(text)!r}, which is not host:port", hint="write host:9083", key=key)
    return Address(host.strip("[]"), int(port))


def _shown(text: str) -> str:
    return masked_uri(text if "@" not in text else "***@" + text.rpartition("@")[2])


def _bad(what: str, hint: str) -> SettingsError:
    schemes = " or ".join(f"{scheme}:" for scheme in _SCHEMES)
    return SettingsError(f"lock.provider ({schemes}) {what}", hint=hint, key="lock.provider")


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
    ) -> LockAnswer:
        """Ask once; `sending` is called when the request may be about to reach the metastore."""

        def ask(calls: Calls) -> LockAnswer:
            sending()
            user, host = plain(writer.user) or "-", plain(writer.host) or "-"
            return calls.lock(self._place.database, self._table(suffix), user=user, host=host, agent=agent.text)

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
            answer = self._client.call(lambda calls: calls.get_config_value("hive.txn.timeout", "300s"), within_s=within_s)
        except ServerError:
            return HIVE_TIMEOUT_S
        found = _DURATION.fullmatch(answer)
        if found is None:
            return HIVE_TIMEOUT_S
        unit = found[2].lower()
        return int(found[1]) * _UNIT_S.get(unit, _UNIT_S.get(unit.rstrip("s"), 1.0))

    def ensure_lease_fits(self, lease_s: float, within_s: float) -> None:
        """`SettingsError` if the metastore drops a lock before its lease is over: it would grant the lock to two at once."""
        if self._lease_fits:
            return
        timeout_s, key = self.timeout_s(within_s), "lock.lease_s"
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
        """Hold a lock with a name of its own while the block runs; its row as the metastore shows it."""
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


@dataclass
class Request:
    """Our place in the queue. `asked`: a request may have reached the metastore; `doubted`: perhaps more than one did."""

    grant: str
    lock_id: int | None = None
    asked: bool = False
    doubted: bool = False
    watch: Watch = field(default_factory=Watch)

    @property
    def is_lost(self) -> bool:
        """Whether it may have reached the metastore, but its number is not known."""
        return self.asked and self.lock_id is None

    def enter(self, calls: LockCalls, writer: WriterIdentity, agent: Agent, within_s: float) -> LockAnswer:
        """Queue up at the end."""

        def sending() -> None:
            self.asked = True

        answer = calls.lock(writer, agent, within_s, sending=sending)
        self.lock_id = answer.lock_id
        return answer

    def find(self, calls: LockCalls, within_s: float) -> None:
        """Find the request whose reply was lost. It may still arrive later, so there may be two in the end (`doubted`)."""
        self.doubted = True
        for row in calls.rows(within_s):
            if is_of(row, self.grant):
                self.lock_id = row.lock_id
                return

    def start_again(self) -> None:
        """The metastore no longer knows the request."""
        self.lock_id, self.asked = None, False

    def leave(self, calls: LockCalls, within: Callable[[], float]) -> None:
        """Take it out of the queue, and every other that was made for the same grant; `lock_id` is None once it is out."""
        others = self.doubted or self.is_lost
        if self.lock_id is not None:
            calls.unlock(self.lock_id, within())
            self.lock_id = None
        if others:
            calls.remove(self.grant, within())
