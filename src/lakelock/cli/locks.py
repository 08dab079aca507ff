"""`lakelock locks`: holders and waiters of the table's locks, what an operation would lock, and manual changes of locks.

`locks break` and `locks migrate` record each change before it is made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated

import typer

from lakelock.admin.java_writers import java_options
from lakelock.admin.manual_changes import AuditRecord, Migration, audited, migrate, plan_migration, read_audit
from lakelock.admin.shown_locks import COMMIT, DATA, DEAD, RESERVATION, ExplainedLock, LockRow, explained_locks, shown_locks
from lakelock.cli.arguments import Call, DryRunOption, PartitionOption, on_table, resolved
from lakelock.cli.output import Output, iso
from lakelock.data_locks.base import FIRST_TOKEN
from lakelock.errors import CorruptTableError, InputError, LockError, SettingsError, StorageError
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.recorded_lock import compare_locks, recorded_provider
from lakelock.occ.request import resources_of
from lakelock.providers import Holder, LockProvider, LockState, open_provider, provider_name
from lakelock.providers.registry import WITHOUT_OPTIONS, as_settings
from lakelock.settings import Settings
from lakelock.texts import command, counted

ReasonOption = Annotated[str, typer.Option("--reason", help="Why, for the audit record.", show_default=False)]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
JavaPropertiesOption = Annotated[
    Path | None,
    typer.Option("--java-properties", help="Write what Java Hudi's writers need to this file.", show_default=False),
]


@on_table
def break_lock(
    call: Call,
    token: Annotated[
        int | None, typer.Option("--token", min=0, help="Token of the grant to break, from `locks ls`.", show_default=False)
    ] = None,
    data: Annotated[bool, typer.Option("--data", help="Break data locks, not the commit lock.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="With --data and --force: all data locks, even if they cannot be read.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Break it even while its lease still runs.")] = False,
    reason: ReasonOption = "",
    yes: YesOption = False,
) -> None:
    """Take a lock away from its holder: only needed when the holder is gone and its lease does not end.

    A holder that turns out to be alive can do no harm: the decision log checks its commit again.
    """
    if everything and not (data and force):
        raise SettingsError("--all is for data locks that block all writers", hint="use --data --all --force")
    look = call.command("locks ls")
    if everything and token is not None:
        raise SettingsError("--all breaks the data locks of all tokens", hint="give --token or --all, not both")
    if token is None and not everything:
        raise SettingsError("--token is required", hint=f"`{look}` shows tokens; add --token N")
    if data and token is not None and token < FIRST_TOKEN:
        hint = f"`{look}` shows tokens; --data --all --force breaks all data locks"
        raise SettingsError(f"{token} is not a token of data locks, which count from {FIRST_TOKEN}", hint=hint)
    with call.opened(lock=True) as coordinator:
        _ensure_recorded(coordinator)
        act = _Breaking(coordinator, token, data=data, force=force, reason=reason)
        if act.holder and not yes:
            call.ask(act.question)
        act.run()
        call.out.show(act.values, lambda o: o.line(act.summary))


@dataclass
class _Breaking:
    """One lock to break, or, without a token, all data locks."""

    coordinator: Coordinator
    token: int | None
    data: bool
    force: bool
    reason: str

    @cached_property
    def holder(self) -> str:
        """The writers that would lose it; empty if there are none. With `force` an unreadable lock counts as held."""
        try:
            return self._data_holder() if self.data else self._commit_holder()
        except CorruptTableError:
            if not self.force or (self.data and self.token is not None):
                raise
            return "an unknown holder"

    def _commit_holder(self) -> str:
        holder = commit_lock(self.coordinator).inspect().holder
        return str(holder) if holder else ""

    def _data_holder(self) -> str:
        return "; ".join(str(seen) for seen in self.coordinator.data.locks.inspect() if self.token in (None, seen.token))

    @property
    def what(self) -> str:
        return "data locks" if self.data else "lock"

    @property
    def identity(self) -> str:
        return self.coordinator.data.locks.identity if self.data else commit_lock(self.coordinator).identity

    @property
    def question(self) -> str:
        with_token = "" if self.token is None else f" with token {self.token}"
        return f"Break the {self.what} that {self.holder} holds{with_token}?"

    @property
    def summary(self) -> str:
        if self.holder:
            return f"broken: {self.holder} no longer holds the {self.what}"
        if self.token is None:
            return "nothing to break: there are no data locks"
        return "nothing to break: no data locks have this token" if self.data else "nothing to break: the lock is free"

    @property
    def values(self) -> dict[str, object]:
        uri = self.coordinator.table.storage.uri
        return {"table": uri, "provider": self.identity, "broken": bool(self.holder), "token": self.token}

    def run(self) -> None:
        """Break it, between the two halves of its audit record; a free lock is only looked at."""
        table = self.coordinator.table
        if not self.holder:
            self._break()
            return
        with audited(
            table.storage, table.runtime, table.writer, f"break {'data locks' if self.data else 'commit lock'}", self.identity,
            token=self.token or 0, holder=self.holder, forced=self.force, reason=self.reason,
        ):  # fmt: skip
            self._break()

    def _break(self) -> None:
        locks = self.coordinator.data.locks
        if self.token is None:
            locks.break_all()
        elif self.data:
            locks.break_lock(self.token, force=self.force)
        else:
            commit_lock(self.coordinator).break_lock(self.token, force=self.force)


def _ensure_recorded(coordinator: Coordinator) -> None:
    """`ProviderMismatch` if the table's writers have another lock than these settings name, and other data locks with it."""
    table = coordinator.table
    if table.provider is not None:
        compare_locks(table.storage, recorded_provider(table.storage), table.provider.identity)


