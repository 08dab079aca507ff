"""The transactions of a table as bars over time: what was committed, rejected and is pending, and who was in whose way.

They are one HTML page that needs nothing else: no script, no network. Every text in it is escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

from lakelock.identity import OTHER_ENGINE
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.history import HistoryEntry
from lakelock.occ.rejections import Rejection, read_rejection, rejected_instants
from lakelock.table.instants import format_instant, parse_instant
from lakelock.texts import counted


@dataclass(frozen=True)
class Bar:
    """One transaction, from its instant to its end; times in milliseconds since 1970 UTC.

    `outcome` is `committed`, `rejected` or `pending`. `blocked_by` is the instant of the one that it met, and `rule` says by
    which rule. `waited_ms` and `locked_ms` are what the lock took at its end.
    """

    instant: str
    began_ms: int
    ended_ms: int
    outcome: str
    operation: str
    writer: str
    told: str
    rule: str = ""
    blocked_by: str = ""
    waited_ms: int = 0
    locked_ms: int = 0


def read_bars(coordinator: Coordinator, limit: int) -> tuple[Bar, ...]:
    """The newest `limit` commits, and what was rejected or is pending since the first of them began."""
    table = coordinator.table
    commits = [_of_commit(entry) for entry in coordinator.history(limit)]
    first = min((bar.instant for bar in commits), default="")
    rejections = (read_rejection(table.storage, i) for i in rejected_instants(table.storage)[:limit] if i >= first)
    now_ms = table.runtime.now_ms()
    pending = [
        Bar(
            i.requested, parse_instant(i.requested), max(now_ms, parse_instant(i.requested)), "pending", i.action, "", "pending"
        )
        for i in table.timeline().pending
        if i.requested >= first
    ]
    return in_order([*commits, *(_of_rejection(found) for found in rejections if found is not None), *pending])


def in_order(bars: Iterable[Bar]) -> tuple[Bar, ...]:
    return tuple(sorted(bars, key=lambda bar: (bar.began_ms, bar.instant)))


def lanes_of(bars: Sequence[Bar]) -> dict[str, int]:
    """A lane for each instant, in which no two bars overlap; transactions of one writer are beside each other."""
    lanes: dict[str, int] = {}
    used = 0
    for writer in dict.fromkeys(bar.writer for bar in bars):
        free_ms: list[int] = []
        for bar in (bar for bar in bars if bar.writer == writer):
            lane = next((number for number, end_ms in enumerate(free_ms) if end_ms <= bar.began_ms), len(free_ms))
            if lane == len(free_ms):
                free_ms.append(0)
            free_ms[lane] = bar.ended_ms
            lanes[bar.instant] = used + lane
        used += len(free_ms)
    return lanes


def _of_commit(entry: HistoryEntry) -> Bar:
    began_ms = parse_instant(entry.instant)
    ended_ms = max(began_ms, parse_instant(entry.completion or entry.instant))
    rows = f"{entry.rows_inserted:,} inserted, {entry.rows_updated:,} updated, {entry.rows_deleted:,} deleted"
    told = f"{rows}, {counted(entry.files, 'file')}"
    return Bar(
        entry.instant, began_ms, ended_ms, "committed", entry.operation, entry.writer or OTHER_ENGINE, told,
        waited_ms=round((entry.lock_wait_s or 0) * 1000), locked_ms=round((entry.lock_s or 0) * 1000),
    )  # fmt: skip


def _of_rejection(found: Rejection) -> Bar:
    began_ms, conflict = parse_instant(found.instant), found.conflict
    return Bar(
        found.instant, began_ms, max(began_ms, found.at_ms), "rejected", found.operation, str(found.writer), found.message,
        rule=str(conflict.rule) if conflict is not None else "",
        blocked_by=conflict.other.instant if conflict is not None else "",
    )  # fmt: skip


WIDTH, LANE, LEFT, RIGHT, TOP, LEAST = 1400, 26, 260, 50, 40, 3
"""Pixels. `RIGHT` has room for half of the last time, which is written in the middle of its line."""
_STYLE = """
body{font:14px system-ui,sans-serif;margin:2em;color:#212529}svg{border:1px solid #dee2e6;background:#fff}
text{font-size:11px;fill:#495057}.committed{fill:#2f9e44}.rejected{fill:#e8590c}.pending{fill:#4dabf7}.waited{fill:#adb5bd}
.locked{fill:#1b1b1b}.arrow{stroke:#c92a2a;stroke-width:1.5;fill:none;marker-end:url(#head)}.tick{stroke:#e9ecef}
.key span{display:inline-block;width:12px;height:12px;margin:0 .4em 0 1.2em}
"""
_KEY = (("committed", "#2f9e44"), ("rejected", "#e8590c"), ("pending", "#4dabf7"), ("waited for the lock", "#adb5bd"),
        ("held the lock", "#1b1b1b"), ("conflict: from the rejected transaction to the one it met", "#c92a2a"))  # fmt: skip


def timeline_page(uri: str, bars: Sequence[Bar]) -> str:
    """The page. Bars in order of their beginning; hover over one for what it did."""
    lanes = lanes_of(bars)
    start_ms = min((bar.began_ms for bar in bars), default=0)
    span_ms = max(1, max((bar.ended_ms for bar in bars), default=1) - start_ms)
    height = TOP + LANE * (max(lanes.values(), default=0) + 1) + 20

    def x(ms: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * (ms - start_ms) / span_ms, 1)

    def middle(bar: Bar) -> float:
        return TOP + LANE * lanes[bar.instant] + LANE / 2

    drawn = [*_ticks(start_ms, span_ms, height, x), _writers(bars, middle, height)]
    drawn += [part for bar in bars for part in _bar(bar, x, middle(bar))]
    by_instant = {bar.instant: bar for bar in bars}
    for bar in bars:
        other = by_instant.get(bar.blocked_by)
        if other is not None:
            drawn.append(
                f'<path class="arrow" d="M{x(bar.ended_ms)} {middle(bar)} L{x(other.ended_ms)} {middle(other)}">'
                f"<title>{escape(bar.rule)}: {escape(bar.instant)} met {escape(other.instant)}</title></path>"
            )
    key = "".join(f'<span style="background:{colour}"></span>{escape(text)}' for text, colour in _KEY)
    counts = ", ".join(f"{sum(bar.outcome == o for bar in bars)} {o}" for o in ("committed", "rejected", "pending"))
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/><title>{escape(uri)}</title>'
        f"<style>{_STYLE}</style></head>"
        f'<body><h1>Transactions of {escape(uri)}</h1><p>{counts}. Times in UTC.</p><p class="key">{key}</p>'
        f'<svg width="{WIDTH}" height="{height}" xmlns="http://www.w3.org/2000/svg"><defs><marker id="head" viewBox="0 0 8 8" '
        'refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#c92a2a"/></marker>'
        f"</defs>{''.join(drawn)}</svg></body></html>\n"
    )


def _ticks(start_ms: int, span_ms: int, height: int, x: Callable[[float], float]) -> list[str]:
    found = []
    for part in range(7):
        at_ms = start_ms + span_ms * part // 6
        told, place = format_instant(at_ms), x(at_ms)
        text = f"{told[8:10]}:{told[10:12]}:{told[12:14]}.{told[14:]}"
        found.append(f'<line class="tick" x1="{place}" y1="{TOP - 8}" x2="{place}" y2="{height}"/>')
        found.append(f'<text x="{place}" y="{TOP - 14}" text-anchor="middle">{text}</text>')
    return found


def _writers(bars: Sequence[Bar], middle: Callable[[Bar], float], height: int) -> str:
    """The names, in a column that cuts off what would run under the bars; hover over one for the whole name."""
    first: dict[str, Bar] = {}
    for bar in bars:
        known = first.get(bar.writer)
        if known is None or middle(bar) < middle(known):
            first[bar.writer] = bar
    names = (
        f'<text class="writer" x="8" y="{middle(bar) + 4}">{escape(writer)}<title>{escape(writer)}</title></text>'
        for writer, bar in first.items()
    )
    return f'<svg width="{LEFT - 10}" height="{height}">{"".join(names)}</svg>'


def _bar(bar: Bar, x: Callable[[float], float], middle: float) -> list[str]:
    top, tall = middle - LANE / 2 + 4, LANE - 8

    def rectangle(kind: str, from_ms: float, to_ms: float, least: float) -> str:
        left = x(max(bar.began_ms, from_ms))
        wide = round(max(least, x(to_ms) - left), 1)
        return f'<rect class="{kind}" x="{left}" y="{top}" width="{wide}" height="{tall}" rx="2"/>'

    title = f"{bar.operation} {bar.instant} ({bar.outcome}) by {bar.writer or 'a writer'}: {bar.told}"
    parts = [f"<g><title>{escape(title)}</title>", rectangle(bar.outcome, bar.began_ms, bar.ended_ms, LEAST)]
    locked_from_ms = bar.ended_ms - bar.locked_ms
    if bar.waited_ms:
        parts.append(rectangle("waited", locked_from_ms - bar.waited_ms, locked_from_ms, 0))
    if bar.locked_ms:
        parts.append(rectangle("locked", locked_from_ms, bar.ended_ms, 0))
    return [*parts, "</g>"]
