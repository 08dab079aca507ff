"""The transactions of a table as bars over time: committed, rejected or pending, and which one was in the way of another.

They are one HTML page that needs nothing else: no script, no network. Every text in it is escaped. Time runs in bands, one
below the other, each on a scale of its own: a new one begins after a time without any transaction, and where one would be too
full to read. In a band, a long time in which nothing begins or ends is folded. Places are percentages of the page's width, so
it fits any screen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from itertools import chain, pairwise

import numpy as np

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
    which rule; `why` explains it, in lines by name. `waited_ms` and `locked_ms` are what the lock took at its end. `rows` were
    inserted, updated and deleted; None where that is not known.
    """

    instant: str
    began_ms: int
    ended_ms: int
    outcome: str
    operation: str
    writer: str
    summary: str
    rule: str = ""
    blocked_by: str = ""
    waited_ms: int = 0
    locked_ms: int = 0
    rows: int | None = None
    why: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """What stands on the bar."""
        return self.operation if self.rows is None else f"{self.operation} {self.rows:,}"


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
    """A lane for each instant, in which no two bars overlap; transactions of one writer are next to each other."""
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
    summary = f"{rows}, {counted(entry.files, 'file')}"
    return Bar(
        entry.instant, began_ms, ended_ms, "committed", entry.operation, entry.writer or OTHER_ENGINE, summary,
        waited_ms=round((entry.lock_wait_s or 0) * 1000), locked_ms=round((entry.lock_s or 0) * 1000), rows=entry.rows,
    )  # fmt: skip


def _of_rejection(found: Rejection) -> Bar:
    began_ms, conflict = parse_instant(found.instant), found.conflict
    return Bar(
        found.instant, began_ms, max(began_ms, found.at_ms), "rejected", found.operation, str(found.writer), found.message,
        rule=str(conflict.rule) if conflict is not None else "",
        blocked_by=conflict.other.instant if conflict is not None else "",
        why=found.explanation.facts() if found.explanation is not None else {"because": found.message},
    )  # fmt: skip


MOST_IN_A_BAND, LONG_IDLE, LEAST_IDLE_MS = 24, 0.2, 2_000
"""How many bars fill a band; and how long an idle time must be to end it: at least this part of its span, and so many ms."""
FOLDED, FOLD, FOLDS_FROM = 0.3, 0.12, 8
"""In a band of at least so many bars (`FOLDS_FROM`), a time in which nothing begins or ends, and which is more than the part
`FOLDED` of its span, is drawn as the part `FOLD` of the rest: one long transaction then leaves room to see the short ones."""
LANE_PX, NAME_PX, LABEL, LEAST = 26, 20, 15.0, 0.4
"""Heights in pixels; the room for a bar's label and the least width of a bar, in percent of the width."""
_STYLE = """
:root{color-scheme:light dark;--text:#1f2328;--dim:#59636e;--line:#d1d9e0;--page:#fff;--card:#f6f8fa;--committed:#1a7f37;
--rejected:#bc4c00;--pending:#0969da;--waited:#8c959f;--locked:#1f2328;--arrow:#cf222e}
@media(prefers-color-scheme:dark){:root{--text:#f0f6fc;--dim:#9198a1;--line:#3d444d;--page:#0d1117;--card:#151b23;
--committed:#238636;--rejected:#bd561d;--pending:#1f6feb;--waited:#656c76;--locked:#f0f6fc;--arrow:#f85149}}
*{box-sizing:border-box}body{font:14px/1.4 system-ui,sans-serif;margin:0 auto;padding:1.2em;max-width:1600px;color:var(--text);
background:var(--page)}h1{font-size:1.3em;margin:0;overflow-wrap:anywhere}p{margin:.4em 0;color:var(--dim)}
.key span{display:inline-block;margin-right:1.2em}.key i{display:inline-block;width:12px;height:12px;border-radius:2px;
margin-right:.4em;vertical-align:-1px}.idle{margin:.8em 0;text-align:center}
section{border:1px solid var(--line);border-radius:6px;margin-top:1em;padding:.6em .8em;background:var(--card)}
h2{font-size:1em;margin:0}.band{position:relative;margin-top:1.6em}
.tick{position:absolute;top:0;bottom:0;border-left:1px solid var(--line)}.tick span{position:absolute;top:-1.5em;left:0;
font-size:11px;color:var(--dim);white-space:nowrap;transform:translateX(-50%)}.tick.first span{transform:none}
.tick.last span{transform:translateX(-100%)}
.fold{position:absolute;top:0;bottom:0;background:repeating-linear-gradient(135deg,var(--line) 0 1px,transparent 1px 7px)}
.fold span{position:absolute;bottom:-1.5em;font-size:11px;color:var(--dim);
white-space:nowrap}.folded{margin-bottom:1.4em}.label abbr{display:none}
.writer{position:absolute;left:0;right:0;height:20px;font-size:12px;color:var(--dim);overflow:hidden;text-overflow:ellipsis;
white-space:nowrap}.writer b{color:var(--text)}
.bar{position:absolute;height:18px;border-radius:3px;overflow:hidden;display:block}.bar i{position:absolute;top:0;bottom:0}
.committed{background:var(--committed)}.rejected{background:var(--rejected)}.pending{background:var(--pending)}
.waited{background:var(--waited)}.locked{background:var(--locked)}a.bar:hover{outline:2px solid var(--text)}
.label b{font-weight:inherit}
.label{position:absolute;height:18px;font-size:11px;line-height:18px;padding:0 4px;overflow:hidden;text-overflow:ellipsis;
white-space:nowrap;pointer-events:none}.label.on{color:#fff}
svg{position:absolute;inset:0;width:100%;height:100%;pointer-events:none}.arrow{stroke:var(--arrow);stroke-width:1.5;fill:none;
vector-effect:non-scaling-stroke}.hit{position:absolute;width:8px;height:8px;border-radius:50%;background:var(--arrow);
transform:translate(-50%,-50%);pointer-events:none}
@media(max-width:600px){.between span{display:none}.label{font-size:9px;padding:0 2px}.label b{display:none}
.label abbr{display:inline}section{padding:.5em}}
.why{display:none;border:1px solid var(--rejected);border-radius:6px;margin-top:.8em;padding:.6em .8em;background:var(--page)}
.why:target{display:block;scroll-margin-top:60vh}.why a{float:right;color:var(--pending)}.why dl{margin:0;display:grid;
gap:.2em 1em;grid-template-columns:max-content 1fr}
.why dt{color:var(--dim)}.why dd{margin:0;white-space:pre-line;overflow-wrap:anywhere}
"""
_KEY = (("committed", "committed"), ("rejected", "rejected: click for why"), ("pending", "pending"),
        ("waited", "waited for the lock"), ("locked", "held the lock"), ("arrow", "in the way of a rejected one"))  # fmt: skip


