"""Every planted bug, and the search for a seed that finds one; how they are planted is in `planting.py`."""

from __future__ import annotations

from lakelock.simulator.run import run
from lakelock.simulator.swarm import scenario_of
from tests.simulation.planted.commits import BUGS_OF_COMMITS
from tests.simulation.planted.planting import Edit, Planted


def first_seed(planted: Planted) -> int | None:
    """A seed that finds the bug: the one that is known to, else the first of those within which it must be found."""
    with planted.planted():
        for seed in (*(() if planted.seed is None else (planted.seed,)), *range(planted.within)):
            if run(scenario_of(seed)).violations:
                return int(seed)
    return None


_OTHERS = (
    Planted(
        "rollback without a decision",
        "whoever finds a dead writer deletes its files without deciding",
        "occ.recovery.rollback:roll_back",
        "outcome = _decide(table, victim, yields=yields)",
        "outcome = RollbackOutcome.ROLLED_BACK",
        seed=0,
    ),
    Planted(
        "rollback ignores the commit",
        "a rollback is decided although the instant's commit is",
        "occ.recovery.rollback:_decide",
        "if decided is not None and decided.kind is DecisionKind.COMMIT:",
        "if False:",
        seed=7,
    ),
    Planted(
        "rollback in doubt",
        "a rollback whose decision got no reply deletes all the same",
        "occ.recovery.rollback:_decide",
        "if made is Created.UNKNOWN:",
        "if made is Created.UNKNOWN:\n            return RollbackOutcome.ROLLED_BACK\n        if False:",
        seed=32,
    ),
    Planted(
        "rollback of a collected number",
        "a rollback counts although its number had been used and collected",
        "occ.recovery.rollback:_decide",
        "if made is Created.OURS and table.log.boundary() < number:",
        "if made is Created.OURS:",
        within=2000,
        seed=226,
    ),
    Planted(
        "rollback without the first boundary read",
        "a rollback does not notice that the log was collected while it looked",
        "occ.recovery.rollback:_decide",
        "if view.boundary != before:",
        "if False:",
        within=2000,
        seed=1175,
    ),
    Planted(
        "rollback out of order",
        "a rollback takes a number while the commit before it is not visible",
        "occ.recovery.rollback:_decide",
        "finish_head(table, view, timeline)\n",
        "pass\n",
        seed=325,
    ),
    Planted(
        "a head that is younger than the timeline",
        "a decided commit that began after the timeline was listed counts as void, and the next number is taken before it",
        "occ.publish:finish_head",
        "publication_of(decision, timeline) is Publication.ALREADY",
        "publication_of(decision, timeline) is not None",
        within=2000,
        seed=191,
    ),
    Planted(
        "abort of a decided commit",
        "an error after the decision removes the files",
        "occ.recovery.ending:withdraw",
        "if not may_be_decided:",
        "if True:",
        within=2000,
        seed=183,
    ),
    Planted(
        "doubt told as an error",
        "an error after the decision may have been made is told as a rejection",
        "occ.transaction:Transaction.commit",
        "if self.may_be_decided and not isinstance(error, ConflictError | RolledBackError):",
        "if False:",
        within=2000,
        seed=471,
    ),
    Planted(
        "no reconciliation",
        "files of failed task attempts stay",
        "occ.transaction:Transaction._commit",
        "remove_uncounted(table.storage, self._markers, files_to_delete(self._markers, stats))\n",
        "files_to_delete(self._markers, stats)\n",
        seed=0,
    ),
    Planted(
        "stale claims never taken over",
        "a claim is in the way although its owner is finished or dead",
        "markers.claims:claim_group",
        "        if owner.fate is Fate.ALIVE:",
        "        if owner.fate is not Fate.COMMITTED_SINCE:",
        within=2000,
        seed=263,
    ),
    Planted(
        "deletion before the boundary",
        "the collector deletes decisions and then raises the boundary",
        "occ.recovery.reaper:collect",
        "    if upto <= view.boundary or not table.log.raise_boundary(upto):",
        "    table.log.delete_up_to(upto)\n    if upto <= view.boundary or not table.log.raise_boundary(upto):",
        seed=0,
    ),
    Planted(
        "collection of the head",
        "the collector takes the newest decision too",
        "occ.recovery.reaper:collect",
        "min([view.head - 1, *needed])",
        "min([view.head, *needed])",
        seed=48,
    ),
    Planted(
        "reaping by an old timeline",
        "an instant that began after the timeline was listed counts as finished",
        "occ.recovery.reaper:_reap_one",
        "action = next((Action(i.action) for i in now.pending if i.requested == instant), None)",
        "action = None",
        seed=55,
    ),
    Planted(
        "a silent lock for each of the dead",
        "a reaper waits for the lock once for each dead writer, although it cannot be had",
        "occ.recovery.reaper:reap",
        "if isinstance(error, LockTimeout | ProviderUnavailable):",
        "if False:",
        within=4000,
        seed=1487,
    ),
    Planted(
        "an instant shared and left",
        "pending files of one who gave way to a commit of the same time stay for ever",
        "occ.recovery.reaper:_reap_one",
        "if done is not None and done.action != action:",
        "if False:",
        seed=143,
    ),
    Planted(
        "claims that arrive late",
        "nobody sweeps the claims of those who are finished",
        "occ.recovery.reaper:sweep",
        "if claim.instant not in beating | active",
        "if False",
        within=2000,
        seed=71,
    ),
    Planted(
        "probes left behind",
        "nobody sweeps the objects by which somebody asked the storage for its time",
        "occ.recovery.reaper:sweep",
        "_sweep_probes(table)",
        "pass",
        seed=0,
    ),
    Planted(
        "files written after a rollback",
        "a writer that was rolled back while it was paused looks for its files at its markers only",
        "occ.recovery.rollback:clean_up",
        "everywhere=everywhere",
        "everywhere=False",
        within=2000,
        seed=192,
    ),
    Planted(
        "pending instants mark the archive",
        "files older than a pending instant count as archived, and so as committed",
        "table.timeline:Timeline.of",
        'first if archivable else ""',
        "first",
        within=4000,
        seed=3342,
    ),
    Planted(
        "batch applied by a twin",
        "a replayed batch is not looked for in the baseline",
        "occ.coordinator:Coordinator.begin",
        "self._applied.ensure_new(application, baseline.timeline, mine)",
        "pass",
        within=2000,
        seed=7,
    ),
    Planted(
        "batch applied by another process",
        "an adopted batch is not looked for in the baseline",
        "occ.coordinator:Coordinator.adopt",
        "self._applied.ensure_new(detached.application, detached.baseline.timeline, tx.party)",
        "pass",
        within=2000,
        seed=63,
    ),
    Planted(
        "application rule",
        "two runs of one batch do not conflict",
        "occ.conflicts.rules:application_transaction",
        "if ours is None or theirs is None",
        "if True or ours is None or theirs is None",
        seed=159,
    ),
    Planted(
        "file group rule",
        "two rewrites of one file group do not conflict",
        "occ.conflicts.rules:file_group",
        "if both else None",
        "if False else None",
        seed=5,
    ),
    Planted(
        "partition overwrite rule",
        "an overwrite and a write into the same partition do not conflict",
        "occ.conflicts.rules:partition_overwrite",
        "if not both:",
        "if True:",
        seed=42,
    ),
    Planted(
        "reads that do not matter",
        "what a transaction read may be changed by others",
        "occ.conflicts.rules:judge",
        "if not profile.reads_matter:",
        "if True:",
        seed=4,
    ),
    Planted(
        "appended rows",
        "rows that match a read may be added by others",
        "occ.conflicts.rules:file_checks",
        "        if added:",
        "        if False:",
        seed=4,
    ),
)
"""Planted bugs of rolling back, cleaning up, and of the rules of conflict."""

PLANTED = (*BUGS_OF_COMMITS, *_OTHERS)

__all__ = ["PLANTED", "Edit", "Planted", "first_seed"]
