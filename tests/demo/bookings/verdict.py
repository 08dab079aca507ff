"""What bookings and seats have shown: no half of a move was seen, and the moves of the killed agents ended in both tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.demo.bookings.tables import BOOKED, KEYS, halves, read_by_hudi
from tests.demo.commits import foreign_files, pending_instants, read_commits
from tests.demo.feed import Line
from tests.demo.plan import AGENT_A, AGENT_B
from tests.demo.promise import Promise
from tests.demo.story import Cast


def promises_of_bookings(lines: Sequence[Line], cast: Cast, tables: Sequence[Path]) -> list[Promise]:
    """The promises, by the feed and by what is in the folders of both tables at the end."""
    left = [f"{name}: {what}" for name, table in zip(KEYS, tables, strict=True) for what in _left(table)]
    wrong = halves(*map(read_by_hudi, tables))
    return [
        *promises_of_moves(lines, cast),
        Promise(
            not wrong, f"at the end each of {BOOKED} bookings has its seat, by hudi-rs" if not wrong else f"half: {wrong[0]}"
        ),
        Promise(not left, f"left of the moves: {', '.join(left[:5])}" if left else "nothing of the killed agents is left"),
    ]


def promises_of_moves(lines: Sequence[Line], cast: Cast) -> list[Promise]:
    """What the feed shows: the looks of the auditor, and who ended what the killed agents had left."""
    audited = next((line.facts for line in lines if line.kind == "audited"), {})
    looks, wrong, torn = (audited.get(each, 0) for each in ("looks", "wrong", "torn"))
    moves = sum(line.kind == "moved" for line in lines)
    ended = [line for line in lines if line.kind == "move-ended"]

    def whose(agent: str, *, published: bool) -> tuple[set[object], str]:
        """In which tables others ended the agent's moves in this way, and that in words. Several may do the same at once."""
        mine = [line for line in ended if cast.of_instant(str(line.facts.get("part"))) == agent and line.writer != agent]
        found = [line for line in mine if line.facts.get("published") is published]
        tables, who = sorted({str(line.facts.get("table")) for line in found}), sorted({line.writer for line in found})
        return set(tables), f"{' and '.join(tables) or 'no table'} by {' and '.join(who) or 'nobody'}"

    (withdrawn, by), (finished, finisher) = whose(AGENT_A, published=False), whose(AGENT_B, published=True)
    return [
        Promise(
            bool(looks) and not wrong and moves > 0,
            f"{moves} moves: each booking had its seat in {looks} looks at both tables (plain reads: half a move {torn} times)"
            if looks and not wrong
            else f"half a move was seen in {wrong} of {looks} looks at both tables, {moves} moves",
        ),
        Promise(
            withdrawn == set(KEYS),
            f"the move of {AGENT_A}, killed before its outcome, was withdrawn from {by}",
        ),
        Promise(
            bool(finished),
            f"the move of {AGENT_B}, killed when one table showed it, was published in {finisher}",
        ),
    ]


def _left(table: Path) -> list[str]:
    return [*pending_instants(table), *foreign_files(table, read_commits(table))]