@on_table
def migrate_lock(
    call: Call,
    to: Annotated[str, typer.Option("--to", help="The new lock, as a URI for lock.provider.", show_default=False)],
    to_set: Annotated[
        list[str] | None,
        typer.Option("--to-set", help="An option of the new lock: lock.options.NAME=VALUE.", show_default=False),
    ] = None,
    dry_run: DryRunOption = False,
    reason: ReasonOption = "",
    java_properties: JavaPropertiesOption = None,
    yes: YesOption = False,
) -> None:
    """Move the table to another lock, while no writer is live. Use the settings that the writers have had until now.

    Both locks are held while the record changes. A writer that still has the old setting is refused from then on, at its
    next begin or commit. Java Hudi writers ignore the record: give them the properties that it prints, or writes with
    --java-properties to a file.
    """
    with call.opened(lock=True) as coordinator:
        commit_lock(coordinator)
        table = coordinator.table
        options = _options_of(to, to_set, table.settings)
        changed = replace(table.settings, lock=replace(table.settings.lock, provider=to), lock_options=options)
        java = java_options(coordinator.properties, changed)
        new = open_provider(changed, table.storage, table.runtime, table.writer, table.events)
        try:
            check_java_file(java_properties, java, new.identity)
            plan = plan_migration(coordinator, new)
            if plan.needed and not dry_run and not yes:
                call.ask(f"Move {plan.table} from the lock {plan.recorded} to {plan.to}?")
            done = plan if dry_run or not plan.needed else migrate(coordinator, new, reason=reason)
        finally:
            new.close()
        values = {**asdict(done), "dry_run": dry_run, "java_options": java}
        call.out.show(values, lambda o: _print_migration(o, done, dry_run=dry_run))
        tell_java(call.out, java, done.to, java_properties, table.storage.uri)
        if dry_run and done.needed and done.live:
            raise LockError(
                f"the table is still used by {counted(len(done.live), 'writer')}",
                hint="stop them, or wait until they have ended; locks of writers that were killed are dropped by the migration "
                "itself, after one lease",
            )


def _print_migration(out: Output, done: Migration, *, dry_run: bool) -> None:
    if not done.needed:
        out.line(f"nothing to do: the table's lock is {done.to}")
        return
    out.line(f"{'would move' if dry_run else 'moved'} from {done.recorded or 'no recorded lock'} to {done.to}")
    for name in done.live:
        out.line(f"in the way: {name}")
    if done.done:
        out.line("now set lock.provider in every writer to what you gave as --to")


def check_java_file(file: Path | None, java: Sequence[str], lock: str) -> None:
    """`InputError`, before anything is changed, if `tell_java` has nothing to write to the file or cannot write it."""
    if file is None:
        return
    if not _has_lock(java):
        raise InputError(f"Java Hudi has no lock such as {lock}: nothing is for {file}", hint="leave out --java-properties")
    is_new = not file.exists()
    try:
        with file.open("ab"):
            pass
        if is_new:
            file.unlink()
    except OSError as error:
        raise InputError(f"cannot write {file}: {error.strerror or error}", hint="name a file in a folder") from error


def _has_lock(java: Sequence[str]) -> bool:
    return any(line.startswith("hoodie.write.lock.provider=") for line in java)


