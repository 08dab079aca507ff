"""`lakelock locks`: who holds and who waits for the table's locks, what an operation would lock, what was done to them."""

from __future__ import annotations

import math
from dataclasses import asdict, fields
from typing import Annotated

import typer

from lakelock.admin.manual_changes import AuditRecord, read_audit
from lakelock.admin.shown_locks import COMMIT, DATA, DEAD, RESERVATION, ExplainedLock, LockRow, explained_locks, shown_locks
from lakelock.cli.arguments import ConfigOption, JsonOption, Next, SetOption, TableArgument, opened
from lakelock.cli.lock_changes import break_lock, commit_lock, migrate_lock
from lakelock.cli.output import Output, iso, reporting
from lakelock.occ.locking.targets import resources_of
from lakelock.occ.records.lock import recorded_provider
from lakelock.providers import Holder, LockState
from lakelock.providers.registry import as_settings

app = typer.Typer(no_args_is_help=True, help="The table's commit lock and its data locks.")
app.command("break")(break_lock)
app.command("migrate")(migrate_lock)

PartitionOption = Annotated[
    list[str] | None,
    typer.Option("--partition", "-p", help="A partition or prefix, such as month=1/day=2; repeatable.", show_default=False),
]

SHOWN = (
    "lock id", "database", "table", "partition", "state", "type", "blocked by", "instant", "last heartbeat", "acquired at",
    "user", "host", "agent info",
)  # fmt: skip
"""The columns of Hive's SHOW LOCKS."""
_MOST_ASKED = ("partition", "state", "type", "blocked by", "agent info")


@app.command("ls")
def list_locks(
    path: TableArgument,
    partition: PartitionOption = None,
    extended: Annotated[
        bool, typer.Option("--extended", help="Also show locks on ancestors, more columns, and manual changes to locks.")
    ] = False,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show who holds the commit lock and the data locks, who has reserved what, who waits, and for whom (SHOW LOCKS)."""
    with reporting(as_json) as out, opened(path, config, settings, lock=True) as coordinator:
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
        then = Next(path, config, settings)
        out.show(values, lambda o: _print(o, then, values, state, rows, warning, audit, extended=extended))


def _print(
    out: Output,
    then: Next,
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
            then = "its writer is dead, so nobody waits for it"
        elif row.blocked_by:
            then = f"it waits for {row.blocked_by}"
        else:
            then = "whoever came later waits until it has ended, at most retry.holder_wait_s"
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
def explain(
    operation: Annotated[
        str, typer.Argument(help='Such as "INSERT OVERWRITE PARTITION (month=1, day)" or "ADD COLUMNS".', show_default=False)
    ],
    path: TableArgument,
    partition: PartitionOption = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the data locks that an operation would take, in their order, without taking them (EXPLAIN LOCKS)."""
    with reporting(as_json) as out, opened(path, config, settings) as coordinator:
        locks = explained_locks(coordinator, operation, partition)
        values = {"table": coordinator.table.storage.uri, "operation": operation, "locks": [asdict(lock) for lock in locks]}
        out.show(values, lambda o: _print_explained(o, locks))


def _print_explained(out: Output, locks: list[ExplainedLock]) -> None:
    columns = [field.name for field in fields(ExplainedLock)]
    rows = [[lock.number, lock.database or "default", lock.table, lock.partition, lock.type] for lock in locks]
    out.table(columns, rows, empty="no locks")


@app.command("audit")
def audit(
    path: TableArgument,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many, newest first.")] = 20,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show manual changes to the table's locks: who made them, when, to which lock, why, and how they ended."""
    with reporting(as_json) as out, opened(path, config, settings) as coordinator:
        records = read_audit(coordinator.table.storage, limit)
        values = {"table": coordinator.table.storage.uri, "records": [record.as_dict() for record in records]}
        out.show(values, lambda o: _audit(o, records))


def _audit(out: Output, records: list[AuditRecord]) -> None:
    columns = ("when", "who", "host", "what", "lock", "token", "holder", "forced", "reason", "outcome")
    out.table(columns, map(_audit_row, records), empty="nobody has ever changed the locks of this table by hand")


def _audit_row(record: AuditRecord) -> tuple[object, ...]:
    by, when = record.by, _time(record.at_ms)
    forced, outcome = "yes" if record.forced else "", record.outcome or "unknown: its end was not recorded"
    return when, by.user, by.host, record.action, record.lock, record.token or "", record.holder, forced, record.reason, outcome
