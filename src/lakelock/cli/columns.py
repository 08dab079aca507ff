"""Rows in columns as wide as the terminal: what a person copies from them, such as an instant, stays in one piece."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lakelock.table.instants import is_instant_time

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