def tell_java(out: Output, java: Sequence[str], lock: str, file: Path | None, uri: str) -> None:
    """Print the properties for Java's writers, ready to paste, or write them to a file, which `check_java_file` has seen."""
    if file is not None:
        try:
            file.write_text("".join(f"{line}\n" for line in java), encoding="utf-8")
        except OSError as error:
            hint = "what the command changed stays changed: run it again with another file"
            raise StorageError(f"cannot write {file}: {error.strerror or error}", hint=hint) from error
    if out.as_json:
        return
    if not _has_lock(java):
        out.line(f"Java Hudi has no lock such as {lock}: it cannot write this table")
        return
    out.line(f"Java writers need these properties{f', which are in {file} now' if file is not None else ''}:")
    for line in java:
        out.line(line)
    if lock.startswith("storage:") and uri.startswith("file:"):
        moves = command("locks", "migrate", uri, "--to", "zookeeper://host:2181/base/key")
        out.line(f"Java Hudi has no such lock on a local disk; next: {moves}")


def commit_lock(coordinator: Coordinator) -> LockProvider:
    """The table's lock; `SettingsError` in a mode that has none."""
    provider = coordinator.table.provider
    if provider is None:
        raise SettingsError(
            "concurrency.mode is SINGLE_WRITER: there is no lock", hint="name the lock the writers use: --set lock.provider=..."
        )
    return provider


def _options_of(to: str, given: list[str] | None, settings: Settings) -> Mapping[str, object]:
    """`lock.options` of the new lock: those given for it, else the old one's where that is of the same kind or reads none."""
    if given:
        return resolved(None, given).settings.lock_options
    old = provider_name(settings.lock.provider)
    return settings.lock_options if old in (provider_name(to), *WITHOUT_OPTIONS) else {}


app = typer.Typer(no_args_is_help=True, help="The table's commit lock and its data locks.")
app.command("break")(break_lock)
app.command("migrate")(migrate_lock)

SHOWN = (
    "lock id", "database", "table", "partition", "state", "type", "blocked by", "instant", "last heartbeat", "acquired at",
    "user", "host", "agent info",
)  # fmt: skip
"""The columns of Hive's SHOW LOCKS."""
_MOST_ASKED = ("partition", "state", "type", "blocked by", "agent info")


@app.command("ls")
@on_table
def list_locks(
    call: Call,
    partition: PartitionOption = None,
    extended: Annotated[
        bool, typer.Option("--extended", help="Also show locks on ancestors, more columns, and manual changes to locks.")
    ] = False,
) -> None:
    """Show who holds the commit lock and the data locks, who has reserved what, who waits, and for whom (SHOW LOCKS)."""
    with call.opened(lock=True) as coordinator:
        provider = commit_lock(coordinator)
        state = provider.inspect()
        recorded = recorded_provider(coordinator.table.storage)
        targets = resources_of(partition, coordinator.properties)
        rows = shown_locks(coordinator, targets, extended=extended, state=state)
        audit = read_audit(coordinator.table.storage, limit=10) if extended else []
        values: dict[str, object] = {
            "table": coordinator.table.storage.uri,
            "provider": provider.identity,
            "recorded": recorded,
            "state": "held" if state.holder else "free",
            "token": state.token,
            "holder": _holder(state.holder) if state.holder else None,
            "queue": [_holder(waiting) for waiting in state.queue],
            "data_locks_in": coordinator.data.locks.identity,
            "locks": [_plain(row) for row in rows],
        }
        if extended:
            values["audit"] = [record.as_dict() for record in audit]
        warning = recorded if recorded not in (None, provider.identity) else None
        call.out.show(values, lambda o: _print(o, call, values, state, rows, warning, audit, extended=extended))


def _print(
    out: Output,
    then: Call,
    values: dict[str, object],
    state: LockState,
    rows: list[LockRow],
    warning: str | None,
    audit: list[AuditRecord],
    *,
    extended: bool,
) -> None:
    out.line(f"commit lock {values['provider']}")
    if warning:
        out.line(f"warning: the table is guarded by {warning}; set {as_settings(warning)}")
    _table(out, [row for row in rows if row.kind == COMMIT], f"free; the latest token is {state.token}", extended=extended)
    if state.holder:
        left_s = _tenths(state.holder.left_s)
        if left_s is not None:
            out.line(
                f"the lease of the holder runs for {left_s} s more unless it is renewed" if left_s else "its lease is over"
            )
        take = then.command("locks break", "--token", state.token)
        out.line(f"to take it away from a holder that is gone: {take}")
    out.line(f"data locks in {values['data_locks_in']}")
    data = [row for row in rows if row.kind == DATA]
    _table(out, data, "none", extended=extended)
    for row in {row.token: row for row in data if row.blocked_by}.values():
        out.line(f"{row.token} ({row.agent_info}) waits for {row.blocked_by}")
    _reservations(out, then.command("markers reap"), [row for row in rows if row.kind == RESERVATION], extended=extended)
    if audit:
        out.line("manual changes to locks, newest first")
        _audit(out, audit)


