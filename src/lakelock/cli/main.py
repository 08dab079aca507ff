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
        name: Home(f"lakelock.cli.{module}", attribute, text)
        for name, module, attribute, text in (
            ("doctor", "doctor", "doctor", "Check a table, its storage, its lock and this machine."),
            ("history", "commits", "list_commits", "List the newest commits, newest first."),
            ("audit", "timeline", "audit_table", "Find rewrites unaware of each other, and undone commits."),
            ("adopt", "table_setup", "adopt_table", "Make a table of Java Hudi writable where a write is refused."),
            ("optimize", "upkeep", "optimize_table", "Join small files into bigger ones, and compact log files."),
            ("restore", "upkeep", "restore_table", "Restore an earlier state; this can be undone in the same way."),
            ("repair", "upkeep", "repair_table", "Take out commits whose files another engine has removed."),
            ("package", "table_setup", "package", "Pack lakelock and what it needs for Spark executors."),
            ("profile", "table_setup", "profile", "Show or change the weakest profile that writers may have."),
            ("register", "table_setup", "register_table", "Tell a Hive metastore or Glue what the table is now."),
            ("timeline", "timeline", "timeline", "Write a page with who wrote when, and who was rejected."),
            ("upkeep", "upkeep", "upkeep", "Clean up after dead writers, compact, clean and archive."),
            ("clean", "upkeep", "clean", "Delete the old data files (elsewhere called vacuum)."),
            ("archive", "upkeep", "archive", "Move the oldest instants from the timeline to its history."),
            ("commits", "commits", "commits_app", "What was committed, and what became of one instant."),
            ("config", "table_setup", "config_app", "Which settings are in effect."),
            ("conflicts", "commits", "conflicts_app", "Which transactions were rejected, and why."),
            ("locks", "locks", "app", "The table's commit lock and its data locks."),
            ("markers", "markers", "app", "What writers have announced, and what dead writers left."),
            ("savepoint", "upkeep", "savepoints_app", "Keep the table as of one commit, whatever is cleaned."),
        )
    }


app = typer.Typer(
    name="lakelock",
    rich_markup_mode=None,  # to import what draws boxes around help takes as long as all the rest
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
