"""The rules of Delta's conflict checker (`ConflictChecker.scala`), over file groups.

They ask what partitions and file statistics tell, and never look into files, so that all of them answer at once. Where Delta
goes by partitions only, the recorded ranges of columns narrow a condition further. A service that only moves rows conflicts
with whoever rewrites the same file groups, and with nobody else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lakelock.conflict import Conflict, ConflictRule
from lakelock.occ.conflicts.footprint import Footprint
from lakelock.occ.conflicts.isolation import Isolation, Level
from lakelock.occ.conflicts.reads import Read
from lakelock.occ.conflicts.rules import partition_overwrite as any_write_into_overwritten
from lakelock.occ.conflicts.summary import CommitSummary
from lakelock.table.pruning import StatisticsOf
from lakelock.table.schema import TableSchema
from lakelock.table.schema_changes import changed
from lakelock.table.snapshot import DataFile


def metadata(mine: Footprint, other: CommitSummary, isolation: Isolation) -> Conflict | None:
    """The other changed the table's columns, in whatever way: who writes by the old ones begins again."""
    if isolation.schema is None or not other.schema_json:
        return None
    before, after = isolation.schema, TableSchema.of_commit(other.schema_json)
    if after == before:
        return None
    columns = [*changed(before.arrow, after.arrow), *(name for name in before.names if name not in after.names)]
    over = columns or ["the order of the columns"]
    return Conflict.over(ConflictRule.METADATA, mine.party, other.party, over, detail="the other changed the columns")


def delete_read(mine: Footprint, other: CommitSummary, isolation: Isolation) -> Conflict | None:
    """The other rewrote or replaced a file with rows that I may have read."""
    for read in _at_stake(mine, other):
        files = [isolation.before(group) for group in sorted(other.touched) if read.concerns(group.partition)]
        found = _with_rows(read, [file for file in files if file is not None], isolation.statistics)
        if found:
            return _over(ConflictRule.DELETE_READ, mine, other, read, found, "rewrote files that may hold rows")
    return None


def append(mine: Footprint, other: CommitSummary, isolation: Isolation) -> Conflict | None:
    """The other wrote a file with rows that I may have to read now. Blind appends count where the level says so."""
    if _is_passed_over(other, isolation):
        return None
    files = [file for _, file in sorted(other.files.items())]
    for read in _at_stake(mine, other):
        concerned = [file for file in files if read.concerns(file.partition)]
        found = _with_rows(read, concerned, other.statistics_of)
        if found:
            conflict = _over(ConflictRule.APPEND, mine, other, read, found, "wrote files that may hold rows")
            return _with_weaker_level(conflict, other)
    return None


def partition_overwrite(mine: Footprint, other: CommitSummary, isolation: Isolation) -> Conflict | None:
    """The other wrote into a partition that I overwrite, unless it did so blindly and the level lets that pass."""
    conflict = None if _is_passed_over(other, isolation) else any_write_into_overwritten(mine, other, isolation)
    return None if conflict is None else _with_weaker_level(conflict, other)


def _is_passed_over(other: CommitSummary, isolation: Isolation) -> bool:
    return isolation.level is Level.WRITE_SERIALIZABLE and other.is_blind_append


def _with_weaker_level(conflict: Conflict, other: CommitSummary) -> Conflict:
    return replace(conflict, passes_at=Level.WRITE_SERIALIZABLE.value if other.is_blind_append else "")


def _at_stake(mine: Footprint, other: CommitSummary) -> tuple[Read, ...]:
    """My reads; none if the other only moved rows."""
    return () if other.changes_no_row else mine.reads


def _with_rows(read: Read, files: Sequence[DataFile], statistics: StatisticsOf) -> list[DataFile]:
    """The files that may hold a row which the read would see. Where Delta removes a file whose last row is deleted, here is one
    without rows.
    """
    return [file for file in read.candidates(files, statistics) if (told := statistics(file)) is None or told.rows != 0]


def _over(
    rule: ConflictRule,
    mine: Footprint,
    other: CommitSummary,
    read: Read,
    files: Sequence[DataFile],
    verb: str,
) -> Conflict:
    detail = f"the other {verb} that this transaction read as {read.description}"
    conflict = Conflict.over(rule, mine.party, other.party, (str(file.group) for file in files), detail=detail)
    return replace(conflict, read=read.description)
