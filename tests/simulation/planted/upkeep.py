"""Planted bugs of upkeep: what services may take for granted, delete or archive, and how they yield to writes."""

from __future__ import annotations

from tests.simulation.planted.kinds import CLEANED, COMPACTED, OPTIMIZED, RESTORED, SKEWED, STRAGGLERS, WITHOUT_INDEX
from tests.simulation.planted.planting import Edit, Planted

BUGS_OF_UPKEEP = (
    Planted(
        "no look after the claim",
        "a write that takes a file group over from an optimize does not look whether that has committed meanwhile",
        "occ.claims:early_conflict",
        "        or window_conflict(table, baseline, mine)\n",
        "",
        among=OPTIMIZED,
        seed=315,
    ),
    Planted(
        "a service that does not see its own rollback",
        "an optimize commits although a write that came later has made it yield",
        "occ.commit:Commit._ensure_pending",
        "if mine is not None:",
        "if False:",
        among=OPTIMIZED,
        seed=43,
    ),
    Planted(
        "log files that a compaction forgets",
        "a compaction writes the rows of the base file only, and hides what the log files on it say",
        "occ.optimize:compact",
        "[Copy(file, file) for file in mine]",
        "[Copy(file._replace(logs=()), file) for file in mine]",
        among=COMPACTED,
        seed=71,
    ),
    Planted(
        "a compaction over what was appended meanwhile",
        "a compaction commits although a log file that it has not seen lies on the file group",
        "occ.rules:file_group",
        "both = frozenset(group for group in mine.touched & other.touched if not _lies_on(group, mine, other))",
        'both = frozenset() if mine.party.operation == "COMPACT" else mine.touched & other.touched',
        among=COMPACTED,
        seed=131,
    ),
    Planted(
        "log files that a restore leaves",
        "a restore takes a file group for unchanged whose base file is, whatever has been appended to it since",
        "occ.restore:plan_restore",
        "base.content != file.content",
        "base.key != file.key",
        among=COMPACTED & RESTORED,
        seed=100,
    ),
    Planted(
        "stray rows made permanent",
        "an optimize joins whatever files a listing shows, also those that no commit names",
        "occ.optimize:_named",
        "if file.key in named or not file.token or commits[file.instant] is None]",
        "if True]",
        among=OPTIMIZED & STRAGGLERS & WITHOUT_INDEX,
        seed=6869,
    ),
    Planted(
        "a restore that has read nothing",
        "what others add while a restore is at work stays",
        "occ.restore:_restored",
        "tx.reads(WholeTable())",
        "pass",
        among=RESTORED,
        seed=100,
    ),
    Planted(
        "a cleaner that forgets running transactions",
        "files that a running transaction has in its baseline are deleted",
        "occ.retention:_first_unsettled",
        "min(began, key=lambda each: each[0], default=None)",
        "None",
        among=CLEANED,
        seed=548,
    ),
    Planted(
        "a cleaner that forgets readers",
        "files are deleted although they were superseded less than `clean.readers_s` ago",
        "occ.retention:_first_unsettled",
        "if shown_ms > readers_since_ms:",
        "if False:",
        among=CLEANED,
        seed=260,
    ),
    Planted(
        "a cleaner that looks at the age of files",
        "the last file from before the retained time goes, although the table as of that time has it",
        "occ.retention:_superseded",
        "if next_ < limit and one < kept",
        "if one < limit and one < kept",
        among=CLEANED,
        seed=20,
    ),
    Planted(
        "a cleaner that forgets savepoints",
        "files that a savepoint keeps are deleted",
        "occ.clean:_draft_plan",
        "held=saved.keys, ",
        "held=frozenset(), ",
        among=CLEANED,
        also=(Edit("occ.clean:_carry_out", "if key not in needed]", "]"),),
        seed=20,
    ),
    Planted(
        "a clean under way overlooked",
        "a read as of an earlier time shows what is left of it while a cleaner is deleting",
        "occ.retention:newest_readable_from",
        "cleans = timeline.cleanings",
        "cleans = tuple(clean for clean in timeline.cleanings if clean.is_completed)",
        among=CLEANED,
        seed=548,
    ),
    Planted(
        "a manifest removed with its version refused",
        "an archiver removes a manifest that the history names, because its own request was repeated",
        "occ.archive:extend",
        "    return made is not None",
        "    if made is None:\n        storage.delete([manifest_key(version)])\n    return made is not None",
        among=CLEANED,
        seed=164,
    ),
    Planted(
        "archived without the history",
        "an archiver removes instants from the timeline that it has not put into the history",
        "occ.archive:_move",
        "if not extend(table.storage, history, {file: data}, without=()):",
        "if False:",
        among=CLEANED,
        seed=260,
    ),
    Planted(
        "archived by the archiver's own clock",
        "an archiver judges the age of commits by its machine's clock instead of the storage's",
        "occ.archive:_archivable",
        "StorageClock.measure(table.storage, table.runtime).now_ms(table.runtime)",
        "table.runtime.now_ms()",
        among=CLEANED,
        seed=372,
    ),
    Planted(
        "a replacement archived too early",
        "a replacement leaves the timeline while replaced files are still there, and they are shown again",
        "occ.archive:_holder_of",
        "if commit.requested in still_replaced:",
        "if False:",
        among=CLEANED & WITHOUT_INDEX,
        seed=4516,
    ),
    Planted(
        "a checkpoint over pending instants",
        "a commit that completes late counts as covered by a checkpoint that has nothing of it",
        "table.snapshot:lowest_open",
        "return min(writes[0].requested, grace)",
        "return grace",
        among=SKEWED,
        also=(Edit("table.snapshot:Coverage.is_within", "self.low > next(writes, self.low) or ", ""),),
        seed=11,
    ),
)

OVER_LEFTOVERS = Planted(
    "an archive over what was left behind",
    "commits leave the timeline that are newer than files of a dead writer, which then count as committed",
    "occ.archive:archivable",
    "elif dirty and following.requested > dirty:",
    "elif False:",
)
"""Not among the others: what it needs must stay for longer than chance lets it, since every writer removes it."""

OVER_SAVED = Planted(
    "saved commits hide the archive",
    "what was archived is not shown while every later commit has a savepoint",
    "table.timeline:Timeline.of",
    "any(i.is_completed for i in telling)",
    "any(i.is_completed and i.requested not in saved for i in telling)",
)
"""Not among the others either: an archiver leaves several commits, and one without a savepoint is enough to show the rest."""

TAKEN_OVER = Planted(
    "a claim taken over without a word",
    "a write takes the claim of a live optimize without deciding that this is rolled back",
    "occ.claims:_made_to_yield",
    "if decide_rollback(table, victim) is RollbackOutcome.COMMITTED:",
    "if False:",
)
"""Not among the others: what the optimize then commits conflicts with the write, but for few histories."""