def _reservations(out: Output, reap: str, rows: list[LockRow], *, extended: bool) -> None:
    if not rows:
        return
    out.line("reservations of writers that have lost too often, in the order in which they are served")
    _table(out, rows, "", extended=extended)
    for row in {row.lock_id: row for row in rows}.values():
        since = f", since {_time(row.since_ms)}" if row.since_ms else ""
        if row.state == DEAD:
            then = "its writer is dead, so no writer waits for it"
        elif row.blocked_by:
            then = f"it waits for {row.blocked_by}"
        else:
            then = "later writers wait until it has ended, at most retry.holder_wait_s"
        out.line(f"{row.lock_id} ({row.agent_info}){since}: {then}")
    if any(row.state == DEAD for row in rows):
        out.line(f"to remove what the dead have left: {reap}")


def _table(out: Output, rows: list[LockRow], empty: str, *, extended: bool) -> None:
    columns = (*SHOWN, "since", "lease s", "left s", "pid", "writer") if extended else SHOWN
    out.table(columns, [_cells(row, extended=extended) for row in rows], empty=empty, keep=_MOST_ASKED)


def _cells(row: LockRow, *, extended: bool) -> tuple[object, ...]:
    heartbeat, acquired, since = (_time(at_ms) for at_ms in (row.last_heartbeat_ms, row.acquired_ms, row.since_ms))
    what = (row.lock_id, row.database or "default", row.table, row.partition, row.state, row.type, row.blocked_by, row.instant)
    cells = (*what, heartbeat, acquired, row.user, row.host, row.agent_info)
    return (*cells, since, row.lease_s, _tenths(row.left_s), row.pid, row.writer_id) if extended else cells


def _tenths(left_s: float | None) -> float | None:
    """In tenths of a second, rounded up: 0 is shown only for a lease that is over."""
    return None if left_s is None else math.ceil(left_s * 10) / 10


def _time(at_ms: int | None) -> str:
    return iso(at_ms) if at_ms else ""


def _plain(row: LockRow) -> dict[str, object]:
    """A row for programs: times in ISO 8601 in addition to the milliseconds."""
    times = {name.removesuffix("_ms"): _time(value) or None for name, value in asdict(row).items() if name.endswith("_ms")}
    return {**asdict(row), **times}


def _holder(holder: Holder) -> dict[str, object]:
    since, renewed = (iso(at_ms) if at_ms else None for at_ms in (holder.since_ms, holder.renewed_ms))
    return {**holder.as_dict(), "since": since, "renewed": renewed}


@app.command("explain")
@on_table
def explain(
    operation: Annotated[
        str, typer.Argument(help='Such as "INSERT OVERWRITE PARTITION (month=1, day)" or "ADD COLUMNS".', show_default=False)
    ],
    call: Call,
    partition: PartitionOption = None,
) -> None:
    """Print the data locks that an operation would take, in their order, without taking them (EXPLAIN LOCKS)."""
    with call.opened() as coordinator:
        locks = explained_locks(coordinator, operation, partition)
        values = {"table": coordinator.table.storage.uri, "operation": operation, "locks": [asdict(lock) for lock in locks]}
        call.out.show(values, lambda o: _print_explained(o, locks))


def _print_explained(out: Output, locks: list[ExplainedLock]) -> None:
    columns = [field.name for field in fields(ExplainedLock)]
    rows = [[lock.number, lock.database or "default", lock.table, lock.partition, lock.type] for lock in locks]
    out.table(columns, rows, empty="no locks")


@app.command("audit")
@on_table
def audit(
    call: Call,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many, newest first.")] = 20,
) -> None:
    """Show manual changes to the table's locks: who made them, when, to which lock, why, and how they ended."""
    with call.opened() as coordinator:
        records = read_audit(coordinator.table.storage, limit)
        values = {"table": coordinator.table.storage.uri, "records": [record.as_dict() for record in records]}
        call.out.show(values, lambda o: _audit(o, records))


def _audit(out: Output, records: list[AuditRecord]) -> None:
    columns = ("when", "who", "host", "what", "lock", "token", "holder", "forced", "reason", "outcome")
    out.table(columns, map(_audit_row, records), empty="no manual lock changes")


def _audit_row(record: AuditRecord) -> tuple[object, ...]:
    by, when = record.by, _time(record.at_ms)
    forced, outcome = "yes" if record.forced else "", record.outcome or "unknown: its end was not recorded"
    return when, by.user, by.host, record.action, record.lock, record.token or "", record.holder, forced, record.reason, outcome
