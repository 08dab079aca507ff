"""Every planted bug, and the search for a seed that finds one; how they are planted is in `planting.py`."""

from __future__ import annotations

from itertools import chain, islice

from tests.simulation.planted.careless import BUGS_BESIDE_THE_CARELESS
from tests.simulation.planted.commits import BUGS_OF_COMMITS
from tests.simulation.planted.kinds import FOREIGN, SILENT_LOCK, STRAGGLERS, family
from tests.simulation.planted.metadata import BUGS_OF_METADATA
from tests.simulation.planted.offers import BUGS_OF_OFFERS
from tests.simulation.planted.planting import Edit, Planted
from tests.simulation.planted.profiles import BUGS_OF_PROFILES
from tests.simulation.planted.redo import BUGS_OF_REDO
from tests.simulation.planted.reservations import BUGS_OF_RESERVATIONS
from tests.simulation.planted.upkeep import BUGS_OF_UPKEEP
from tests.simulator.run import run
from tests.simulator.scenarios.swarm import scenario_of


def first_seed(planted: Planted) -> int | None:
    """A seed that finds the bug: the one that is known to, one that finds another bug among the same kind, else the first of
    those within which it must be found.

    A seed that breaks a promise without the bug, too, finds nothing.
    """
    others = (other.seed for other in PLANTED if other.among.name == planted.among.name != "")
    known = (scenario_of(seed) for seed in dict.fromkeys((planted.seed, *others)) if seed is not None)
    for scenario in chain(known, islice(planted.among.scenarios(), planted.within)):
        with planted.planted():
            found = run(scenario).violations
        if found and not run(scenario).violations:
            return int(scenario.seed)
    return None


