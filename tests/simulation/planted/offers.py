"""Planted bugs of inserts on offer: what lets each of them be committed once, or not at all, by whomever."""

from __future__ import annotations

from tests.simulation.planted.kinds import GATHERING
from tests.simulation.planted.planting import Planted

BUGS_OF_OFFERS = (
    Planted(
        "offers are not judged again",
        "a group commit does not look whether an insert that it has was decided since it chose it",
        "occ.commit:Commit._ensure_on_offer",
        "decided_for_offer(offer.member.id, view.decisions) is not None",
        "False",
        within=100,
        among=GATHERING,
        seed=16,
    ),
    Planted(
        "offers are taken twice",
        "a group takes along offers that decisions before its own beginning name",
        "occ.offers:is_undecided",
        "return len(read) == len(earlier) and decided_for_offer(offer.member.id, read) is None",
        "return True",
        within=300,
        among=GATHERING,
        seed=34,
    ),
    Planted(
        "a withdrawal is not decided",
        "whoever gives an insert up only looks whether it is committed",
        "occ.offers:settle",
        "made = table.log.decide_rollback(view.head + 1, name, Action.COMMIT, table.writer, table.runtime.uuid())",
        "return None",
        within=100,
        among=GATHERING,
        seed=2,
    ),
    Planted(
        "given up without a word",
        "whoever gives an insert up does not even look",
        "engine.group_insert:GroupInsert._settled",
        "return settle(self._table, offer.member.id, offer.since)",
        "return None",
        within=100,
        among=GATHERING,
        seed=16,
    ),
    Planted(
        "members answer at once",
        "a member of a group is told of its commit before that is visible",
        "engine.group_insert:GroupInsert._is_visible",
        "if table.observed.foreign_writers:",
        "if True:\n        return True\n    if False:",
        within=100,
        among=GATHERING,
        seed=2,
    ),
    Planted(
        "collected is withdrawn",
        "whoever finds its window collected does not ask the timeline",
        "occ.offers:settle",
        "if found is None and view.boundary > since:",
        "if False:",
        within=500,
        among=GATHERING,
        seed=16,
    ),
)
