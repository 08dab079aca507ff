"""Planted bugs: lines of the protocol that are knocked out one at a time, to prove that the checks would notice.

Each is an edit of the source of one production function, made in memory for as long as a block runs. An edit whose text is not
found exactly once is an error, so that a planted bug cannot silently stop being one when the code moves on.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from types import FunctionType

from lakelock.simulator.run import run
from lakelock.simulator.swarm import scenario_of


@dataclass(frozen=True)
class Edit:
    """In `where` (module:function), `line` becomes `instead`."""

    where: str
    line: str
    instead: str

    @contextmanager
    def made(self) -> Iterator[None]:
        """While the block runs, the function does what the edited one does, for everybody who holds it."""
        module_name, _, path = self.where.partition(":")
        module = import_module(f"lakelock.{module_name}")
        owner_name, _, name = path.rpartition(".")
        owner = getattr(module, owner_name) if owner_name else module
        function = _function(owner.__dict__[name])
        before = function.__code__
        function.__code__ = self._edited(function).__code__
        try:
            yield
        finally:
            function.__code__ = before

    def _edited(self, original: FunctionType) -> FunctionType:
        source = textwrap.dedent(inspect.getsource(original))
        if source.count(self.line) != 1:
            raise ValueError(
                f"a planted bug needs {self.line!r} once, and it is {source.count(self.line)} times in {self.where}"
            )
        source = "from __future__ import annotations\n" + source.replace(self.line, self.instead)
        made: dict[str, object] = {}
        exec(compile(source, f"<planted in {self.where}>", "exec"), original.__globals__, made)
        return _function(made[original.__name__])


@dataclass(frozen=True)
class Planted:
    """One line of the protocol that is knocked out, with the others (`also`) that would cover for it.

    `within` is the number of seeds, counted from 0, within which the simulator must find it; `seed` is one that did.
    """

    name: str
    what: str
    where: str
    line: str
    instead: str
    within: int = 500
    seed: int | None = None
    also: tuple[Edit, ...] = ()

    @contextmanager
    def planted(self) -> Iterator[None]:
        """While the block runs, the bug is in the code."""
        with ExitStack() as stack:
            for edit in (Edit(self.where, self.line, self.instead), *self.also):
                stack.enter_context(edit.made())
            yield


def first_seed(planted: Planted) -> int | None:
    """A seed that finds the bug: the one that is known to, else the first of those within which it must be found."""
    with planted.planted():
        for seed in (*(() if planted.seed is None else (planted.seed,)), *range(planted.within)):
            if run(scenario_of(seed)).violations:
                return int(seed)
    return None


def _function(held: object) -> FunctionType:
    """What a class method, a static method or a context manager is made of."""
    function = getattr(held, "__func__", getattr(held, "__wrapped__", held))
    assert isinstance(function, FunctionType)
    return function


_ALL = (
    Planted(
        "begin without finishing the head",
        "a transaction begins although the newest decided commit is not visible yet",
        "occ.baseline:begin",
        "if head is not None and publication_of(head, timeline) is None:",
        "if False:",
        seed=31,
    ),
    Planted(
        "head noted after the baseline",
        "`first` is read after the instant exists and the timeline was listed",
        "occ.baseline:begin",
        "timeline = table.timeline()\n",
        "timeline = table.timeline()\n            view = table.log.look()\n",
        seed=38,
    ),
    Planted(
        "older than what it builds on",
        "a transaction keeps an instant although a newer one is visible in its baseline",
        "occ.baseline:begin",
        "if shared or any(i.requested > instant for i in (*timeline.commits, *timeline.rollbacks)):",
        "if shared:",
        seed=24,
    ),
    Planted(
        "one instant, two actions",
        "a transaction keeps an instant that another action has used",
        "occ.baseline:begin",
        "if shared or any(i.requested > instant for i in (*timeline.commits, *timeline.rollbacks)):",
        "if any(i.requested > instant for i in (*timeline.commits, *timeline.rollbacks)):",
        seed=649,
    ),
    Planted(
        "no new look under the lock",
        "the commit judges itself against the log as it was at the baseline",
        "occ.commit:Commit._under_lock",
        "decisions = view.decisions",
        "decisions = ()",
        seed=144,
    ),
    Planted(
        "old timeline under the lock",
        "the commit judges itself against the timeline of the baseline",
        "occ.commit:Commit._under_lock",
        "timeline = table.timeline()",
        "timeline = baseline.timeline",
        seed=4,
    ),
    Planted(
        "a decision that overwrites",
        "decision numbers are written without a condition",
        "occ.decisions:DecisionLog.decide",
        "outcome = create(self._storage, layout.decision(decision.number), decision.to_bytes())",
        "outcome = (self._storage.put(layout.decision(decision.number), decision.to_bytes()), Created.OURS)[1]",
        seed=1,
    ),
    Planted(
        "no reply taken for a refusal",
        "a commit whose decision got no reply is called rejected at once",
        "occ.commit:Commit._decide",
        "made = self._make_definite(decision)",
        "raise RolledBackError('no reply', hint='')",
        seed=78,
    ),
    Planted(
        "no reply taken for success",
        "a create without a reply counts as ours",
        "storage:create",
        "    except StorageUnavailable:\n        pass\n",
        "    except StorageUnavailable:\n        return Created.OURS\n",
        seed=2,
    ),
    Planted(
        "no read-back",
        "a create that found its own object calls it another's, and the commit does not know its own decision either",
        "storage:create",
        "return Created.OURS if found.data == data else Created.THEIRS",
        "return Created.THEIRS",
        also=(
            Edit("occ.commit:Commit._decide", "if found is None or found.write_id != write_id:", "if True:"),
            Edit("occ.commit:Commit._under_lock", "if mine is not None and mine.kind is DecisionKind.COMMIT:", "if False:"),
        ),
        seed=0,
    ),
    Planted(
        "boundary before the listing",
        "the log's boundary is read before the listing",
        "occ.decisions:DecisionLog.look",
        "    listed = self._numbers(after)\n"
        "    records = self._records(listed, newest)\n"
        "    boundary, lock = self._read_boundary()\n",
        "    boundary, lock = self._read_boundary()\n"
        "    listed = self._numbers(after)\n"
        "    records = self._records(listed, newest)\n",
        seed=2,
    ),
    Planted(
        "records after the boundary",
        "a decision is read after the log's boundary, when it may have been collected and its number used by a late request",
        "occ.decisions:DecisionLog.look",
        "    records = self._records(listed, newest)\n    boundary, lock = self._read_boundary()\n",
        "    boundary, lock = self._read_boundary()\n    records = self._records(listed, newest)\n",
        seed=15,
    ),
    Planted(
        "no boundary after the put",
        "a decision counts although its number had been used and collected",
        "occ.commit:Commit._decide",
        "if table.log.boundary() >= number:",
        "if False:",
        seed=196,
    ),
    Planted(
        "window with a hole",
        "the commit does not notice that decisions of its window were collected",
        "occ.commit:Commit._under_lock",
        "if view.boundary > baseline.first:",
        "if False:",
        seed=32,
    ),
    Planted(
        "next number before publication",
        "a commit is decided while the one before it is not visible",
        "occ.commit:Commit._under_lock",
        "finish_head(table, view, timeline)\n",
        "pass\n",
        seed=32,
    ),
    Planted(
        "rollback without a decision",
        "whoever finds a dead writer deletes its files without deciding",
        "occ.rollback:roll_back",
        "outcome = _decide(table, victim, yields=yields)",
        "outcome = RollbackOutcome.ROLLED_BACK",
        seed=0,
    ),
    Planted(
        "rollback ignores the commit",
        "a rollback is decided although the instant's commit is",
        "occ.rollback:_decide",
        "if decided is not None and decided.kind is DecisionKind.COMMIT:",
        "if False:",
        seed=121,
    ),
    Planted(
        "rollback in doubt",
        "a rollback whose decision got no reply deletes all the same",
        "occ.rollback:_decide",
        "if made is Created.UNKNOWN:",
        "if made is Created.UNKNOWN:\n            return RollbackOutcome.ROLLED_BACK\n        if False:",
        seed=121,
    ),
    Planted(
        "rollback of a collected number",
        "a rollback counts although its number had been used and collected",
        "occ.rollback:_decide",
        "if made is Created.OURS and table.log.boundary() < number:",
        "if made is Created.OURS:",
        within=5000,
    ),
    Planted(
        "rollback without the first boundary read",
        "a rollback does not notice that the log was collected while it looked",
        "occ.rollback:_decide",
        "if view.boundary != before:",
        "if False:",
        within=10000,
    ),
    Planted(
        "rollback out of order",
        "a rollback takes a number while the commit before it is not visible",
        "occ.rollback:_decide",
        "finish_head(table, view, timeline)\n",
        "pass\n",
        seed=1663,
    ),
    Planted(
        "a head that is younger than the timeline",
        "a decided commit that began after the timeline was listed counts as void, and the next number is taken before it",
        "occ.publish:finish_head",
        "publication_of(decision, timeline) is Publication.ALREADY",
        "publication_of(decision, timeline) is not None",
        within=2000,
        seed=439,
    ),
    Planted(
        "a rollback older than its victim",
        "the record of a rollback has the time of a slow clock, so that others take the time of what was rolled back",
        "occ.rollback:_record",
        "max(victim.instant, table.timeline().newest_time)",
        "table.timeline().newest_time",
        within=2000,
        also=(
            Edit(
                "occ.rollback:clean_up",
                "    _record(table, victim, left.by_partition)\n",
                "    table.storage.delete([left.heartbeat])\n    _record(table, victim, left.by_partition)\n",
            ),
        ),
    ),
    Planted(
        "abort of a decided commit",
        "an error after the decision removes the files",
        "occ.transaction:Transaction._withdraw",
        "if not self.may_be_decided:",
        "if True:",
        within=2000,
        seed=351,
    ),
    Planted(
        "doubt told as an error",
        "an error after the decision may have been made is told as a rejection",
        "occ.transaction:Transaction.commit",
        "if self.may_be_decided and not isinstance(error, ConflictError | RolledBackError):",
        "if False:",
        within=2000,
        seed=263,
    ),
    Planted(
        "no reconciliation",
        "files of failed task attempts stay",
        "occ.transaction:Transaction._commit",
        "self._remove_uncounted(files_to_delete(self._markers, stats))\n",
        "files_to_delete(self._markers, stats)\n",
        seed=1,
    ),
    Planted(
        "stale claims never taken over",
        "a claim is in the way although its owner is finished or dead",
        "markers.claims:claim_group",
        "        if owner.fate is Fate.ALIVE:",
        "        if owner.fate is not Fate.COMMITTED_SINCE:",
        within=2000,
        seed=159,
    ),
    Planted(
        "deletion before the boundary",
        "the collector deletes decisions and then raises the boundary",
        "occ.reaper:collect",
        "    if upto <= view.boundary or not table.log.raise_boundary(upto):",
        "    table.log.delete_up_to(upto)\n    if upto <= view.boundary or not table.log.raise_boundary(upto):",
        seed=0,
    ),
    Planted(
        "collection of the head",
        "the collector takes the newest decision too",
        "occ.reaper:collect",
        "min([view.head - 1, *needed])",
        "min([view.head, *needed])",
        seed=72,
    ),
    Planted(
        "reaping by an old timeline",
        "an instant that began after the timeline was listed counts as finished",
        "occ.reaper:_reap_one",
        "action = next((Action(i.action) for i in now.pending if i.requested == instant), None)",
        "action = None",
        seed=439,
    ),
    Planted(
        "an instant shared and left",
        "pending files of one who gave way to a commit of the same time stay for ever",
        "occ.reaper:_reap_one",
        "if done is not None and done.action != action:",
        "if False:",
        seed=143,
    ),
    Planted(
        "claims that arrive late",
        "nobody sweeps the claims of those who are finished",
        "occ.reaper:sweep",
        "if claim.instant not in beating | active",
        "if False",
        within=2000,
        seed=335,
    ),
    Planted(
        "probes left behind",
        "nobody sweeps the objects by which somebody asked the storage for its time",
        "occ.reaper:sweep",
        "_sweep_probes(table)",
        "pass",
        seed=0,
    ),
    Planted(
        "files written after a rollback",
        "a writer that was rolled back while it was paused looks for its files at its markers only",
        "occ.rollback:clean_up",
        "everywhere=everywhere",
        "everywhere=False",
        within=2000,
        seed=167,
    ),
    Planted(
        "pending instants mark the archive",
        "files older than a pending instant count as archived, and so as committed",
        "table.timeline:Timeline.of",
        'first if archivable else ""',
        "first",
        within=4000,
        seed=2919,
    ),
    Planted(
        "batch applied by a twin",
        "a replayed batch is not looked for in the baseline",
        "occ.retrying:_attempts",
        "if application is not None and coordinator.already_applied(application, tx.baseline.timeline):",
        "if False:",
        within=2000,
        seed=63,
    ),
    Planted(
        "application rule",
        "two runs of one batch do not conflict",
        "occ.rules:application_transaction",
        "if ours is None or theirs is None",
        "if True or ours is None or theirs is None",
        seed=151,
    ),
    Planted(
        "file group rule",
        "two rewrites of one file group do not conflict",
        "occ.rules:file_group",
        "if both else None",
        "if False else None",
        seed=9,
    ),
    Planted(
        "partition overwrite rule",
        "an overwrite and a write into the same partition do not conflict",
        "occ.rules:partition_overwrite",
        "if not both:",
        "if True:",
        seed=22,
    ),
    Planted(
        "reads that do not matter",
        "what a transaction read may be changed by others",
        "occ.rules:judge",
        "if not profile.reads_matter:",
        "if True:",
        seed=0,
    ),
    Planted(
        "appended rows",
        "rows that match a read may be added by others",
        "occ.rules:looks",
        "        if added:",
        "        if False:",
        seed=0,
    ),
)

UNFOUND: tuple[str, ...] = (
    "rollback of a collected number",
    "rollback without the first boundary read",
)
"""Not found yet within the seeds that were tried; docs/robustness.md says what shows their worth instead."""

PLANTED = tuple(planted for planted in _ALL if planted.name not in UNFOUND)
