"""What a person sees while the demo runs: one lane per writer on a terminal, plain lines otherwise."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tests.demo.story import Step

STYLES = {"plain": "cyan", "wait": "bright_black", "good": "green", "bad": "bold red", "odd": "bold magenta"}
ARROW = (" → ", "bright_black")
TRAIL = 40
"""Steps of a lane that are kept; the view shows as many of the newest as fit."""
ROWS = 2


class View(Protocol):
    """Shows steps as they come; a context manager, because a live view must give the terminal back."""

    def __enter__(self) -> View: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...

    def show(self, steps: Sequence[Step], elapsed_s: float, phase: str) -> None:
        """Show new steps, in order of time. Called several times a second, even with none."""
        ...


def open_view(console: Console, abouts: Mapping[str, str], *, plain: bool) -> View:
    """Lanes where the console is a terminal that can redraw; plain lines with `plain`, `NO_COLOR`, or into a file."""
    if plain or "NO_COLOR" in os.environ or not console.is_terminal:
        return PlainView(console)
    return LaneView(console, abouts)


class PlainView:
    """One line per milestone, greppable: seconds, writer, step. Silent in between."""

    def __init__(self, console: Console) -> None:
        self._console, self._phase = console, ""

    def __enter__(self) -> PlainView:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return None

    def show(self, steps: Sequence[Step], elapsed_s: float, phase: str) -> None:
        if phase != self._phase:
            self._phase = phase
            self._line(f"{elapsed_s:6.1f} s  {phase}")
        for step in steps:
            if step.milestone:
                self._line(f"{step.at_s:6.1f} s  {step.writer:<13} {step.text}")

    def _line(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class LaneView:
    """A lane per writer: what it is for, and its steps with the newest at the right, redrawn in place."""

    def __init__(self, console: Console, abouts: Mapping[str, str]) -> None:
        self._console, self._abouts = console, abouts
        self._trails: dict[str, list[Step]] = {writer: [] for writer in abouts}
        self._live = Live(console=console, auto_refresh=False, transient=False)

    def __enter__(self) -> LaneView:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.stop()

    def show(self, steps: Sequence[Step], elapsed_s: float, phase: str) -> None:
        for step in steps:
            trail = self._trails.setdefault(step.writer, [])
            if trail and not trail[-1].milestone:
                trail.pop()
            trail.append(step)
            del trail[:-TRAIL]
        self._live.update(self.picture(elapsed_s, phase), refresh=True)

    def picture(self, elapsed_s: float, phase: str) -> Group:
        """The whole view as it stands."""
        title = Text.assemble(("lakelock", "bold"), f"  {phase}  ", (f"{elapsed_s:.0f} s", "bright_black"))
        lanes = Table.grid(padding=(0, 2), expand=True)
        lanes.add_column(no_wrap=True)
        lanes.add_column(ratio=1)
        width = max(30, self._console.width - 16)
        for writer, trail in self._trails.items():
            rows = rows_of(trail, width) or [Text("not started", style="bright_black")]
            if len(rows) == 1:
                about = Text(self._abouts.get(writer, ""), style="bright_black", no_wrap=True, overflow="ellipsis")
                rows.insert(0, about)
            lanes.add_row(Text(writer, style="bold"), Group(*rows))
        return Group(title, Text(), lanes)


def rows_of(trail: Sequence[Step], width: int) -> list[Text]:
    """The newest steps that fit into two rows, oldest first; a step that is too long for a row is cut."""
    rows: list[Text] = []
    for step in reversed(trail):
        text = Text(step.text, style=STYLES[step.tone], no_wrap=True)
        longer = Text.assemble(text, ARROW, rows[0]) if rows else text
        if rows and longer.cell_len <= width:
            rows[0] = longer
        elif len(rows) < ROWS:
            text.truncate(width, overflow="ellipsis")
            rows.insert(0, text)
        else:
            break
    return rows
