"""`lakelock locks break` and `locks migrate`: manual changes to locks. Each change is recorded before it is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Annotated

import typer

from lakelock.admin.manual_changes import Migration, audited, migrate, plan_migration
from lakelock.cli.arguments import ConfigOption, JsonOption, Next, SetOption, TableArgument, opened, resolved
from lakelock.cli.output import Output, reporting
from lakelock.data_locks.base import FIRST_TOKEN
from lakelock.errors import CorruptTableError, LockError, SettingsError
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.records.lock import compare_locks, recorded_provider
from lakelock.providers import LockProvider, open_provider, provider_name
from lakelock.providers.registry import WITHOUT_OPTIONS
from lakelock.settings import Settings
from lakelock.texts import counted

ReasonOption = Annotated[str, typer.Option("--reason", help="Why, for the audit record.", show_default=False)]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def break_lock(
    path: TableArgument,
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
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take a lock away from its holder: only needed when the holder is gone and its lease does not end.

    A holder that turns out to be alive can do no harm: the decision log checks its commit again.
    """
    with reporting(as_json) as out:
        if everything and not (data and force):
            raise SettingsError("--all is for data locks that block everybody", hint="use --data --all --force")
        look = Next(path, config, settings).command("locks ls")
        if everything and token is not None:
            raise SettingsError("--all breaks the data locks of all tokens", hint="give --token or --all, not both")
        if token is None and not everything:
            raise SettingsError("which grant is to be broken?", hint=f"`{look}` shows tokens; add --token N")
        if data and token is not None and token < FIRST_TOKEN:
            hint = f"`{look}` shows tokens; --data --all --force breaks all data locks"
            raise SettingsError(f"{token} is not a token of data locks, which count from {FIRST_TOKEN}", hint=hint)
        with opened(path, config, settings, lock=True) as coordinator:
            _ensure_recorded(coordinator)
            act = _Breaking(coordinator, token, data=data, force=force, reason=reason)
            if act.holder and not yes:
                _ask(act.question, as_json=as_json)
            act.run()
            out.show(act.values, lambda o: o.line(act.summary))


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
        """Who would lose it; empty if nobody would. With `force` an unreadable lock counts as held."""
        try:
            return self._data_holder() if self.data else self._commit_holder()
        except CorruptTableError:
            if not self.force or (self.data and self.token is not None):
                raise
            return "somebody unknown"

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
            return "nothing to break: nobody has data locks"
        return "nothing to break: no data locks have this token" if self.data else "nothing to break: the lock is free"

    @property
    def values(self) -> dict[str, object]:
        uri = self.coordinator.table.storage.uri
        return {"table": uri, "provider": self.identity, "broken": bool(self.holder), "token": self.token}

    def run(self) -> None:
        """Break it, between the two halves of its audit record; a lock that nobody holds is only looked at."""
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


def _ask(question: str, *, as_json: bool) -> None:
    if as_json:
        raise SettingsError("--json does not ask", hint="add --yes")
    typer.confirm(question, abort=True, err=True)


def migrate_lock(
    path: TableArgument,
    to: Annotated[str, typer.Option("--to", help="The new lock, as a URI for lock.provider.", show_default=False)],
    to_set: Annotated[
        list[str] | None,
        typer.Option("--to-set", help="An option of the new lock: lock.options.NAME=VALUE.", show_default=False),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done and which writers are in the way.")
    ] = False,
    reason: ReasonOption = "",
    yes: YesOption = False,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Move the table to another lock, while no writer is live. Use the settings that the writers have had until now.

    Both locks are held while the record changes. A writer that still has the old setting is refused from then on, at its
    next begin or commit. Java Hudi writers ignore the record: change their settings yourself.
    """
    with reporting(as_json) as out, opened(path, config, settings, lock=True) as coordinator:
        commit_lock(coordinator)
        table = coordinator.table
        options = _options_of(to, to_set, table.settings)
        changed = replace(table.settings, lock=replace(table.settings.lock, provider=to), lock_options=options)
        new = open_provider(changed, table.storage, table.runtime, table.writer, table.events)
        try:
            plan = plan_migration(coordinator, new)
            if plan.needed and not dry_run and not yes:
                _ask(f"Move {plan.table} from the lock {plan.recorded} to {plan.to}?", as_json=as_json)
            done = plan if dry_run or not plan.needed else migrate(coordinator, new, reason=reason)
        finally:
            new.close()
        out.show({**asdict(done), "dry_run": dry_run}, lambda o: _print_migration(o, done, dry_run=dry_run))
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
        out.line("now set lock.provider in every writer, including Java Hudi writers, which ignore the record")


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
