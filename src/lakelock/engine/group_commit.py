"""Small writes that meet are committed together: the next writer to commit takes along all of its kind that wait (ADR 42, 54).

A process that finds itself alone writes as ever. Once it has met others, it puts its rows on offer and looks at the log until
a decision names them. The writer of the oldest offer of a kind (inserts, upserts, or deletes by key) commits all that are
there, as one ordinary transaction; the others only look. Upserts and deletes of a group are applied in the order in which the
commit names its members. If nothing is decided for long, the next in rank does the same, and so on. Ranks and pauses are
courtesy: what is committed, and how often, the decisions say (`lakelock.occ.offers`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from lakelock.errors import (
    CommitOutcomeUnknown,
    CommitUndone,
    ConflictError,
    LakelockError,
    LockTimeout,
    ProviderUnavailable,
    RolledBackError,
    StorageUnavailable,
)
from lakelock.events import EventKind, shown
from lakelock.occ import commit_keys as keys
from lakelock.occ.commit_keys import Member, members_of
from lakelock.occ.committed import Committed
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.data_locking import is_open_here, refuse_nested
from lakelock.occ.foreign import own_commit_undone, undone_error
from lakelock.occ.history import Outcome
from lakelock.occ.log import Decision, DecisionKind, LogView, decided_for_offer, in_the_way
from lakelock.occ.offers import (
    MOST_GROUP_BYTES,
    MOST_MEMBERS,
    Offer,
    Waiting,
    is_undecided,
    oldest_ms,
    put_offer,
    read_offers,
    remove,
    settle,
    waiting,
)
from lakelock.occ.request import WriteRequest
from lakelock.occ.retry import wait_for, with_retries
from lakelock.occ.transaction import Transaction
from lakelock.table import layout
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.instants import Instant, State
from lakelock.table.properties import TableProperties
from lakelock.table.rewriting import Kernels
from lakelock.table.schema import TableSchema
from lakelock.texts import command

HURRY_S = 0.5
"""How long a write that may be put on offer waits for the lock before it is."""
MOST_LOST = 2
"""How often a write loses to one of its kind before it is put on offer."""
MOST_IN_VAIN = 3
"""How many conflicts with other transactions a group may lose. Then each does its own write, with all that a retry can do."""
_PROFILES = ("strict", "hudi", "delta")
"""The profiles in which inserts never collide with each other, and upserts by their keys only."""
_PATIENCE_S, _PATIENCE_LOOKS = 1.0, 20
"""A writer waits so many seconds for a decision, or for the time of so many looks if that is longer, before it does the work of
the one before it in rank."""
_LOOKS_AT_FILE = 8
"""How often a member looks for the completed file of its commit before it helps to publish it."""
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.002, 0.25


@dataclass(frozen=True)
class SmallWrite:
    """A write of few rows that any writer of the table may carry out, together with others of its kind.

    `columns`: the columns of its rows in a table with this schema. `fitted`: its rows in these columns, one for each key where
    keys are looked up; if it raises, the rows are written by themselves, and that write reports the error. `commit` carries
    out the writes of several members in one transaction; their rows are in the same order. It raises `NotTogether` if it
    cannot tell what it did for each member.
    """

    operation: str
    tag: str
    columns: Callable[[TableSchema, TableProperties], TableSchema]
    fitted: Callable[[TableSchema, TableProperties], Any]
    commit: Callable[[Transaction, Sequence[Offer], Sequence[Any]], Committed]


class NotTogether(Exception):
    """These writes are to be done one by one."""


class _HurryIsOver(Exception):
    """The write has waited long enough for the lock, or lost often enough to its kind, to be put on offer."""


Small = Callable[[Transaction | None], SmallWrite | None]
"""Gives a write as others may carry it out; None if it is not small. Called in each attempt, and before if others were met."""


class _Hurried:
    """Does a small write with little patience: `_HurryIsOver` after a short wait for the lock, or two conflicts with its kind.

    A write that is not small, or whose work says that too much of it is done, has all the patience that is configured.
    """

    def __init__(self, coordinator: Coordinator, work: Callable[[Transaction], Committed], small: Small) -> None:
        self._coordinator, self._work, self._small, self._lost = coordinator, work, small, 0

    def __call__(self, tx: Transaction) -> Committed:
        table, small = self._coordinator.table, self._small(tx)
        alike = {tx.operation} if small is None else {tx.operation, small.operation}
        if small is not None:
            tx.lock_wait_s = HURRY_S
        try:
            return self._work(tx)
        except (LockTimeout, ProviderUnavailable) as error:
            if tx.lock_wait_s is not None:
                raise _HurryIsOver from error
            raise
        except ConflictError as error:
            if tx.lock_wait_s is not None and error.conflict.other.operation in alike:
                self._lost += 1
                table.observed.meets_others(table.runtime.monotonic_s())
                if self._lost == MOST_LOST:
                    raise _HurryIsOver from error
            raise


def alone_or_together(
    coordinator: Coordinator, kernels: Kernels, request: WriteRequest, work: Callable[[Transaction], Committed], small: Small
) -> Committed:
    """Carry out a write by itself, or, once others are met, together with those of its kind."""
    table = coordinator.table

    def together() -> Committed | None:
        """None if it is to be done by itself, and nothing of it is there."""
        write = small(None)
        if write is None:
            return None
        with shown(write.operation, table.runtime, table.events, wanted=table.settings.write.progress):
            return GroupCommit(coordinator, kernels, write).run()

    if coordinator.is_crowded and (done := together()) is not None:
        return done
    with suppress(_HurryIsOver):
        return with_retries(coordinator, request, _Hurried(coordinator, work, small))
    # If no others were met, the lock service did not answer: then the write waits as long as any other.
    return (together() if coordinator.is_crowded else None) or with_retries(coordinator, request, work)


def may_group(coordinator: Coordinator) -> bool:
    """Whether small writes of the table may be put on offer where others are met."""
    table = coordinator.table
    settings = table.settings
    return (
        settings.write.group_commit
        and table.provider is not None
        and not coordinator.data.for_writes
        and not table.observed.foreign_writers
        and settings.concurrency.profile in _PROFILES
        and coordinator.properties.bucket_index is None
    )


class GroupCommit:
    """One small write on its way; used once."""

    def __init__(self, coordinator: Coordinator, kernels: Kernels, write: SmallWrite) -> None:
        self._coordinator, self._table, self._kernels, self._write = coordinator, coordinator.table, kernels, write
        self._began_s = self._table.runtime.monotonic_s()
        self._done: Committed | None = None
        """What this writer has committed for all."""
        self._in_vain = 0

    def run(self) -> Committed | None:
        """The committed write; None if it is to be done without others, and nothing of it is there.

        `ConflictError` where `retry.attempts` allows no further attempt; `LockTimeout` after `lock.wait_s`;
        `CommitOutcomeUnknown` if storage does not say what became of it.
        """
        refuse_nested(self._write.operation, self._table.storage.uri)
        self._coordinator.ensure_same_provider()
        offer = self._fitted()
        if offer is None:
            return None
        try:
            put_offer(self._table, offer)
            decision = self._wait(offer)
        except CommitUndone:
            raise
        except BaseException as error:
            decision = self._settled(offer, error)
            withdrawn = decision is None
            if not isinstance(error, Exception) or (withdrawn and not isinstance(error, CommitOutcomeUnknown)):
                raise
        return None if decision is None else self._result_of(offer, decision)

    def _fitted(self) -> Offer | None:
        """The offer; None if the rows are wrong, or lack or add columns: a write without others reports what is wrong."""
        table, write, seen = self._table, self._write, self._coordinator.last_seen
        assert seen is not None, "a process that has met others has begun a transaction"
        schema, properties = seen
        try:
            fitted, packed = self._packed(schema, properties)
        except NotTogether:
            return None
        partitions = tuple(sorted(self._kernels.by_partition(fitted, properties)))
        since = max([table.log.newest, *table.log.numbers(table.log.newest)])
        member = Member(table.runtime.uuid(), table.writer, write.tag, fitted.num_rows, partitions)
        return Offer(member, since, fingerprint(schema), packed, write.operation)

    def _packed(self, schema: TableSchema, properties: TableProperties) -> tuple[Any, bytes]:
        """The rows, fitted to the table, and their bytes for others; `NotTogether` unless they have exactly its columns."""
        try:
            fitted = self._write.fitted(schema, properties)
            packed = self._kernels.packed(fitted)
            self._kernels.unpacked([packed], self._write.columns(schema, properties))
            self._kernels.by_partition(fitted, properties)
        except (LakelockError, KeyError, TypeError, ValueError, ArithmeticError) as error:
            raise NotTogether from error
        return fitted, packed

    def _wait(self, offer: Offer) -> Decision | None:
        """Any writer's decision that commits the offer. None if it was withdrawn, and the write can be done without others."""
        table, runtime, name, operation = self._table, self._table.runtime, offer.member.id, self._write.operation.lower()
        until_s = self._began_s + table.settings.lock.wait_s
        newest, changed_s = offer.since, runtime.monotonic_s()
        while True:
            began_s = runtime.monotonic_s()
            try:
                view, there = table.at_once(partial(table.log.look, after=offer.since, newest=None), partial(waiting, table))
            except StorageUnavailable:
                if runtime.monotonic_s() >= until_s:
                    raise
                runtime.sleep(_LONGEST_PAUSE_S)
                continue
            now_s = runtime.monotonic_s()
            found = decided_for_offer(name, view.decisions)
            if found is not None:
                return found if found.kind is DecisionKind.COMMIT else None
            rank = self._rank(offer, view, there)
            if view.boundary > offer.since or rank is None:
                # A part of the log is collected, or the offer was removed: only the table tells.
                return settle(table, name, offer.since)
            if view.head > newest:
                newest, changed_s = view.head, now_s
            if now_s >= until_s:
                raise LockTimeout(
                    f"no writer committed the {operation} {name} within {table.settings.lock.wait_s:g} s",
                    hint=f"see who holds the lock: {command('locks', 'ls', table.storage.uri)}",
                )
            patience_s = max(_PATIENCE_S, _PATIENCE_LOOKS * (now_s - began_s))
            if now_s - changed_s >= rank * patience_s:
                decision = self._lead(offer)
                if decision is not None:
                    return decision
                if self._in_vain > MOST_IN_VAIN:
                    return settle(table, name, offer.since)
            else:
                pause_s = min(_LONGEST_PAUSE_S, max(_SHORTEST_PAUSE_S, now_s - began_s))
                runtime.sleep(pause_s * (0.5 + runtime.random()))

    def _rank(self, offer: Offer, view: LogView, there: Sequence[Waiting]) -> int | None:
        """How many undecided offers of live writers, of the same kind, are older than this one; None if this one is gone."""
        mine = next((each for each in there if each.id == offer.member.id), None)
        if mine is None:
            return None
        known = self._table.log.known_since(min(each.since for each in there))
        limit_ms = oldest_ms(self._table)
        older = [each for each in self._alike(there) if each < mine and mine.since_ms - each.since_ms <= limit_ms]
        return sum(decided_for_offer(each.id, known) is None for each in older)

    def _alike(self, there: Sequence[Waiting]) -> list[Waiting]:
        return [each for each in there if each.operation == self._write.operation]

    def _lead(self, offer: Offer) -> Decision | None:
        """Commit all that wait, as one transaction. None if that was in vain: the log tells how to go on.

        `ConflictError` where `retry.attempts` allows no further attempt.
        """
        table = self._table
        try:
            with self._coordinator.begin(WriteRequest(self._write.operation, tag=self._write.tag)) as tx:
                offers, rows = self._group(tx, offer)
                self._done = self._write.commit(tx, offers, rows)
        except NotTogether:
            self._in_vain = MOST_IN_VAIN + 1
            return None
        except ConflictError as error:
            self._in_vain += 1
            if self._in_vain >= table.settings.retry.attempts:
                raise
            if is_open_here(error.conflict.other.instant):
                self._in_vain = MOST_IN_VAIN + 1  # a block of this thread ends after this; its own write tells, if it meets it
                return None
            if error.conflict.early:
                wait_for(table, error.conflict.other)
            table.runtime.sleep(_SHORTEST_PAUSE_S)
            return None
        except RolledBackError:
            table.runtime.sleep(_SHORTEST_PAUSE_S)
            return None
        if len(offers) > 1:
            table.observed.meets_others(table.runtime.monotonic_s())
        else:
            table.observed.crowded_until_s = 0.0
        return table.log.known(tx.instant)

    def _group(self, tx: Transaction, offer: Offer) -> tuple[list[Offer], list[Any]]:
        """This offer and those that can be taken along, and the rows of each."""
        table, kernels, first, properties = self._table, self._kernels, tx.baseline.first, tx.baseline.properties
        view, there = table.at_once(partial(table.log.look, after=first, newest=None), partial(waiting, table))
        if not is_undecided(table, offer, view, first):
            raise RolledBackError("its write has been decided meanwhile", instant=tx.instant)
        columns = self._write.columns(tx.schema, properties)
        group, rows, total = [offer], [self._packed(tx.schema, properties)[0]], len(offer.rows)
        names = [each for each in self._alike(there) if each.id != offer.member.id][: MOST_MEMBERS - 1]
        for each in read_offers(table, names):
            fits = each.schema == fingerprint(tx.schema) and total + len(each.rows) <= MOST_GROUP_BYTES
            if not fits or in_the_way(view.reservations, each.member.partitions, instant="") is not None:
                continue
            if not is_undecided(table, each, view, first):
                continue
            try:
                rows += kernels.unpacked([each.rows], columns)
            except ValueError as error:
                table.emit(EventKind.ALERT, problem=f"{each.key} is left to its owner: {error}")
                continue
            group.append(each)
            total += len(each.rows)
        return group, rows

    def _settled(self, offer: Offer, error: BaseException) -> Decision | None:
        """Withdraw the offer after an error, unless it is committed; `CommitOutcomeUnknown` if nothing tells."""
        try:
            return settle(self._table, offer.member.id, offer.since)
        except Exception as failure:  # noqa: BLE001  whatever it is, the log was not asked
            raise outcome_unknown(self._coordinator, offer, failure) from error

    def _result_of(self, offer: Offer, decision: Decision) -> Committed:
        """What was committed, once it is visible to everybody."""
        if not self._is_visible(decision):
            outcome = self._outcome(offer, decision)
            if outcome is not Outcome.COMMITTED:
                raise RolledBackError(
                    f"{decision.instant} was decided, but another Hudi writer rolled it back before it was visible",
                    hint="run the operation again",
                    instant=decision.instant,
                )
        table, member = self._table, offer.member
        with suppress(LakelockError):
            remove(table, [offer])
        metadata = CommitMetadata.from_bytes(decision.payload, decision.instant)
        files = [stat for stat in metadata.stats if (stat.partition_path or "") in member.partitions]
        done = self._done or Committed(self._write.operation, decision.instant, decision.completion, decision=decision.number)
        mine = next((each for each in members_of(metadata.extra) if each.id == member.id), member)
        done = replace(
            done,
            rows_written=mine.inserted + mine.updated,
            rows_inserted=mine.inserted,
            rows_updated=mine.updated,
            rows_deleted=mine.deleted,
            files=len(files),
            size_bytes=sum(stat.file_size_bytes or 0 for stat in files),
            took_s=round(table.runtime.monotonic_s() - self._began_s, 3),
        )
        table.observed.time_seen(decision.completion)
        if self._done is None:
            self._ensure_not_undone(decision, metadata.extra.get(keys.NEWEST_FOREIGN, ""))
            table.observed.meets_others(table.runtime.monotonic_s())
            table.emit(EventKind.COMMITTED, decision.instant, done.operation, **done.facts)
        return done

    def _ensure_not_undone(self, decision: Decision, newest_foreign: str) -> None:
        """`CommitUndone` if another engine has undone the commit; the writer that published it looks by itself.

        It raises no other error: the commit stands.
        """
        table = self._table
        if newest_foreign:
            table.observed.met_foreign(newest_foreign)
        try:
            undone = own_commit_undone(table, decision, table.timeline()) if table.observed.foreign_writers else None
        except LakelockError as error:
            problem = f"committed, but whether another engine has undone it could not be checked: {error.message}"
            table.emit(EventKind.ALERT, decision.instant, self._write.operation, problem=problem)
            return
        if undone is not None and undone.gone:
            raise undone_error(table, undone)

    def _is_visible(self, decision: Decision) -> bool:
        """Whether its completed file is there. The next decision is made only once it is, or once the commit is void."""
        table = self._table
        if table.observed.foreign_writers:
            return False
        completed = Instant(decision.instant, decision.action, State.COMPLETED, decision.completion)
        for look in range(_LOOKS_AT_FILE):
            with suppress(LakelockError):
                if table.storage.get(layout.timeline(completed.file_name)) is not None:
                    return True
                if table.log.newest > decision.number:
                    return False
            table.runtime.sleep(_SHORTEST_PAUSE_S * 2**look)
        return False

    def _outcome(self, offer: Offer, decision: Decision) -> Outcome:
        try:
            return self._coordinator.outcome(decision.instant)
        except LakelockError as error:
            raise outcome_unknown(self._coordinator, offer, error, decision.instant) from error


def outcome_unknown(coordinator: Coordinator, offer: Offer, cause: Exception, instant: str = "") -> CommitOutcomeUnknown:
    """The error for an offer of which it is not known whether it is committed; its hint is the command that will tell."""
    table, name = coordinator.table, instant or offer.member.id
    reason = cause.message if isinstance(cause, LakelockError) else f"{type(cause).__name__}: {cause}"
    table.emit(EventKind.OUTCOME_UNKNOWN, instant, offer.operation, cause=reason)
    return CommitOutcomeUnknown(
        f"it is not known whether the {offer.operation.lower()} {name} is committed: {reason}",
        hint=command("commits", "show", table.storage.uri, name),
        instant=name,
    )


def fingerprint(schema: TableSchema) -> str:
    """Tells whether rows were fitted to the same columns."""
    return hashlib.sha256(schema.to_avro_json("t").encode()).hexdigest()[:32]
