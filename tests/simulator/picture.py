"""A picture of a run: one lane per actor, time from left to right, the faults, and the time at which a promise broke."""

from __future__ import annotations

from html import escape

from tests.api import EventKind
from tests.simulator.run import Result
from tests.simulator.trace import Answer

WIDTH, LANE, LEFT, TOP = 1400, 64, 130, 70
_COLOURS = {
    Answer.COMMITTED: "#2f9e44",
    Answer.REJECTED: "#e8590c",
    Answer.UNKNOWN: "#9c36b5",
    Answer.DIED: "#495057",
    Answer.DONE: "#4dabf7",
}
_SHOWN = {
    EventKind.BEGAN: "b",
    EventKind.LOCKED: "l",
    EventKind.DECIDED: "d",
    EventKind.PUBLISHED: "p",
    EventKind.FINISHED_FOR_ANOTHER: "f",
    EventKind.ROLLED_BACK: "r",
    EventKind.COLLECTED: "c",
}


def picture(result: Result) -> str:
    """The run as SVG; run it with `keep_events` to see the steps of the transactions."""
    lanes = [actor.name for actor in result.scenario.actors if actor.operations]
    answered = result.trace.answered
    ends_s = [one.ended_s for one in answered] + [violation.at_s for violation in result.violations[:1]]
    times = [*ends_s, *(at_s for at_s, _, _ in result.trace.events if at_s < 600)]
    end_s = max([1e-6, *(at_s for at_s in times if at_s < 600)])

    def x(at_s: float) -> float:
        return LEFT + (WIDTH - LEFT - 20) * min(1.0, at_s / end_s)

    height = TOP + LANE * len(lanes) + 60
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        _text(10, 22, f"seed {result.scenario.seed}: lock {result.scenario.lock.value}, profile {result.scenario.profile}", 15),
    ]
    for violation in result.violations[:1]:
        parts.append(_text(10, 44, _short(str(violation), 190), 12, "#c92a2a"))
        at = x(violation.at_s)
        parts.append(
            f'<line x1="{at:.1f}" y1="{TOP - 14}" x2="{at:.1f}" y2="{height - 40}" stroke="#c92a2a" stroke-width="2"/>'
        )
    for number, lane in enumerate(lanes):
        parts.append(_text(8, _y(number) + 22, lane, 13))
        parts.append(f'<line x1="{LEFT}" y1="{_y(number) + 40}" x2="{WIDTH - 20}" y2="{_y(number) + 40}" stroke="#dee2e6"/>')
    for one in answered:
        y, start, end = _y(lanes.index(one.actor)), x(one.began_s), max(x(one.began_s) + 3, x(one.ended_s))
        operation = result.scenario.operations[one.operation]
        title = escape(f"{operation}: {one.answer.value} {one.instant} {one.detail}")
        parts.append(
            f'<g><title>{title}</title><rect x="{start:.1f}" y="{y}" width="{end - start:.1f}" height="18" rx="3" '
            f'fill="{_COLOURS[one.answer]}" fill-opacity="0.8"/>{_text(start + 2, y + 13, str(operation), 10, "white")}</g>'
        )
    for at_s, process, event in result.trace.events:
        actor = process.partition(".")[0]
        if event.kind in _SHOWN and actor in lanes and at_s <= end_s:
            y = _y(lanes.index(actor)) + 34
            parts.append(f"<g><title>{escape(str(event))}</title>{_text(x(at_s), y, _SHOWN[event.kind], 11, '#1864ab')}</g>")
    parts += _legend(height)
    return "\n".join([*parts, "</svg>", ""])


def _legend(height: int) -> list[str]:
    parts, at = [], LEFT
    for answer, colour in _COLOURS.items():
        parts.append(f'<rect x="{at}" y="{height - 24}" width="12" height="12" fill="{colour}"/>')
        parts.append(_text(at + 16, height - 14, answer.value, 12))
        at += 110
    steps = ", ".join(f"{letter} {kind.value}" for kind, letter in _SHOWN.items())
    return [*parts, _text(at, height - 14, steps, 12, "#1864ab")]


def _y(lane: int) -> int:
    return TOP + LANE * lane


def _text(x: float, y: float, text: str, size: int, colour: str = "#212529") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}">{escape(text)}</text>'


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
