"""Planted bugs of beginning, judging and deciding: one line each of what keeps two commits apart."""

from __future__ import annotations

from tests.simulation.planted.kinds import FOREIGN, PAGED, family
from tests.simulation.planted.planting import Edit, Planted

BUGS_OF_COMMITS = (
    Planted(
        "begin without finishing the head",
        "a transaction begins although the newest decided commit is not visible yet",
        "occ.baseline:begin",
        "if head is not None and shown_fate(timeline, head.instant) is InstantFate.PENDING:",
        "if False:",
        seed=7,
    ),
    Planted(
        "a listing in pages",
        "a reader lists a long timeline once, and sees a commit without the one before it",
        "occ.open_table:OpenTable.timeline_of_one_moment",
        "return self.timeline().up_to(timeline)",
        "return timeline",
        among=PAGED,
        seed=134,
    ),
    Planted(
        "too quick for a late starter",
        "nobody waits for a foreign writer that has an earlier instant and has not looked at the table",
        "occ.foreign.late_starters:late_starters",
        "if not unknown:",
        "if True:",
        among=FOREIGN,
        seed=114,
    ),
    Planted(
        "head noted after the baseline",
        "`first` is read after the instant exists and the timeline was listed",
        "occ.baseline:begin",
        "timeline = table.timeline()\n",
        "timeline = table.timeline()\n            first = table.log.look().head\n",
        seed=163,
    ),
    Planted(
        "older than what it builds on",
        "a transaction keeps an instant although a newer one is visible in its baseline",
        "occ.baseline:begin",
        "if shared or any(i.requested > instant for i in (*timeline.commits, *timeline.rollbacks)):",
        "if shared:",
        also=(Edit("engine.file_tasks:rewrite_group", "if base.instant >= context.instant:", "if False:"),),
        seed=20,
    ),
    Planted(
        "one instant, two actions",
        "a transaction keeps an instant that another action has used",
        "occ.baseline:begin",
        "if shared or any(i.requested > instant for i in (*timeline.commits, *timeline.rollbacks)):",
        "if any(i.requested > instant for i in (*timeline.commits, *timeline.rollbacks)):",
        among=family("same_moment"),
        seed=1391,
    ),
    Planted(
        "no new look under the lock",
        "the commit judges itself against the log as it was at the baseline",
        "occ.committing.commit:Commit._under_lock",
        "decisions = view.decisions",
        "decisions = ()",
        seed=43,
    ),
    Planted(
        "old timeline under the lock",
        "the commit judges itself against the timeline of the baseline",
        "occ.committing.commit:Commit._under_lock",
        "timeline, properties, view = self._look(ahead)",
        "_, properties, view = self._look(ahead); timeline = baseline.timeline",
        seed=4,
    ),
    Planted(
        "a decision that overwrites",
        "decision numbers are written without a condition",
        "occ.records.decisions:DecisionLog.decide",
        "outcome = create(self._storage, layout.decision(decision.number), decision.to_bytes())",
        "outcome = (self._storage.put(layout.decision(decision.number), decision.to_bytes()), Created.OURS)[1]",
        seed=1,
    ),
    Planted(
        "no reply taken for a refusal",
        "a commit whose decision got no reply is called rejected at once",
        "occ.committing.deciding:Deciding.decide",
        "made = self._make_definite(decision)",
        "raise RolledBackError('no reply', hint='')",
        seed=0,
    ),
    Planted(
        "no reply taken for success",
        "a create without a reply counts as ours",
        "storage.base:create",
        "    except StorageUnavailable:\n        pass\n",
        "    except StorageUnavailable:\n        return Created.OURS\n",
        seed=14,
    ),
    Planted(
        "no read-back",
        "a create that found its own object calls it another's, and the commit does not know its own decision either",
        "storage.base:create",
        "return Created.OURS if found.data == data else Created.THEIRS",
        "return Created.THEIRS",
        also=(
            Edit(
                "occ.committing.deciding:Deciding.decide",
                "if found is None or found.write_id != decision.write_id:",
                "if True:",
            ),
            Edit(
                "occ.committing.commit:Commit._under_lock",
                "if mine is not None and self._deciding.stands(mine):",
                "if False:",
            ),
        ),
        seed=4,
    ),
    Planted(
        "boundary before the listing",
        "the log's boundary is read before the listing",
        "occ.records.decisions:DecisionLog.look",
        "    listed = self.numbers(after) if listed is None else listed\n"
        "    records = self._records(listed, newest)\n"
        "    record = self.read_boundary() if judged_by is None else judged_by\n",
        "    record = self.read_boundary() if judged_by is None else judged_by\n"
        "    listed = self.numbers(after) if listed is None else listed\n"
        "    records = self._records(listed, newest)\n",
        seed=0,
    ),
    Planted(
        "records after the boundary",
        "a decision is read after the log's boundary, when it may have been collected and its number used by a late request",
        "occ.records.decisions:DecisionLog.look",
        "    records = self._records(listed, newest)\n    record = self.read_boundary() if judged_by is None else judged_by\n",
        "    record = self.read_boundary() if judged_by is None else judged_by\n    records = self._records(listed, newest)\n",
        seed=32,
    ),
    Planted(
        "no boundary after the put",
        "a decision counts although its number had been used and collected",
        "occ.committing.deciding:Deciding.decide",
        "if table.log.boundary() >= decision.number:",
        "if False:",
        seed=32,
    ),
    Planted(
        "window with a hole",
        "the commit does not notice that decisions of its window were collected",
        "occ.committing.commit:Commit._under_lock",
        "if view.boundary > baseline.first:",
        "if False:",
        seed=32,
    ),
    Planted(
        "next number before publication",
        "a commit is decided while the one before it is not visible",
        "occ.committing.commit:Commit._under_lock",
        "timeline = finish_head(table, view, timeline)\n",
        "pass\n",
        seed=10,
    ),
    Planted(
        "checkpoint of all that is older",
        "a checkpoint counts as covering every commit of an earlier instant than its newest, also one that completed late",
        "occ.file_index.effects:Effects.after",
        "if not coverage.covers(instant.requested)]",
        'if instant.requested > max(coverage.instants, default="")]',
        seed=6,
    ),
)
