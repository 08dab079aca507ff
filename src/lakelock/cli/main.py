"""`lakelock` on the command line. Text for people, `--json` for programs, and wrong calls in the same two forms.

Exit codes: 0 ok, 1 error, 2 usage, 3 lock held, 4 conflict (or: this instant was rejected), 5 outcome unknown (yet).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from typing import Annotated, Any, ClassVar, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from lakelock.cli.output import show_error
from lakelock.errors import InputError
from lakelock.identity import version
from lakelock.texts import nearest

_JSON = "--json"
_MEANT = {
    "log": "commits ls",
    "vacuum": "clean",
    "compact": "optimize",
    "rollback": "restore",
    "show": "commits show",
    "unlock": "locks break",
}
"""What other systems call a command of ours."""
_MAY_BE_EMPTY = ("--reason", "--tag")
UsageError = cast("type[Exception]", typer.BadParameter.__mro__[1])
"""What every error of a call is. Releases of typer have it in different places."""


@dataclass(frozen=True)
class Home:
    """Where a command is, or a group of commands, and what `--help` says of it: that needs none of their modules."""

    module: str
    attribute: str
    help: str

    def load(self, name: str) -> Any:
        """The command, with its module and all that this needs."""
        found = getattr(import_module(self.module), self.attribute)
        parent = typer.Typer(add_completion=False)
        parent.callback()(lambda: None)
        if isinstance(found, typer.Typer):
            parent.add_typer(found, name=name)
        else:
            parent.command(name)(found)
        group: Any = get_command(parent)
        command = group.commands[name]
        for each in (command, *getattr(command, "commands", {}).values()):
            each.help = "\n\n".join(" ".join(part.split()) for part in (each.help or "").split("\n\n"))
        return command


class Commands(TyperGroup):
    """All commands of the command line."""

    homes: ClassVar[Mapping[str, Home]] = {}
    _lists = False

    def list_commands(self, ctx: Any) -> list[str]:
        return [*self.homes]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        home = self.homes.get(cmd_name)
        if home is None:
            return None
        if self._lists:
            return TyperCommand(cmd_name, help=home.help)
        if cmd_name not in self.commands:
            self.commands[cmd_name] = home.load(cmd_name)
        return self.commands[cmd_name]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._lists = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._lists = False

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        as_json = _JSON in args
        with _errors_reported(as_json):
            _refuse_empty(args)
            context = super().make_context(info_name, args, parent, **extra)
        context.meta[_JSON] = as_json
        return context

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.homes and not args[0].startswith("-"):
            meant = _MEANT.get(args[0]) or nearest(args[0], self.list_commands(ctx))
            if meant is not None:
                ctx.fail(f"No such command {args[0]!r}. Did you mean `lakelock {meant}`?")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with _errors_reported(ctx.meta[_JSON]):
            return super().invoke(ctx)


def _refuse_empty(args: Sequence[str]) -> None:
    """`UsageError` for an empty text, as of a variable that is not set: it never means that an argument was left out."""
    for before, given in pairwise(["", *args]):
        name = given.rstrip("=") if given.startswith("--") and given.endswith("=") else before if not given.strip() else None
        if name is not None and name not in _MAY_BE_EMPTY:
            what = name if name.startswith("-") else "an argument"
            raise typer.BadParameter(f"{what} is an empty text. Give it a value, or leave it out.")


@contextmanager
def _errors_reported(as_json: bool) -> Iterator[None]:
    try:
        yield
    except UsageError as error:
        if not as_json:
            raise
        wrong: Any = error
        help_of = f"{wrong.ctx.command_path} --help" if wrong.ctx is not None else ""
        show_error(InputError(wrong.format_message(), hint=help_of), as_json=True)
        raise typer.Exit(wrong.exit_code) from None


class _AllCommands(Commands):
    homes: ClassVar[Mapping[str, Home]] = {
        "doctor": Home(
            "lakelock.cli.doctor",
            "doctor",
            "Check a table, its storage, its lock and this machine; exit code 1 when a check failed, 0 otherwise.",
        ),
        "history": Home("lakelock.cli.commits", "list_commits", "List the newest commits, newest first."),
        "audit": Home(
            "lakelock.cli.timeline",
            "audit_table",
            "Find commits that rewrote the same file groups unaware of each other, and commits that another engine has undone; "
            "exit code 4 if there are any.",
        ),
        "adopt": Home(
            "lakelock.cli.table_setup",
            "adopt_table",
            "Make a table of Java Hudi writable where a write is refused, and print what its Java writers need.",
        ),
        "optimize": Home(
            "lakelock.cli.upkeep",
            "optimize_table",
            "Join small files into bigger ones, and compact log files.",
        ),
        "restore": Home(
            "lakelock.cli.upkeep",
            "restore_table",
            "Restore an earlier state of the table: a new commit undoes what came after it, and can be undone in the same way.",
        ),
        "repair": Home(
            "lakelock.cli.upkeep",
            "repair_table",
            "Take commits out of the table whose files another engine's rollback has removed, so that it can be read again.",
        ),
        "package": Home(
            "lakelock.cli.table_setup", "package", "Pack lakelock and what it needs into an archive for Spark executors."
        ),
        "profile": Home(
            "lakelock.cli.table_setup", "profile", "Show or change the weakest profile that writers of a table may have."
        ),
        "register": Home(
            "lakelock.cli.table_setup",
            "register_table",
            "Tell a Hive metastore or Glue of a table: its columns, its partitions and its newest commit.",
        ),
        "timeline": Home(
            "lakelock.cli.timeline",
            "timeline",
            "Write a page with who wrote when, for how long, who waited, and who was rejected because of whom.",
        ),
        "upkeep": Home(
            "lakelock.cli.upkeep",
            "upkeep",
            "Finish what the dead left, compact log files, delete old files, archive old instants, collect old decisions.",
        ),
        "clean": Home(
            "lakelock.cli.upkeep", "clean", "Delete the old data files that `clean.*` does not keep (elsewhere called vacuum)."
        ),
        "archive": Home(
            "lakelock.cli.upkeep",
            "archive",
            "Move the oldest instants from the active timeline to its history, where every reader still finds them.",
        ),
        "commits": Home("lakelock.cli.commits", "commits_app", "What was committed, and what became of one instant."),
        "config": Home("lakelock.cli.table_setup", "config_app", "Which settings are in effect."),
        "conflicts": Home("lakelock.cli.commits", "conflicts_app", "Which transactions were rejected, and why."),
        "locks": Home("lakelock.cli.locks", "app", "The table's commit lock and its data locks."),
        "markers": Home("lakelock.cli.markers", "app", "What writers have announced, and what dead writers left."),
        "savepoint": Home("lakelock.cli.upkeep", "savepoints_app", "Keep the table as of one commit, whatever is cleaned."),
    }


app = typer.Typer(
    name="lakelock",
    cls=_AllCommands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Look at a lakelock table, its commits, its lock and its writers, and clean up where a writer died.",
    epilog="Exit codes: 0 ok, 1 error, 2 usage, 3 lock held, 4 conflict or rejected, 5 outcome unknown.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lakelock {version()}")
        raise typer.Exit


@app.callback()
def main(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass
