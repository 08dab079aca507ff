"""How a wrong call is told: as a text for people, and as JSON where the call asks for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, cast

import typer
from typer.core import TyperGroup

from lakelock.cli.output import show_error
from lakelock.errors import InputError
from lakelock.near_misses import nearest

_JSON = "--json"
_MEANT = {
    "history": "commits ls",
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


class Commands(TyperGroup):
    """All commands of the command line."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        as_json = _JSON in args
        with _told(as_json):
            _refuse_empty(args)
            context = super().make_context(info_name, args, parent, **extra)
        context.meta[_JSON] = as_json
        return context

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            meant = _MEANT.get(args[0]) or nearest(args[0], self.list_commands(ctx))
            if meant is not None:
                ctx.fail(f"No such command {args[0]!r}. Did you mean `lakelock {meant}`?")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with _told(ctx.meta[_JSON]):
            return super().invoke(ctx)


def _refuse_empty(args: Sequence[str]) -> None:
    """`UsageError` for an empty text, as of a variable that is not set: it never means that an argument was left out."""
    for before, given in pairwise(["", *args]):
        name = given.rstrip("=") if given.startswith("--") and given.endswith("=") else before if not given.strip() else None
        if name is not None and name not in _MAY_BE_EMPTY:
            what = name if name.startswith("-") else "an argument"
            raise typer.BadParameter(f"{what} is an empty text. Give it a value, or leave it out.")


@contextmanager
def _told(as_json: bool) -> Iterator[None]:
    try:
        yield
    except UsageError as error:
        if not as_json:
            raise
        wrong: Any = error
        help_of = f"{wrong.ctx.command_path} --help" if wrong.ctx is not None else ""
        show_error(InputError(wrong.format_message(), hint=help_of), as_json=True)
        raise typer.Exit(wrong.exit_code) from None