_OTHERS = (
    Planted(
        "rollback without a decision",
        "whoever finds a dead writer deletes its files without deciding",
        "occ.rollback:roll_back",
        "outcome = _decide(table, target, yields=yields, unseen=unseen)",
        "outcome = RollbackOutcome.ROLLED_BACK",
        seed=0,
    ),
    Planted(
        "rollback ignores the commit",
        "a rollback is decided although the instant's commit is",
        "occ.rollback:_decide",
        "if decided is not None and resolve(decided) is Resolution.COMMITTED:",
        "if False:",
        among=family("doubtful"),
        seed=183,
    ),
    Planted(
        "rollback in doubt",
        "a rollback whose decision got no reply deletes all the same",
        "occ.rollback:_decide",
        "if made is Created.UNKNOWN:",
        "if made is Created.UNKNOWN:\n            return RollbackOutcome.ROLLED_BACK\n        if False:",
        seed=196,
    ),
    Planted(
        "rollback without the first boundary read",
        "a rollback does not notice that the log was collected while it looked",
        "occ.rollback:_decide",
        "if view.boundary != before:",
        "if False:",
        among=family("blind_reapers"),
        seed=3575,
    ),
    Planted(
        "rollback out of order",
        "a rollback takes a number while the commit before it is not visible",
        "occ.rollback:_decide",
        "finish_head(table, view, timeline)\n",
        "pass\n",
        among=family("dying_writers"),
        seed=2527,
    ),
    Planted(
        "a head that is younger than the timeline",
        "a decided commit that began after the timeline was listed counts as void, and the next number is taken before it",
        "occ.publish:finish_head",
        "shown_fate(timeline, head.instant) is InstantFate.COMMITTED",
        "shown_fate(timeline, head.instant) is not InstantFate.PENDING",
        among=family("overtaken"),
        seed=6047,
    ),
    Planted(
        "abort of a decided commit",
        "an error after the decision removes the files",
        "occ.ending:_withdrawn",
        "if not own.may_be_in_log:",
        "if True:",
        among=family("doubtful"),
        seed=183,
    ),
    Planted(
        "doubt told as an error",
        "an error after the decision may have been made is told as a rejection",
        "occ.transaction:Transaction.commit",
        "if self._decision.may_be_committed:",
        "if False:",
        among=family("doubtful"),
        seed=1335,
    ),
    Planted(
        "no reconciliation",
        "files of failed task attempts stay",
        "occ.transaction:Transaction._stage_files",
        "remove_uncounted(self._table.storage, markers, uncounted)\n",
        "pass\n",
        seed=6,
    ),
    Planted(
        "stale claims never taken over",
        "a claim is in the way although its owner is finished or dead",
        "markers.claims:claim_group",
        "        if owner.fate is OwnerFate.ALIVE:",
        "        if owner.fate is not OwnerFate.COMMITTED_SINCE:",
        among=family("belated"),
        seed=455,
    ),
    Planted(
        "deletion before the boundary",
        "the collector deletes decisions and then raises the boundary",
        "occ.recovery:collect",
        "    if upto <= view.boundary or not table.log.raise_boundary(upto):",
        "    table.log.delete_up_to(upto)\n    if upto <= view.boundary or not table.log.raise_boundary(upto):",
        seed=0,
    ),
    Planted(
        "collection of the head",
        "the collector takes the newest decision too",
        "occ.recovery:collectable",
        "min([view.head - 1, *needed])",
        "min([view.head, *needed])",
        seed=23,
    ),
    Planted(
        "a silent lock for each of the dead",
        "a reaper waits for the lock once for each dead writer, although it cannot be had",
        "occ.recovery:reap",
        "if isinstance(error, LockTimeout | ProviderUnavailable):",
        "if False:",
        within=1000,
        among=SILENT_LOCK,
        seed=564,
    ),
    Planted(
        "an instant shared and left",
        "pending files of one who gave way to a commit of the same time stay for ever",
        "occ.recovery:_reap_one",
        "if done is not None and done.action != action:",
        "if False:",
        within=2_000,
        among=family("same_moment"),
        seed=815,
    ),
    Planted(
        "claims that arrive late",
        "nobody sweeps the claims of those who are finished",
        "occ.recovery:sweep",
        "if claim.instant not in beating | active",
        "if False",
        among=family("belated"),
        seed=455,
    ),
    Planted(
        "probes left behind",
        "nobody sweeps the objects by which somebody asked the storage for its time",
        "occ.recovery:sweep",
        "_sweep_probes(table)",
        "pass",
        seed=11,
    ),
    Planted(
        "files written after a rollback",
        "a writer that was rolled back while it was paused looks for its files at its markers only",
        "occ.rollback:clean_up",
        "everywhere=everywhere",
        "everywhere=False",
        within=1000,
        among=family("sleepy"),
        seed=4975,
    ),
    Planted(
        "batch applied by a twin",
        "a replayed batch is not looked for in the baseline",
        "occ.coordinator:Coordinator.begin",
        "self._applied.ensure_new(application, baseline.timeline, mine)",
        "pass",
        among=family("twinned"),
        seed=63,
    ),
    Planted(
        "batch applied by another process",
        "an adopted batch is not looked for in the baseline",
        "occ.coordinator:Coordinator.adopt",
        "self._applied.ensure_new(detached.application, detached.baseline.timeline, tx.party)",
        "pass",
        among=family("twinned"),
        seed=63,
    ),
    Planted(
        "application rule",
        "two runs of one batch do not conflict",
        "occ.rules:application_transaction",
        "if ours is None or theirs is None",
        "if True or ours is None or theirs is None",
        seed=159,
    ),
    Planted(
        "null over missing columns",
        "an upsert writes null over the stored values of columns that its rows lack",
        "table.schema:columns_of_upserts",
        'TableSchema(narrowed(after.arrow, incoming)) if missing == "keep" else after',
        "after",
        seed=9,
    ),
    Planted(
        "a partial update that changes nothing",
        "an upsert whose rows lack columns leaves the stored rows as they are",
        "table.rewriting:_replaced",
        "if field.name in given:",
        "if len(given) == len(columns):",
        seed=9,
    ),
    Planted(
        "file group rule",
        "two rewrites of one file group do not conflict",
        "occ.rules:file_group",
        "    if both:",
        "    if False:",
        seed=11,
    ),
    Planted(
        "partition overwrite rule",
        "an overwrite and a write into the same partition do not conflict",
        "occ.rules:partition_overwrite",
        "if not both:",
        "if True:",
        seed=13,
    ),
    Planted(
        "reads that do not matter",
        "what a transaction read may be changed by others",
        "occ.rules:judge",
        "for read_rule in profile.read_rules",
        "for read_rule in ()",
        seed=4,
    ),
    Planted(
        "appended rows",
        "rows that match a read may be added by others",
        "occ.rules:_added",
        "if added else []",
        "if False else []",
        seed=4,
    ),
    Planted(
        "stray files forgotten",
        "a sweep forgets the marker of a file that its commit does not name, and leaves the file",
        "occ.recovery:remove_leftovers",
        "remove_strays(table, timeline, left.announced)",
        "frozenset()",
        among=STRAGGLERS,
        seed=18,
    ),
    Planted(
        "stray files forgotten too soon",
        "a sweep forgets the marker of a stray file that is still to come",
        "occ.rollback:_remove_old_markers",
        "_young_markers(table, markers)",
        "frozenset()",
        among=STRAGGLERS,
        seed=194,
    ),
    Planted(
        "files of the commit for strays",
        "a sweep that finds markers of a committed instant deletes all files that they announce",
        "occ.rollback:remove_strays",
        " - named)",
        ")",
        seed=5,
    ),
    Planted(
        "two slices of one instant",
        "a reader that finds two slices of one instant does not ask which of them the commit names",
        "table.snapshot:_named_twin",
        "if len(counting) == 1:",
        "if False:",
        among=STRAGGLERS,
        seed=122,
    ),
    Planted(
        "what a clustering replaced",
        "file groups that another engine's clustering replaced may be rewritten",
        "occ.rules:file_group",
        "both = frozenset(group for group in mine.touched & other.touched if not _lies_on(group, mine, other))",
        "both = frozenset() if other.changes_no_row else mine.touched & other.touched",
        among=FOREIGN,
        seed=89,
    ),
)
"""Planted bugs of rolling back, cleaning up, of the rules of conflict, and of columns."""

