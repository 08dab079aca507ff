"""The transactions of a table as bars over time: what was committed, rejected and is pending, and who was in whose way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lakelock.identity import OTHER_ENGINE
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.outcomes.history import HistoryEntry
from lakelock.occ.records.rejections import Rejection, read_rejection, rejected_instants
from lakelock.table.instants import parse_instant
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
