"""Early conflict detection beside the claims: one look at what was decided since the transaction began.

A writer that finished meanwhile has removed its claims, but its decision is in the log. Together the two leave no gap: a claim
is removed only after its owner's decision is there.
"""

from __future__ import annotations

from dataclasses import replace

from lakelock.conflict import Conflict
from lakelock.occ.baseline import Baseline
from lakelock.occ.footprint import Footprint
from lakelock.occ.open_table import OpenTable
from lakelock.occ.rules import PROFILES, judge
from lakelock.occ.window import commits_since


def window_conflict(table: OpenTable, baseline: Baseline, mine: Footprint) -> Conflict | None:
    """A conflict with a decision made since the baseline that needs no look into files. One listing if there is none."""
    decisions = table.log.peek(after=baseline.first)
    others = commits_since(table.storage, baseline, baseline.timeline, decisions, {})
    conflict, _ = judge(PROFILES[table.settings.concurrency.profile], mine, others, lambda group: None)
    return None if conflict is None else replace(conflict, early=True)
