"""The story: each line of the feed as a short sentence, with the names of the writers instead of ids. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.demo.feed import Line, pid_in


@dataclass(frozen=True)
class Step:
    """One step in a writer's lane. `tone` says how to colour it: plain, wait, good, bad, or odd (an intervention)."""

    at_s: float
    writer: str
    text: str
    tone: str = "plain"
    milestone: bool = True
    """False for steps that only a live view shows."""


Caption = tuple[str, str, bool]


@dataclass
class Cast:
    """Who is who: process ids and instants by writer, learnt from the feed."""

    began_ms: int
    pids: dict[int, str] = field(default_factory=dict)
    instants: dict[str, str] = field(default_factory=dict)
    last: dict[str, Caption] = field(default_factory=dict)

    def step(self, line: Line) -> Step | None:
        """The sentence for a line; None if it is not worth telling, or repeats the writer's last sentence."""
        if line.kind == "began":
            self.instants[line.instant] = line.writer
        elif line.kind == "move-begun":
            self.instants[str(line.facts.get("part"))] = line.writer
        caption = _caption(line, self)
        if caption is None or self.last.get(line.writer) == caption:
            return None
        self.last[line.writer] = caption
        return Step((line.at_ms - self.began_ms) / 1000, line.writer, *caption)

    def of_pid(self, text: object) -> str:
        """The writer that the text form of an identity names."""
        pid = pid_in(text)
        return self.pids.get(pid, "another writer") if pid is not None else "another writer"

    def of_instant(self, instant: str) -> str:
        return self.instants.get(instant, "another writer")


_PLAIN: Mapping[str, Caption] = {
    "starting": ("start Spark", "wait", False),
    "ready": ("ready", "wait", False),
    "writing": ("write", "plain", True),
    "done": ("done", "good", False),
    "stopped": ("stopped by the demo", "odd", True),
    "restarted": ("restarted from its checkpoint", "odd", True),
    "moves": ("move bookings from flight to flight", "plain", True),
    "audits": ("look at bookings and seats, again and again", "plain", True),
    "outcome-unknown": ("outcome unknown", "bad", True),
}


def _caption(line: Line, cast: Cast) -> Caption | None:
    if line.kind in _PLAIN:
        return _PLAIN[line.kind]
    teller = _TELLERS.get(line.kind)
    return None if teller is None else teller(line, cast)


def _began(line: Line, cast: Cast) -> Caption:
    return f"begin {line.operation.lower()}", "plain", True


def _claimed(line: Line, cast: Cast) -> Caption:
    return f"claim {_count(line, 'groups', 'file group')}", "plain", True


def _conflict(line: Line, cast: Cast) -> Caption:
    """Both sides, the rule and one of the file groups, in one line."""
    over = line.facts.get("over")
    things = [str(thing) for thing in over] if isinstance(over, Sequence) and not isinstance(over, str) else []
    where = f" over {things[0][:17]}…" + (f" and {len(things) - 1} more" if len(things) > 1 else "") if things else ""
    early = "early conflict" if line.kind == "early-conflict" else "conflict"
    return f"{early} with {cast.of_pid(line.facts.get('other'))}{where} (rule {line.facts.get('rule')})", "bad", True


def _retry(line: Line, cast: Cast) -> Caption:
    attempt = line.facts.get("attempt")
    return (
        f"retry {attempt}" if not isinstance(attempt, int) else f"attempt {attempt + 1} of {line.facts.get('of')}",
        "wait",
        True,
    )


def _waiting_for_lock(line: Line, cast: Cast) -> Caption:
    return f"wait for the lock of {cast.of_pid(line.facts.get('holder'))}", "wait", True


def _committed(line: Line, cast: Cast) -> Caption:
    what = _count(line, "rows", "row") if line.facts.get("rows") else _count(line, "files", "file")
    return f"commit #{line.facts.get('decision')}, {what} written", "good", True


