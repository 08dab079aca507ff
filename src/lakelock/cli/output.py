"""What a command prints: text for people or JSON for programs, from the same values; errors go to stderr.

JSON is stable: fields are added, never renamed or removed. Times are Hudi instants (UTC, `yyyyMMddHHmmssSSS`) or ISO
8601. Rows of text are in columns as wide as the terminal: what a person copies from them, such as an instant, stays in
one piece.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, is_dataclass
from datetime import datetime, timezone
from enum import Enum, IntEnum
from io import TextIOWrapper
from typing import IO, Any, TextIO

import typer
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from lakelock.errors import (
    CommitOutcomeUnknown,
    ConflictError,
    InputError,
    LakelockError,
    LockError,
    LockTimeout,
    RolledBackError,
    StorageError,
    TableError,
)
from lakelock.table.instants import is_instant_time, parse_instant

WORD = 36
"""A word of up to this width is never broken: an instant, a token."""
SHORT = 10
"""A cell of up to this width is not broken at its spaces, either: an amount with its unit."""
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\S+")
_GAP = 2


def in_columns(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str, width: int, keep: Collection[str] = ()
) -> RenderableType:
    """Rows in columns, or the sentence `empty` when there are none. Columns of numbers are aligned to the right.

    Where all columns do not fit, empty ones go first, then the last ones, those to `keep` at the end; the last line says so.
    """
    found = [["" if cell is None else str(cell) for cell in row] for row in rows]
    if not found:
        return Text(empty)
    cells = [[row[number] for row in found] for number in range(len(columns))]
    least = [max(map(_least, (name, *cells[number]))) for number, name in enumerate(columns)]
    shown = _that_fit(columns, cells, least, width, keep)
    natural = [max(map(_wide, (columns[number], *cells[number]))) for number in shown]
    widths = _narrowed(natural, [least[number] for number in shown], width)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for number, wide in zip(shown, widths, strict=True):
        justify = "right" if all(map(_is_amount, filter(None, cells[number]))) else "left"
        table.add_column(columns[number], justify=justify, width=wide, overflow="fold")  # type: ignore[arg-type]
    for row in found:
        table.add_row(*[Text(row[number]) for number in shown])
    missing = [name for number, name in enumerate(columns) if number not in shown and any(cells[number])]
    if not missing:
        return table
    return Group(table, Text(f"not shown: {', '.join(missing)}; a wider terminal or --json shows them", style="dim"))


def _is_amount(cell: str) -> bool:
    return cell.replace(".", "", 1).isdigit() and not is_instant_time(cell)


def _least(cell: str) -> int:
    """How narrow a column may be for this cell."""
    wide = _wide(cell)
    return wide if wide <= SHORT or _MOMENT.fullmatch(cell) else min(WORD, max(map(cell_len, cell.split()), default=0))


def _wide(cell: str) -> int:
    return max(map(cell_len, cell.splitlines()), default=0)


def _that_fit(
    columns: Sequence[str], cells: Sequence[Sequence[str]], least: Sequence[int], width: int, keep: Collection[str]
) -> list[int]:
    """The numbers of the columns to show; the first one is always among them."""
    shown = list(range(len(columns)))
    by_worth = sorted(shown[1:], key=lambda number: (any(cells[number]), columns[number] in keep, -number))
    for number in by_worth:
        if sum(least[each] for each in shown) + _GAP * (len(shown) - 1) <= width:
            break
        shown.remove(number)
    return shown


def _narrowed(widths: Sequence[int], least: Sequence[int], width: int) -> list[int]:
    """The widths, the widest of them reduced until all fit, but none below its least."""
    found = list(widths)
    over = sum(found) + _GAP * (len(found) - 1) - width
    for _ in range(over):
        wide = [number for number, each in enumerate(found) if each > least[number]]
        if not wide:
            break
        found[max(wide, key=lambda number: found[number])] -= 1
    return found


PLAIN_WIDTH = 100_000
"""Width of the text when it does not go to a terminal: a pipe sees whole lines."""


class Exit(IntEnum):
    """How a command ends."""

    OK = 0
    ERROR = 1
    USAGE = 2
    LOCK_HELD = 3
    CONFLICT = 4
    OUTCOME_UNKNOWN = 5


def exit_of(error: LakelockError) -> Exit:
    """The exit code that tells a script what kind of error it was."""
    if isinstance(error, CommitOutcomeUnknown):
        return Exit.OUTCOME_UNKNOWN
    if isinstance(error, ConflictError | RolledBackError):
        return Exit.CONFLICT
    if isinstance(error, LockTimeout) or type(error) is LockError:
        return Exit.LOCK_HELD
    if isinstance(error, InputError) and not isinstance(error, TableError):
        return Exit.USAGE
    return Exit.ERROR


class Output:
    """Where one command's result goes."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # as stderr does: the locale may know fewer characters
        self._console = console(sys.stdout)

    def show(self, values: Mapping[str, object], text: Callable[[Output], None]) -> None:
        """Print `values` as JSON, or call `text`, which prints them for people."""
        if self.as_json:
            with _room(sys.stdout):
                _write_json(sys.stdout, values)
        else:
            text(self)

    def line(self, text: str) -> None:
        self.text(Text(text))

    def text(self, text: Text) -> None:
        """Print a line of any length: a terminal wraps it, and what is copied from there is still one line."""
        with _room(sys.stdout):
            self._console.print(text, soft_wrap=True)

    def note(self, text: str) -> None:
        """Print a remark that is not part of the result, to stderr."""
        with suppress(OSError):
            console(sys.stderr).print(Text(text, style="dim"), soft_wrap=True)

    def table(
        self, columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str, keep: Collection[str] = ()
    ) -> None:
        """Print rows in columns, or the sentence `empty` when there are none."""
        with _room(sys.stdout):
            self._console.print(in_columns(columns, rows, empty=empty, width=self._console.width, keep=keep))

    def fields(self, values: Mapping[str, object]) -> None:
        """Print one value per line under its name; empty values are left out."""
        found = {name: str(value) for name, value in values.items() if value not in (None, "", [], ())}
        margin = max(map(len, found), default=0) + 2
        for name, value in found.items():
            self.text(Text(f"{name:<{margin}}", style="bold") + Text(value.replace("\n", "\n" + " " * margin)))


