"""Planted bugs of keeping Hudi's metadata table: one line each of what keeps rows from being hidden from its readers."""

from __future__ import annotations

from tests.simulation.planted.kinds import APPENDING, FOREIGN, METADATA
from tests.simulation.planted.planting import Edit, Planted

BUGS_OF_METADATA = (
    Planted(
        "a commit that the metadata table lacks",
        "a commit is published without a delta commit of the metadata table",
        "occ.publish:publish",
        "metadata.commit(decision.instant, ",
        "(lambda *_: None)(decision.instant, ",
        among=METADATA,
        within=20,
        seed=22,
    ),
    Planted(
        "a commit for another that the metadata table lacks",
        "whoever publishes a commit for another leaves the metadata table behind",
        "occ.publish:publish_for_another",
        "if is_pending else None",
        "if False else None",
        among=METADATA,
        within=100,
        seed=84,
    ),
    Planted(
        "a delta commit as old as its instant",
        "the completion time of a delta commit is fixed by the decision, so that a compaction hides it",
        "occ.metadata_table:KeptMetadata._append",
        "completion = later_than(self.table.runtime.now_ms(), max(timeline.newest_time, instant))",
        "completion = later_than(0, instant)",
        among=METADATA,
        within=100,
        seed=53,
    ),
    Planted(
        "a compaction at the very time of a commit",
        "a compaction of the metadata table that has the time of an instant counts as its delta commit",
        "occ.metadata_table:KeptMetadata._append",
        "i.requested == instant and i.is_completed and i.action == Action.DELTA_COMMIT",
        "i.requested == instant and i.is_completed",
        among=METADATA & FOREIGN,
        within=100,
        also=(Edit("occ.metadata_table:KeptMetadata.ensure_free", "if any(", "if False and any("),),
        seed=115,
    ),
    Planted(
        "a clean that the metadata table lacks",
        "the metadata table lists files that a clean has deleted",
        "occ.clean:_complete_clean",
        "metadata.mended(timeline).clean(instant, plan.files, timeline)",
        "pass",
        among=METADATA,
        within=100,
        seed=84,
    ),
    Planted(
        "log files that the metadata table lacks",
        "only base files of a merge-on-read table are listed",
        "occ.metadata_table:KeptMetadata._list",
        "for stat in stats if stat.path}",
        "for stat in stats if stat.path and '.log.' not in stat.path}",
        among=METADATA & APPENDING,
        within=20,
        seed=394,
    ),
    Planted(
        "a compaction of what may be taken back",
        "the metadata table is compacted while a commit is listed that is not visible, and may be rolled back",
        "occ.metadata_upkeep:_held_by",
        "if is_pending(look.table.data, i.requested)",
        "if False",
        among=METADATA & FOREIGN,
        within=1_000,
        seed=16979,
        also=(
            Edit(
                "occ.metadata_upkeep:_compact",
                "finish_head(table, view := table.log.look(), table.timeline())",
                "view = table.log.look()",
            ),
        ),
    ),
    Planted(
        "a compaction that takes no number",
        "a writer that wrongly believes to have the lock lists a commit as older than a compaction that lacks it",
        "occ.metadata_upkeep:_planned",
        "if made is not Created.OURS:",
        "if False:",
        among=METADATA,
        within=1_000,
        seed=2874,
    ),
)
