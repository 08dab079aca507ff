"""The decisions as an observer knows them who sees every record at once, and what must hold among them."""

from __future__ import annotations

import json
from collections.abc import Callable

from lakelock.occ.log import Decision, OutcomeRecord, Resolution, Verdict, resolve
from tests.api import layout


class Ledger:
    """Follows the decision log of one run, its boundary, and the outcomes of transactions over several tables.

    `fail` takes a broken promise and what broke it. `is_visible` and `is_over` tell of an instant whether it is completed, and
    whether it is completed or was rolled back by a foreign writer.
    """

    def __init__(
        self, fail: Callable[[str, str], None], *, is_visible: Callable[[str], bool], is_over: Callable[[str], bool]
    ) -> None:
        self._fail, self._is_visible, self._is_over = fail, is_visible, is_over
        self.decisions: dict[int, Decision] = {}
        self.verdicts: dict[str, Verdict] = {}
        """The first outcome of each transaction over several tables: what comes later under its name means nothing."""
        self.boundary = 0
        self._first: dict[str, Decision] = {}

    @property
    def head(self) -> int:
        """The greatest decision number that counts."""
        return max(self.decisions, default=0)

    @property
    def awaits_publication(self) -> bool:
        """Whether a commit is decided but not visible yet."""
        newest = self.decisions.get(self.head)
        return newest is not None and self.resolution(newest) is Resolution.COMMITTED and not self._is_over(newest.instant)

    @property
    def unpublished(self) -> list[str]:
        """The instants that are decided as commits but neither visible nor rolled back by a foreign writer."""
        commits = (each for each in self.decisions.values() if self.resolution(each) is Resolution.COMMITTED)
        return [each.instant for each in commits if not self._is_over(each.instant)]

    def of(self, instant: str) -> Decision | None:
        """The first decision about an instant."""
        return self._first.get(instant)

    def is_decided(self, instant: str) -> bool:
        """Whether the instant is committed, visible or not."""
        return self.resolution(self.of(instant)) is Resolution.COMMITTED

    def resolution(self, decision: Decision | None) -> Resolution:
        """What a decision means."""
        if decision is None or decision.transaction is None:
            return resolve(decision)
        verdict = self.verdicts.get(decision.transaction.id)
        if verdict is None:
            return Resolution.UNDECIDED
        return Resolution.COMMITTED if verdict is Verdict.COMMITTED else Resolution.ROLLED_BACK

    def outcome(self, outcome: OutcomeRecord) -> None:
        """An outcome was written."""
        self.verdicts.setdefault(outcome.name.id, outcome.verdict)

    def decision(self, key: str, data: bytes, *, is_new: bool) -> None:
        """A decision was written; `is_new` unless its file was there already."""
        number = layout.decision_number(key)
        decision = Decision.from_bytes(data, key)
        if number <= self.boundary:
            return
        if not is_new:
            self._fail("a decision is never rewritten", key)
        if number != max(self.head, self.boundary) + 1:
            self._fail("decisions are dense", f"number {number} is created while {self.head} is the head")
        before = self.of(decision.instant)
        if before is not None and Resolution.COMMITTED in (self.resolution(decision), self.resolution(before)):
            kinds = f"{before.kind.value} in {before.number} and {decision.kind.value} in {number}"
            self._fail("commit or rollback, exactly one wins", f"{decision.instant} has {kinds}")
        self.decisions[number] = decision
        self._first.setdefault(decision.instant, decision)
        if self.resolution(decision) is Resolution.ROLLED_BACK and self._is_visible(decision.instant):
            self._fail("a commit is there for ever", f"{decision.instant} is visible and decision {number} rolls it back")

    def deleted(self, key: str, process: object) -> None:
        """A decision was deleted."""
        number = layout.decision_number(key)
        if number > self.boundary:
            self._fail("a decision is deleted only below the boundary", f"{process} deletes {number}, not covered")

    def collected(self, data: bytes) -> None:
        """The record of the boundary was written."""
        to = int(json.loads(data)["boundary"])
        if to < self.boundary:
            self._fail("the boundary only grows", f"from {self.boundary} to {to}")
        for number in range(self.boundary + 1, to + 1):
            decision = self.decisions.get(number)
            if decision is None:
                self._fail("decisions are dense", f"the boundary covers {number}, which never was")
            elif self.resolution(decision) is Resolution.COMMITTED and not self._is_over(decision.instant):
                self._fail(
                    "only finished decisions are collected", f"{number} commits {decision.instant}, which is not visible"
                )
        self.boundary = to

    def published(self, requested: str, key: str, data: bytes) -> None:
        """A commit became visible by its decision."""
        decision = self.of(requested)
        if decision is None or self.resolution(decision) is not Resolution.COMMITTED:
            self._fail("only what is decided becomes visible", f"{key} has no decision for it")
            return
        if decision.payload != data:
            self._fail("only what is decided becomes visible", f"{key} differs from decision {decision.number}")
        for number in range(1, decision.number):
            lower = self.decisions.get(number)
            if lower is not None and self.resolution(lower) is Resolution.COMMITTED and not self._is_over(lower.instant):
                self._fail("commits become visible in decision order", f"{decision.number} before {number}")