def console(stream: IO[str]) -> Console:
    width = None if stream.isatty() else PLAIN_WIDTH
    return Console(file=stream, width=width, markup=False, highlight=False)


@contextmanager
def reporting(as_json: bool) -> Iterator[Output]:
    """Run a command; an error of lakelock is printed to stderr and ends the process with its exit code."""
    try:
        yield Output(as_json=as_json)
    except LakelockError as error:
        show_error(error, as_json=as_json)
        raise typer.Exit(exit_of(error)) from None


def show_error(error: LakelockError, *, as_json: bool) -> None:
    """Print it to stderr; where that has no room the exit code alone tells."""
    with suppress(LakelockError, OSError), _room(sys.stderr):
        if as_json:
            _write_json(sys.stderr, {"error": error.as_dict()})
            return
        stderr = console(sys.stderr)
        stderr.print(Text("error: ", style="bold red") + Text(error.message), soft_wrap=True)
        if error.hint:
            stderr.print(Text("  next: ", style="bold") + Text(error.hint), soft_wrap=True)


@contextmanager
def _room(stream: TextIO) -> Iterator[None]:
    """`StorageError` where the block cannot write to the stream, as on a full disk; a closed pipe ends the command as ever."""
    try:
        yield
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        with suppress(OSError, ValueError):  # what it still holds would be tried, and fail, once more as the process ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        hint = "what the command was told to do, it may have done: look before you run it again"
        raise StorageError(f"the output cannot be written: {error.strerror or error}", hint=hint) from error


def _write_json(stream: TextIO, values: Mapping[str, object]) -> None:
    """Write JSON, in ASCII where the stream has not all of its characters."""
    text = json.dumps(plain(values), indent=2, ensure_ascii=False)
    try:
        text.encode(stream.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(plain(values), indent=2)
    stream.write(text + "\n")


def plain(value: Any) -> Any:
    """The value in JSON's types."""
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(plain(item) for item in value)
    return value if isinstance(value, bool | int | float | str) or value is None else str(value)


def moment(instant: str | None) -> str:
    """An instant time for people: `2026-11-21 09:35:15.485`, UTC."""
    return iso(parse_instant(instant)).replace("T", " ").removesuffix("Z") if instant and is_instant_time(instant) else ""


def iso(ms: int) -> str:
    """Milliseconds since 1970 as ISO 8601, UTC."""
    return datetime.fromtimestamp(ms / 1000, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