PLANTED = (
    *BUGS_OF_COMMITS, *_OTHERS, *BUGS_OF_PROFILES, *BUGS_OF_REDO, *BUGS_OF_RESERVATIONS, *BUGS_OF_OFFERS, *BUGS_OF_UPKEEP,
    *BUGS_OF_METADATA,
    *BUGS_BESIDE_THE_CARELESS,
)  # fmt: skip

PENDING_MARK_THE_ARCHIVE = Planted(
    "pending instants mark the archive",
    "files older than a pending instant count as archived, and so as committed",
    "table.timeline:Timeline.of",
    'first if archivable else ""',
    "first",
)
"""Not among the others: nothing may be completed yet, and a writer with a slow clock has to write before the first does."""

COLLECTED = Planted(
    "rollback of a collected number",
    "a rollback counts although its number had been used and collected",
    "occ.log:DecisionLog.decide_rollback",
    "if made is Created.OURS and self.boundary() >= number:",
    "if False:",
)
"""Not among the others: its target has to commit, and the log to be collected beyond that, between two requests."""

_NOTHING_OF_ANOTHER = Edit(
    "occ.recovery:remove_leftovers", "if is_taken or table.timeline().state_of(instant) is not None:", "if False:"
)
_TAKES_ANYTHING = Edit(
    "occ.begin:begin",
    "if not known <= view.boundary <= first or decided_for(instant, view.decisions) is not None:",
    "if not known <= view.boundary <= first:",
)
TAKEN_LATE = Planted(
    "an instant that is taken late",
    "a reaper that stood still after its look deletes what a writer has committed since, who stood still as it began",
    "occ.recovery:_reap_one",
    "unseen = ours and _finished(now, instant) is RollbackOutcome.GONE and not is_rolled_back(table, now, instant)",
    "unseen = False",
    also=(_NOTHING_OF_ANOTHER,),
)
"""Not among the others: both have to stand still at the right requests (seed 4000604 did, before the decision was there)."""

BEGUN_ANEW = Planted(
    "a heartbeat that is begun anew after it was too old",
    "a writer that stood still as it began uses an instant that was rolled back under a number that it does not look at",
    "occ.begin:_note_and_beat",
    "if old.alive():",
    "if True:",
    also=(_TAKES_ANYTHING,),
)
"""Not among the others: it needs a reaper that stands still, too, and much that is committed meanwhile (seed 9010374)."""

