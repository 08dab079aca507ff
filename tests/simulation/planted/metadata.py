"""Planted bugs of keeping Hudi's metadata table: one line each of what keeps rows from being hidden from its readers."""

from __future__ import annotations

from tests.simulation.planted.kinds import APPENDING, FOREIGN, INDEXED, METADATA, STATISTICS
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
        seed=3773,
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
        "new keys that the record index lacks",
        "another engine that looks a key up there inserts it a second time",
        "occ.metadata_table:_places",
        "if changes.added:",
        "if False:",
        among=INDEXED,
        within=10,
        seed=301,
    ),
    Planted(
        "deleted keys that the record index has",
        "the record index names file groups that do not have the key any more",
        "occ.metadata_table:_places",
        "gone.update(dict.fromkeys(changes.gone))",
        "pass",
        among=INDEXED,
        within=10,
        seed=394,
    ),
    Planted(
        "keys that a log file deletes",
        "what log files delete stays in the record index",
        "table.record_index:changed_keys",
        "list(changes_in(log, _NO_COLUMNS, storage).deleted)",
        "[]",
        among=INDEXED & APPENDING,
        within=20,
        seed=394,
    ),
    Planted(
        "a replaced file group whose keys stay",
        "the record index names file groups that were replaced",
        "occ.metadata_table:key_changes",
        "for file in replaced]\n    try",
        "for file in ()]\n    try",
        among=INDEXED,
        within=20,
        seed=1262,
    ),
    Planted(
        "a row that moves and is taken out",
        "of a key that a commit takes out of one file group and puts into another, the record index has nothing",
        "occ.metadata_table:_places",
        "{**gone, **places}",
        "{**places, **gone}",
        among=INDEXED,
        within=20,
        seed=1262,
    ),
    Planted(
        "bounds below those of a later instant",
        "bounds of a commit that began earlier than another are written but once, so those of the other count",
        "occ.metadata_table:KeptMetadata._list",
        "log and log.instant > instant for log in logs",
        "False for log in logs",
        among=STATISTICS,
        within=20,
        seed=208,
    ),
    Planted(
        "bounds that are not joined",
        "the bounds of a partition are those of a commit's new files alone",
        "occ.metadata_table:KeptMetadata.statistics",
        "partition_stats_records(partition, each, known, version, schema)",
        "partition_stats_records(partition, each, {}, version, schema)",
        among=STATISTICS,
        within=20,
        seed=208,
    ),
    Planted(
        "bounds that were overtaken",
        "bounds of another engine below those of a later instant stay so",
        "occ.metadata_table:KeptMetadata.mended",
        "overtaken(self.timeline, data) if PARTITION_STATS in self.listed else []",
        "[]",
        among=STATISTICS & FOREIGN,
        within=100,
        seed=2533,
    ),
)

TAKEN_BACK = Planted(
    "a compaction of what may be taken back",
    "the metadata table is compacted while a commit is listed that is not visible, and may be rolled back",
    "occ.metadata_upkeep:_held_by",
    "if is_pending(look.table.data, i.requested)",
    "if False",
)
"""Not among the others: it needs a death within two requests, and a compaction before anybody else looks at the table."""

WITHOUT_A_NUMBER = Planted(
    "a compaction that takes no number",
    "a writer that wrongly believes to have the lock lists a commit as older than a compaction that lacks it",
    "occ.metadata_upkeep:_planned",
    "if made is not Created.OURS:",
    "if False:",
)
"""Not among the others: it needs such a writer, and its decision within one request of the plan."""

TIME_OF_A_CLEAN = Planted(
    "the list of a clean taken back",
    "whoever rolls back a writer that took the time of a clean takes back what the clean has listed",
    "occ.rollback:roll_back",
    "if metadata is not None and not (unseen or _is_also_a_service(table, target.instant)):",
    "if metadata is not None:",
)
"""Not among the others: of seven million seeds one found it, and no longer does."""

TIME_OF_A_TRANSACTION = Planted(
    "bounds under the time of a transaction",
    "bounds are written once more under a time that a transaction takes, so that readers pass over them",
    "table.metadata_table:own_time",
    'return f"{moment}{int(number or 0) + 1:0{BETWEEN_DIGITS}}"',
    "from lakelock.table.instants import later_than\n    return later_than(0, newest)",
)
"""Not among the others: a transaction has to begin at this very time."""