def _rejected(line: Line, cast: Cast) -> Caption:
    return "withdrawn", "plain", False


def _finished(line: Line, cast: Cast) -> Caption:
    return f"publish #{line.facts.get('decision')} for {cast.of_instant(line.instant)}, which was killed", "odd", True


def _rolled_back(line: Line, cast: Cast) -> Caption:
    owner, files = cast.of_instant(line.instant), _count(line, "files", "file")
    if owner == line.writer:
        return f"remove {files} of its own attempt", "plain", False
    return f"roll back {owner}, which is dead: {files} removed", "odd", True


def _alert(line: Line, cast: Cast) -> Caption:
    return f"alert: {line.facts.get('problem')}", "bad", True


def _lease_lost(line: Line, cast: Cast) -> Caption:
    return f"lease lost: {line.facts.get('reason')}", "bad", True


def _waits(line: Line, cast: Cast) -> Caption:
    return f"wait for {line.facts.get('what')}", "wait", False


def _batch(line: Line, cast: Cast) -> Caption:
    return f"batch {line.facts.get('number')}", "plain", True


def _replayed(line: Line, cast: Cast) -> Caption:
    return f"batch {line.facts.get('number')} again: was applied, nothing written", "good", True


def _killed(line: Line, cast: Cast) -> Caption:
    when = {
        "decided": "between deciding and publishing",
        "reconciled": "between writing data and deciding",
        "prepared": "between its prepares and their outcome",
        "published": "between publishing in one table and in the other",
    }
    return f"killed by SIGKILL {when.get(str(line.facts.get('step')).partition(':')[0], '')}", "bad", True


def _moved(line: Line, cast: Cast) -> Caption:
    return f"move {line.facts.get('booking')} to {line.facts.get('there')}", "good", False


def _move_ended(line: Line, cast: Cast) -> Caption | None:
    owner, table = cast.of_instant(str(line.facts.get("part"))), line.facts.get("table")
    if owner == line.writer:
        return None
    did = "publish in" if line.facts.get("published") else "withdraw from"
    return f"{did} {table} the move of {owner}, which was killed", "odd", True


def _all_moved(line: Line, cast: Cast) -> Caption:
    return _count(line, "moves", "move"), "good", True


def _half_seen(line: Line, cast: Cast) -> Caption:
    return f"HALF A MOVE: {line.facts.get('what')}", "bad", True


def _audited(line: Line, cast: Cast) -> Caption:
    return f"{_count(line, 'looks', 'look')} at both tables, halves seen: {line.facts.get('wrong')}", "good", True


def _failed(line: Line, cast: Cast) -> Caption:
    return f"FAILED: {line.facts.get('problem')}", "bad", True


def _upkept(line: Line, cast: Cast) -> Caption:
    return f"upkeep: delete {_count(line, 'files', 'old file')}", "plain", True


def _reading(line: Line, cast: Cast) -> Caption:
    return f"read with {line.facts.get('reader')}", "plain", True


_TELLERS = {
    "began": _began,
    "claimed": _claimed,
    "early-conflict": _conflict,
    "conflict": _conflict,
    "retry": _retry,
    "waiting-for-lock": _waiting_for_lock,
    "committed": _committed,
    "rejected": _rejected,
    "finished-for-another": _finished,
    "rolled-back": _rolled_back,
    "alert": _alert,
    "lease-lost": _lease_lost,
    "waits": _waits,
    "batch": _batch,
    "replayed": _replayed,
    "killed": _killed,
    "failed": _failed,
    "moved": _moved,
    "move-ended": _move_ended,
    "all-moved": _all_moved,
    "half-seen": _half_seen,
    "audited": _audited,
    "upkept": _upkept,
    "reading": _reading,
}


def _count(line: Line, fact: str, noun: str) -> str:
    count = line.facts.get(fact)
    number = count if isinstance(count, int) else 0
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
