"""Planted bugs of upkeep: how services yield to writes, and what an optimize or restore may take for granted."""

from __future__ import annotations

from tests.simulation.planted.kinds import OPTIMIZED, RESTORED, STRAGGLERS, WITHOUT_INDEX
from tests.simulation.planted.planting import Planted

BUGS_OF_UPKEEP = (
    Planted(
        "no look after the claim",
        "a write that takes a file group over from an optimize does not look whether that has committed meanwhile",
        "occ.early.detection:early_conflict",
        "        or window_conflict(table, baseline, mine)\n",
        "",
        among=OPTIMIZED,
        seed=155,
    ),
    Planted(
        "a service that does not see its own rollback",
        "an optimize commits although a write that came later has made it yield",
        "occ.commit:Commit._ensure_pending",
        "if mine is not None:",
        "if False:",
        among=OPTIMIZED,
        seed=155,
    ),
    Planted(
        "a claim taken over without a word",
        "a write takes the claim of a live optimize without deciding that this is rolled back",
        "occ.early.detection:_made_to_yield",
        "if decide_rollback(table, victim) is not RollbackOutcome.COMMITTED:",
        "if True:",
        among=OPTIMIZED,
        seed=683,
    ),
    Planted(
        "stray rows made permanent",
        "an optimize joins whatever files a listing shows, also those that no commit names",
        "occ.services.optimize:_named",
        "if file.key in named or commits[file.instant] is None]",
        "if True]",
        among=OPTIMIZED & STRAGGLERS & WITHOUT_INDEX,
        seed=6869,
    ),
    Planted(
        "a restore that has read nothing",
        "what others add while a restore is at work stays",
        "occ.services.restore:_restored",
        "tx.reads(WholeTable())",
        "pass",
        among=RESTORED,
        seed=651,
    ),
)