def timeline_page(uri: str, bars: Sequence[Bar]) -> str:
    """The page. Bars in order of their beginning; hover over one for what it did, click a rejected one for why."""
    counts = ", ".join(f"{sum(bar.outcome == o for bar in bars)} {o}" for o in ("committed", "rejected", "pending"))
    key = "".join(f'<span><i style="background:var(--{name})"></i>{escape(text)}</span>' for name, text in _KEY)
    drawn: list[str] = []
    until_ms = None
    for band in bands_of(bars):
        if until_ms is not None and band[0].began_ms - until_ms >= LEAST_IDLE_MS:
            drawn.append(f'<p class="idle">{_length(band[0].began_ms - until_ms)} without a transaction</p>')
        until_ms = max(bar.ended_ms for bar in band)
        drawn.append(_Band.of(band).html())
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/><title>{escape(uri)}</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"/><style>{_STYLE}</style></head>'
        f'<body><h1>Transactions of {escape(uri)}</h1><p>{counts}. Times in UTC.</p><p class="key">{key}</p>'
        f"{''.join(drawn)}</body></html>\n"
    )


def bands_of(bars: Sequence[Bar]) -> list[list[Bar]]:
    """The bars in order, parted where nothing happened for long, or where a band is full and no bar goes on."""
    found: list[list[Bar]] = []
    until_ms = 0
    for bar in bars:
        band = found[-1] if found else []
        idle_ms = bar.began_ms - until_ms
        long = idle_ms >= LEAST_IDLE_MS and bool(band) and idle_ms >= LONG_IDLE * (until_ms - band[0].began_ms)
        full = len(band) >= MOST_IN_A_BAND and (idle_ms >= 0 or len(band) >= 2 * MOST_IN_A_BAND)
        if not band or long or full:
            found.append([])
            until_ms = bar.ended_ms
        found[-1].append(bar)
        until_ms = max(until_ms, bar.ended_ms)
    return found


