"""Planted bugs of beginning, judging and deciding: one line each of what keeps two commits apart."""

from __future__ import annotations

from tests.simulation.planted.kinds import FOREIGN, PAGED, family
from tests.simulation.planted.planting import Edit, Planted

BUGS_OF_COMMITS = (
    Planted(
        "begin without finishing the head",
        "a transaction begins although the newest decided commit is not visible yet",
        "occ.begin:begin",
        "if head is not None and unpublished and head.instant not in table.observed.void:",
        "if False:",
        seed=62,
    ),
    Planted(
        "a listing in pages",
        "a reader lists a long timeline once, and sees a commit without the one before it",
        "occ.open_table:OpenTable.timeline_of_one_moment",
        "return self.timeline().up_to(timeline)",
        "return timeline",
        among=PAGED,
        seed=480,
    ),
    Planted(
        "too quick for a late starter",
        "nobody waits for a foreign writer that has an earlier instant and has not looked at the table",
        "occ.foreign:late_starters",
        "if not unknown:",
        "if True:",
        among=FOREIGN,
        seed=109,
    ),
    Planted(
        "head noted after the baseline",
        "`first` is read after the instant exists and the timeline was listed",
        "occ.begin:begin",
        "timeline, announced = _begun(table, heartbeat, instant, action, new_group, has_decided=bool(view.decisions))\n",
        "timeline, announced = _begun(table, heartbeat, instant, action, new_group, has_decided=bool(view.decisions))\n"
        "        first = table.log.look().head\n",
        seed=42,
    ),
    Planted(
        "older than what it builds on",
        "a transaction keeps an instant although a newer one is visible in its baseline",
        "occ.begin:begin",
        "if shared or any(i.action == Action.ROLLBACK or (i.is_write and i.is_completed) for i in others):",
        "if shared:",
        also=(Edit("engine.file_tasks:rewrite_group", "if own is None and base.instant >= context.instant:", "if False:"),),
        seed=20,
    ),
    Planted(
        "one instant, two actions",
        "a transaction keeps an instant that another action has used",
        "occ.begin:begin",
        "if shared or any(i.action == Action.ROLLBACK or (i.is_write and i.is_completed) for i in others):",
        "if any(i.is_write and i.is_completed and i.requested > instant for i in others):",
        among=family("same_moment"),
        seed=1775,
    ),
    Planted(
        "no new look under the lock",
        "the commit judges itself against the log as it was at the baseline",
        "occ.commit:Commit._under_lock",
        "decisions = view.decisions",
        "decisions = ()",
        seed=127,
    ),
    Planted(
        "old timeline under the lock",
        "the commit judges itself against the timeline of the baseline",
        "occ.commit:Commit._under_lock",
        "timeline, properties, view = seen or self._look(None)",
        "_, properties, view = seen or self._look(None); timeline = baseline.timeline",
        seed=4,
    ),
    Planted(
        "a look beside a lock that others held",
        "a look that was made while the lock was taken counts, although others have held the lock meanwhile",
        "occ.commit:Commit._look_beside",
        "if not held.undisturbed or numbers or boundary.number > self._baseline.first:",
        "if numbers or boundary.number > self._baseline.first:",
        among=FOREIGN,
        within=3000,
        seed=692,
    ),
    Planted(
        "a decision that overwrites",
        "decision numbers are written without a condition",
        "occ.log:DecisionLog.decide",
        "outcome = create(self._storage, layout.decision(decision.number), decision.to_bytes())",
        "outcome = (self._storage.put(layout.decision(decision.number), decision.to_bytes()), Created.OURS)[1]",
        seed=1,
    ),
    Planted(
        "no reply taken for a refusal",
        "a commit whose decision got no reply is called rejected at once",
        "occ.decide:Deciding.decide",
        "made = self._make_definite(decision)",
        "raise RolledBackError('no reply', hint='')",
        seed=96,
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
                "occ.decide:Deciding.decide",
                "if found is None or found.write_id != decision.write_id:",
                "if True:",
            ),
            Edit(
                "occ.commit:Commit._under_lock",
                "if mine is not None and self._deciding.stands(mine):",
                "if False:",
            ),
        ),
        seed=6,
    ),
    Planted(
        "boundary before the listing",
        "the log's boundary is read before the listing",
        "occ.log:DecisionLog.look",
        "    listed = self.numbers(after) if listed is None else listed\n"
        "    records = self._records(listed, newest)\n"
        "    record = self.read_boundary() if judged_by is None else judged_by\n",
        "    record = self.read_boundary() if judged_by is None else judged_by\n"
        "    listed = self.numbers(after) if listed is None else listed\n"
        "    records = self._records(listed, newest)\n",
        seed=23,
    ),
    Planted(
        "records after the boundary",
        "a decision is read after the log's boundary, when it may have been collected and its number used by a late request",
        "occ.log:DecisionLog.look",
        "    records = self._records(listed, newest)\n    record = self.read_boundary() if judged_by is None else judged_by\n",
        "    record = self.read_boundary() if judged_by is None else judged_by\n    records = self._records(listed, newest)\n",
        seed=124,
    ),
    Planted(
        "no boundary after the put",
        "a decision counts although its number had been used and collected",
        "occ.decide:Deciding.decide",
        "if self._boundary_after(decision) >= decision.number:",
        "if False:",
        seed=80,
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
        "timeline = finish_head(table, view, timeline)\n",
        "pass\n",
        seed=32,
    ),
    Planted(
        "checkpoint of all that is older",
        "a checkpoint counts as covering every commit of an earlier instant than its newest, also one that completed late",
        "occ.file_index:Effects.after",
        "if not coverage.covers(instant.requested)]",
        'if instant.requested > max(coverage.instants, default="")]',
        seed=6,
    ),
)
