"""`lakelock locks`: who holds the table's commit lock, and taking it away from a holder that is gone."""

from __future__ import annotations

from typing import Annotated

import typer

from lakelock.cli.arguments import ConfigOption, JsonOption, SetOption, TableArgument, opened
from lakelock.cli.output import Output, iso, reporting
from lakelock.errors import CorruptTableError, SettingsError
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.recorded_lock import recorded_provider
from lakelock.providers import Holder, LockProvider, LockState

app = typer.Typer(no_args_is_help=True, help="Who holds the table's commit lock.")


@app.command("ls")
def list_locks(
    path: TableArgument, config: ConfigOption = None, settings: SetOption = None, as_json: JsonOption = False
) -> None:
    """Show who holds the commit lock of the table and who waits for it."""
    with reporting(as_json) as out, opened(path, config, settings, lock=True) as coordinator:
        provider = _provider(coordinator)
        state = provider.inspect()
        recorded = recorded_provider(coordinator.table.storage)
        values = {
            "table": coordinator.table.storage.uri,
            "provider": provider.identity,
            "recorded": recorded,
            "state": "held" if state.holder else "free",
            "token": state.token,
            "holder": _holder(state.holder) if state.holder else None,
            "queue": [_holder(waiting) for waiting in state.queue],
        }
        out.show(values, lambda o: _print(o, path, provider, state, recorded))


def _print(out: Output, path: str, provider: LockProvider, state: LockState, recorded: str | None) -> None:
    out.line(f"lock {provider.identity}")
    if recorded not in (None, provider.identity):
        out.line(f"warning: the table is guarded by {recorded}; set lock.provider to it")
    columns = ("state", "by", "user", "host", "pid", "token", "lease s", "since", "renewed")
    holders = ([("held", state.holder)] if state.holder else []) + [("waiting", waiting) for waiting in state.queue]
    out.table(columns, [_row(what, holder) for what, holder in holders], empty=f"free; the latest token is {state.token}")
    if state.holder:
        out.line(f"to take it away from a holder that is gone: lakelock locks break {path} --token {state.token}")


def _row(what: str, holder: Holder) -> tuple[object, ...]:
    writer = holder.writer
    since, renewed = (iso(at_ms) if at_ms else "" for at_ms in (holder.since_ms, holder.renewed_ms))
    who = (writer.application, writer.user, writer.host, writer.pid) if writer else (str(holder), "", "", "")
    return (what, *who, holder.token, holder.lease_s, since, renewed)


def _holder(holder: Holder) -> dict[str, object]:
    since, renewed = (iso(at_ms) if at_ms else None for at_ms in (holder.since_ms, holder.renewed_ms))
    return {**holder.as_dict(), "since": since, "renewed": renewed}


@app.command("break")
def break_lock(
    path: TableArgument,
    token: Annotated[int, typer.Option("--token", help="Token of the grant to break, from `locks ls`.", show_default=False)],
    force: Annotated[bool, typer.Option("--force", help="Break it even while its lease still runs.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take the commit lock away from its holder: only needed for a holder that is gone and whose lease does not end.

    A holder that is alive after all cannot do harm: its commit is checked again by the decision log.
    """
    with reporting(as_json) as out, opened(path, config, settings, lock=True) as coordinator:
        provider = _provider(coordinator)
        holder = _holder_to_break(provider, force=force)
        if holder and not yes:
            if as_json:
                raise SettingsError("--json does not ask", hint="add --yes")
            typer.confirm(f"Break the lock that {holder} holds with token {token}?", abort=True, err=True)
        provider.break_lock(token, force=force)
        values = {
            "table": coordinator.table.storage.uri,
            "provider": provider.identity,
            "broken": bool(holder),
            "token": token,
        }
        out.show(
            values,
            lambda o: o.line(f"broken: {holder} no longer holds the lock" if holder else "nothing to break: the lock is free"),
        )


def _holder_to_break(provider: LockProvider, *, force: bool) -> str:
    """Who would lose the lock, empty when it is free. With `force` a lock that cannot be read counts as held."""
    try:
        holder = provider.inspect().holder
    except CorruptTableError:
        if not force:
            raise
        return "somebody unknown"
    return str(holder) if holder else ""


def _provider(coordinator: Coordinator) -> LockProvider:
    provider = coordinator.table.provider
    if provider is None:
        raise SettingsError(
            "concurrency.mode is SINGLE_WRITER: there is no lock", hint="name the lock the writers use: --set lock.provider=..."
        )
    return provider