@dataclass(frozen=True)
class _Band:
    """Some bars on one scale: `x` gives percentages of the width, `tops` the pixels from the top of each bar.

    `folds` are times that are drawn shorter; `knots` are moments and their places on the scale, which is straight between them.
    """

    bars: Sequence[Bar]
    start_ms: int
    span_ms: int
    folds: Sequence[tuple[int, int]]
    knots: tuple[Sequence[float], Sequence[float]]
    tops: Mapping[str, int]
    names: Mapping[str, int]
    height: int

    @classmethod
    def of(cls, bars: Sequence[Bar]) -> _Band:
        start_ms = bars[0].began_ms
        span_ms = max(1, max(bar.ended_ms for bar in bars) - start_ms)
        folds = _folds(bars, span_ms)
        knots = _knots(start_ms, span_ms, folds)
        placed = [replace(bar, began_ms=_at(knots, bar.began_ms), ended_ms=_at(knots, bar.ended_ms)) for bar in bars]
        lanes = lanes_of([_with_room(bar, _WHOLE, round(_WHOLE * LABEL / 100)) for bar in placed])
        names: dict[str, int] = {}
        tops: dict[str, int] = {}
        top = 0
        for writer in sorted(
            {bar.writer for bar in bars}, key=lambda name: min(lanes[b.instant] for b in bars if b.writer == name)
        ):
            mine = {bar.instant: lanes[bar.instant] for bar in bars if bar.writer == writer}
            first, last = min(mine.values()), max(mine.values())
            names[writer] = top
            tops |= {instant: top + NAME_PX + LANE_PX * (lane - first) for instant, lane in mine.items()}
            top += NAME_PX + LANE_PX * (last - first + 1)
        return cls(bars, start_ms, span_ms, folds, knots, tops, names, top)

    def x(self, ms: float) -> float:
        return round(100 * _at(self.knots, ms) / _WHOLE, 2)

    def html(self) -> str:
        last_ms = self.start_ms + self.span_ms
        span = f"{_moment(self.start_ms)} to {_clock(last_ms, exact=False)}, {_length(self.span_ms)}"
        title = f"{span}, {counted(len(self.bars), 'transaction')}"
        parts = [*self._folds(), *self._ticks(), *self._writers(), self._arrows(), *chain(*map(self._bar, self.bars))]
        kind = "band folded" if self.folds else "band"
        return (
            f'<section><h2>{title}</h2><div class="{kind}" style="height:{self.height}px">{"".join(parts)}</div>'
            f"{''.join(_why(bar) for bar in self.bars if bar.why)}</section>"
        )

    def _ticks(self) -> list[str]:
        kinds = {0: "tick first", 1: "tick between", 3: "tick between", 4: "tick last"}
        exact, (moments, places) = self.span_ms < 8_000, self.knots
        at = [round(float(np.interp(_WHOLE * part / 4, places, moments))) for part in range(5)]
        return [
            f'<div class="{kinds.get(part, "tick")}" style="left:{25 * part}%">'
            f"<span>{_clock(at[part], exact=exact)}</span></div>"
            for part in range(5)
        ]

    def _folds(self) -> list[str]:
        return [
            f'<div class="fold" style="left:{self.x(since)}%;width:{round(self.x(until) - self.x(since), 2)}%">'
            f'<span style="{"left" if self.x(since) < 50 else "right"}:0">{_length(until - since)}, folded</span></div>'
            for since, until in self.folds
        ]

    def _writers(self) -> list[str]:
        found = []
        for writer, top in self.names.items():
            job, opening, rest = writer.rpartition(" (")
            name = f"<b>{escape(job)}</b>{escape(opening + rest)}" if job else f"<b>{escape(writer)}</b>"
            found.append(f'<div class="writer" style="top:{top}px" title="{escape(writer)}">{name}</div>')
        return found

    def _bar(self, bar: Bar) -> list[str]:
        left, right, top = self.x(bar.began_ms), self.x(bar.ended_ms), self.tops[bar.instant]
        wide = round(max(LEAST, right - left), 2)
        left = min(left, round(100 - wide, 2))
        title = f"{bar.operation} {bar.instant} ({bar.outcome}) by {bar.writer or 'a writer'}: {bar.summary}"
        inside = "".join(self._end(kind, bar, ms, end) for kind, ms, end in _lock_of(bar) if ms)
        link = f' href="#{escape(bar.instant)}"' if bar.why else ""
        tag = "a" if bar.why else "div"
        place = f"left:{left}%;width:{wide}%;top:{top}px"
        return [
            f'<{tag} class="bar {bar.outcome}"{link} style="{place}" title="{escape(title)}">{inside}</{tag}>',
            _label(bar, left, wide, top),
        ]

    def _end(self, kind: str, bar: Bar, ms: int, before_end_ms: int) -> str:
        until_ms = bar.ended_ms - before_end_ms
        began, since, until, ended = (_at(self.knots, at) for at in (bar.began_ms, until_ms - ms, until_ms, bar.ended_ms))
        right, wide = (100 * part / max(1, ended - began) for part in (ended - until, until - max(since, began)))
        return f'<i class="{kind}" style="right:{right:.2f}%;width:{wide:.2f}%"></i>'

    def _arrows(self) -> str:
        here = {bar.instant: bar for bar in self.bars}
        lines, hits = [], []
        for bar in self.bars:
            other = here.get(bar.blocked_by)
            if other is None:
                continue
            ends = [(self.x(each.ended_ms), self.tops[each.instant] + 9) for each in (bar, other)]
            (x0, y0), (x1, y1) = ends
            title = f"{escape(bar.rule)}: {escape(bar.instant)} met {escape(other.instant)}"
            lines.append(f'<path class="arrow" d="M{x0} {y0} L{x1} {y1}"><title>{title}</title></path>')
            hits.append(f'<div class="hit" style="left:{x1}%;top:{y1}px"></div>')
        box = f'viewBox="0 0 100 {self.height}" preserveAspectRatio="none"'
        return f'<svg xmlns="http://www.w3.org/2000/svg" {box}>{"".join(lines)}</svg>{"".join(hits)}' if lines else ""