LISTED_BEFORE_THE_CLOCK = Planted(
    "heartbeats listed before the clock is read",
    "a reaper that stands still between the two takes writers for dead that beat all the time",
    "markers.liveness:judge_all",
    "now_ms, beats = StorageClock.measure(storage, runtime).now_ms(runtime), _listed(storage)",
    "now_ms = StorageClock.measure(storage, runtime).now_ms(runtime)",
)
TAKEN_TWICE = Planted(
    "an instant that was rolled back before",
    "a writer takes an instant whose first owner gave it up after its rollback was decided",
    _TAKES_ANYTHING.where,
    _TAKES_ANYTHING.line,
    _TAKES_ANYTHING.instead,
)
LEFT_BY_ANOTHER = Planted(
    "what a second owner has left",
    "files of a writer that has taken an instant anew are removed as what the first left",
    _NOTHING_OF_ANOTHER.where,
    _NOTHING_OF_ANOTHER.line,
    _NOTHING_OF_ANOTHER.instead,
)
VOID_AT_FIRST_SIGHT = Planted(
    "void by a timeline of before",
    "a commit that others have published is taken for void, since a cleaner has removed a file of it",
    "occ.publish:publish",
    "if void and shown_fate(table.timeline(), decision.instant) is InstantFate.COMMITTED:",
    "if False:",
)
A_NEWER_DECISION = Planted(
    "a newer decision shows that a commit is visible",
    "a member of a group is told of a commit that another engine has rolled back",
    "engine.group_commit:GroupCommit._is_visible",
    "if table.storage.get(layout.timeline(completed.file_name)) is not None:",
    "if table.log.newest > decision.number or table.storage.get(layout.timeline(completed.file_name)) is not None:",
)
BEHIND_A_SAVEPOINT = Planted(
    "log files of a savepoint are those of its time",
    "a savepoint is read with log files of earlier instants that became visible after it, or without some of its own",
    "occ.reading:with_log_files",
    "if kept is None:",
    "if True:",
)
RESTORED_FROM_HALF_A_CLEAN = Planted(
    "a restore to what half a clean has left",
    "a restore takes an older file where a cleaner that died has removed the one of that time",
    "occ.restore:_as_it_was",
    "else all_that_is_kept(table, timeline, as_of)",
    "else None",
)
CLEANED_AFTER_A_RESTORE = Planted(
    "a plan to clean outlives what it rests on",
    "files are deleted that are the newest again since another engine has restored the table",
    "occ.clean:_carry_out",
    "if plan.newest and not timeline.is_visible(plan.newest):",
    "if False:",
)
BESIDE_A_RESTORE = Planted(
    "a commit beside a restore of another engine",
    "a transaction commits while another engine takes commits out, and stays on top of them",
    "occ.commit:Commit._validate",
    "ensure_not_restored(table, timeline)",
    "pass",
)
EARLIER_VERSIONS = Planted(
    "earlier versions of rows",
    "a restore that brings an earlier version of a row back counts as no change of it",
    "table.merged_slices:Change.keys",
    "group_by(_STATED.names)",
    "group_by([RECORD_KEY])",
)
PLANNED_TO_BE_COMPACTED = Planted(
    "a new base file under a planned compaction",
    "a great change rewrites a file group whose compaction another engine has planned",
    "occ.transaction:Work.claim_changed",
    "inf if file.group in self._planned else settings.append_below",
    "settings.append_below",
)
"""They need another engine, or a restore between two requests, which no history has."""
SECOND_OWNERS = (
    LISTED_BEFORE_THE_CLOCK, TAKEN_TWICE, LEFT_BY_ANOTHER, VOID_AT_FIRST_SIGHT, A_NEWER_DECISION,
)  # fmt: skip
"""Not among the others: two have to stand still at the right requests."""

__all__ = [
    "BEGUN_ANEW", "BEHIND_A_SAVEPOINT", "BESIDE_A_RESTORE", "CLEANED_AFTER_A_RESTORE", "COLLECTED", "EARLIER_VERSIONS",
    "PLANNED_TO_BE_COMPACTED", "PLANTED", "RESTORED_FROM_HALF_A_CLEAN", "SECOND_OWNERS", "TAKEN_LATE",
    "Edit", "Planted", "first_seed",
]  # fmt: skip