_WHOLE = 1_000_000
"""The width of a band in the units of its scale."""


def _folds(bars: Sequence[Bar], span_ms: int) -> list[tuple[int, int]]:
    """Long times in which nothing begins or ends, but for what begins or ends the band."""
    if len(bars) < FOLDS_FROM:
        return []
    moments = sorted({ms for bar in bars for ms in (bar.began_ms, bar.ended_ms)})
    return [(since, until) for since, until in pairwise(moments) if until - since > FOLDED * span_ms]


def _knots(start_ms: int, span_ms: int, folds: Sequence[tuple[int, int]]) -> tuple[list[float], list[float]]:
    moving_ms = max(1, span_ms - sum(until - since for since, until in folds))
    moments, places = [float(start_ms)], [0.0]
    for since, until in folds:
        moments += [since, until]
        places += [places[-1] + since - moments[-3], places[-1] + since - moments[-3] + FOLD * moving_ms]
    moments.append(start_ms + span_ms)
    places.append(places[-1] + moments[-1] - moments[-2])
    return moments, [_WHOLE * place / (places[-1] or 1) for place in places]


def _at(knots: tuple[Sequence[float], Sequence[float]], ms: float) -> int:
    return round(float(np.interp(ms, *knots)))


def _with_room(bar: Bar, last_ms: int, room_ms: int) -> Bar:
    """The bar with the room that its label needs: behind it, or before it at the end of the band."""
    if bar.ended_ms - bar.began_ms >= room_ms:
        return bar
    if bar.ended_ms + room_ms <= last_ms:
        return replace(bar, ended_ms=bar.ended_ms + room_ms)
    return replace(bar, began_ms=bar.began_ms - room_ms, ended_ms=last_ms)


def _label(bar: Bar, left: float, wide: float, top: int) -> str:
    if wide >= LABEL:
        place, kind = f"left:{left}%;width:{wide}%", "label on"
    elif left + wide + LABEL <= 100:
        place, kind = f"left:{round(left + wide, 2)}%;width:{LABEL}%", "label"
    else:
        place, kind = f"right:{round(100 - left, 2)}%;width:{LABEL}%;text-align:right", "label"
    return f'<span class="{kind}" style="{place};top:{top}px">{_short(bar)}</span>'


def _short(bar: Bar) -> str:
    """What stands on the bar, and what does on a telephone: such as `OVERWRITE 2,985,984` and `OVE 3M`."""
    word = bar.operation.removeprefix("INSERT_")[:3]
    return f"<b>{escape(bar.label)}</b><abbr>{escape(word)}{'' if bar.rows is None else f' {_about(bar.rows)}'}</abbr>"


def _about(rows: int) -> str:
    """A number in at most four characters."""
    for unit, size in (("", 1), ("k", 1_000), ("M", 1_000_000)):
        if rows < 999.5 * size:
            return f"{rows / size:.0f}{unit}"
    return f"{rows / 1_000_000_000:.0f}G"


def _lock_of(bar: Bar) -> tuple[tuple[str, int, int], ...]:
    return (("waited", bar.waited_ms, bar.locked_ms), ("locked", bar.locked_ms, 0))


def _why(bar: Bar) -> str:
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in bar.why.items())
    return f'<div class="why" id="{escape(bar.instant)}"><a href="#">close</a><dl>{rows}</dl></div>'


def _moment(ms: int) -> str:
    digits = format_instant(ms)
    return f"{digits[:4]}-{digits[4:6]}-{digits[6:8]} {_clock(ms, exact=False)}"


def _clock(ms: int, *, exact: bool) -> str:
    digits = format_instant(ms)
    return f"{digits[8:10]}:{digits[10:12]}:{digits[12:14]}{f'.{digits[14:]}' if exact else ''}"


def _length(ms: int) -> str:
    """A time for people, of two units at most."""
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    minutes, days = ms // 60_000, ms // 86_400_000
    if minutes < 60:
        return f"{minutes} min {ms // 1000 % 60} s"
    return f"{minutes // 60} h {minutes % 60} min" if days < 2 else f"{days} d {minutes // 60 % 24} h"
