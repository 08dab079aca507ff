"""Conflict rules: small pure functions over what two transactions touched. `profiles.py` orders them.

The test of the whole is serializability in decision order: replaying the committed transactions one by one, in that
order, gives the table. A rule answers with a `Conflict` or with None; a rule about reads answers with `FileCheck`s: files whose
content must be checked before anyone can tell, which happens outside the lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from lakelock.conflict import Conflict, ConflictRule, Party
from lakelock.occ.conflicts.footprint import SERVICES, Footprint
from lakelock.occ.conflicts.isolation import Isolation
from lakelock.occ.conflicts.reads import Read, ReadKind
from lakelock.occ.conflicts.summary import CommitSummary
from lakelock.table.index import bucket_of_group
from lakelock.table.layout import FileGroupId
from lakelock.table.schema import TableSchema
from lakelock.table.snapshot import DataFile

Rule = Callable[[Footprint, CommitSummary, Isolation], "Conflict | None"]
ReadRule = Callable[[Footprint, CommitSummary, Isolation], "list[FileCheck]"]


@dataclass(frozen=True)
class FileCheck:
    """A question that only the files can answer: does `read` see any row of `files`?"""

    read: Read
    other: CommitSummary
    rule: ConflictRule
    files: tuple[DataFile, ...]

    @property
    def identity(self) -> tuple[int, str, tuple[str, ...]]:
        """Equal for equal questions, so that one look serves every later round of the same commit."""
        return id(self.read), self.other.party.instant, tuple(f.key for f in self.files)

    def answer(self, mine: Footprint) -> Conflict | None:
        """Look into the files now."""
        match = self.read.matches(self.files)
        if match is None:
            return None
        conflict = self.possible(mine)
        return replace(conflict, overlap=(match,), overlap_count=1, within=conflict.overlap)

    def possible(self, mine: Footprint) -> Conflict:
        """The conflict that there is if the files hold such a row, over the partitions of the files."""
        verb = {ConflictRule.APPEND: "added", ConflictRule.KEY: "wrote"}.get(self.rule, "changed")
        read = self.read.description
        conflict = Conflict.over(
            self.rule,
            mine.party,
            self.other.party,
            {file.partition or "the table" for file in self.files},
            detail=f"the other {verb} rows that this transaction read as {read}",
        )
        return replace(conflict, read=read)


def application_transaction(mine: Footprint, other: CommitSummary, isolation: Isolation) -> Conflict | None:
    """The other carries my application transaction, or a later one of the same application."""
    ours, theirs = mine.application, other.application
    if ours is None or theirs is None or ours.app_id != theirs.app_id or theirs.version < ours.version:
        return None
    conflict = Conflict.over(
        ConflictRule.APPLICATION_TRANSACTION,
        mine.party,
        other.party,
        [str(ours)],
        detail="another run of the same application has already applied this version",
    )
    return replace(conflict, retry_helps=theirs.version == ours.version)


def retyped(mine: Footprint, other: CommitSummary, isolation: Isolation) -> Conflict | None:
    """The other wrote in other types while I read by a condition: its files cannot be looked into in mine."""
    if isolation.schema is None or not other.schema_json or not other.files or not _at_stake(mine, other, ReadKind.ROWS):
        return None
    before, after = isolation.schema.arrow, TableSchema.of_commit(other.schema_json).arrow
    columns = [field.name for field in before if field.name in after.names and field.type != after.field(field.name).type]
    if not columns:
        return None
    return Conflict.over(ConflictRule.METADATA, mine.party, other.party, columns, detail="the other changed the columns' types")


def file_group(mine: Footprint, other: CommitSummary, isolation: Isolation) -> Conflict | None:
    """The other rewrote or replaced a file group that I rewrite or replace, or made the file group of a bucket that I make.

    A bucket has one file group, so two writers who find none must not both make one. Java compares buckets, too
    (`BucketIndexConcurrentFileWritesConflictResolutionStrategy`).
    """
    both = mine.touched & other.touched
    if both:
        return Conflict.over(ConflictRule.FILE_GROUP, mine.party, other.party, map(str, both))
    made = mine.new_buckets.intersection(bucket_of_group(group) for group in other.files if group not in other.touched)
    if not made:
        return None
    detail = "both make the first file group of a bucket"
    return Conflict.over(ConflictRule.FILE_GROUP, mine.party, other.party, map(str, made), detail=detail)


def partition_overwrite(mine: Footprint, other: CommitSummary, isolation: Isolation) -> Conflict | None:
    """The other wrote into a partition that I overwrite: I have not seen its rows, and they would stay.

    Not the other way round: what I add after its overwrite stands beside what it left, as if I had begun then. What I
    looked up or rewrote there is judged by the other rules, since it replaced all file groups that it found.
    """
    both = mine.overwritten_partitions & other.written_partitions
    if not both:
        return None
    return Conflict.over(ConflictRule.PARTITION_OVERWRITE, mine.party, other.party, (p or "the table" for p in both))


def write_set(mine: Footprint, other: CommitSummary, isolation: Isolation) -> Conflict | None:
    """The other updated or deleted rows of a partition in which I do: the first committer wins, as with Hive 3's write sets.

    Services change no row, so that they count neither here nor there.
    """
    if other.changes_no_row or mine.party.operation in SERVICES:
        return None
    both = {group.partition for group in mine.touched}.intersection(group.partition for group in other.touched)
    if not both:
        return None
    return Conflict.over(ConflictRule.WRITE_SET, mine.party, other.party, (p or "the table" for p in both))


def append(mine: Footprint, other: CommitSummary, isolation: Isolation) -> list[FileCheck]:
    """The other added rows that a condition which I evaluated may select."""
    reads = _at_stake(mine, other, ReadKind.ROWS)
    return [check for read in reads for check in _added(ConflictRule.APPEND, read, other)]


def delete_read(mine: Footprint, other: CommitSummary, isolation: Isolation) -> list[FileCheck]:
    """The other rewrote or replaced file groups with rows that a condition which I evaluated may select."""
    reads = _at_stake(mine, other, ReadKind.ROWS)
    return [check for read in reads for check in _changed(ConflictRule.DELETE_READ, read, mine, other, isolation)]


def key(mine: Footprint, other: CommitSummary, isolation: Isolation) -> list[FileCheck]:
    """The other may have written one of the keys that I looked up, found or not."""
    found: list[FileCheck] = []
    for read in _at_stake(mine, other, ReadKind.KEYS):
        found += _added(ConflictRule.KEY, read, other)
        found += _changed(ConflictRule.KEY, read, mine, other, isolation)
    return found


def _at_stake(mine: Footprint, other: CommitSummary, kind: ReadKind) -> list[Read]:
    """My reads of a kind; none if the other only moved rows."""
    return [] if other.changes_no_row else [read for read in mine.reads if read.kind is kind]


def _added(rule: ConflictRule, read: Read, other: CommitSummary) -> list[FileCheck]:
    added = _named([f for g, f in other.files.items() if g not in other.touched and read.concerns(g.partition)], read)
    return [FileCheck(read, other, rule, added)] if added else []


def _changed(rule: ConflictRule, read: Read, mine: Footprint, other: CommitSummary, isolation: Isolation) -> list[FileCheck]:
    """Both files of a rewritten file group matter: the old one shows what I may have read, the new one what I would read now.
    File groups that I rewrite myself are left out: the file-group rule has judged them.
    """
    changed: list[DataFile] = []
    for group in sorted(other.touched - mine.touched):  # so that the same run asks the same requests
        if read.concerns(group.partition):
            changed += [f for f in (isolation.before(group), other.files.get(group)) if f is not None]
    changed_files = _named(changed, read)
    return [FileCheck(read, other, rule, changed_files)] if changed_files else []


def _named(files: list[DataFile], read: Read) -> tuple[DataFile, ...]:
    """The files that have to be looked into: all that their names do not rule out."""
    return tuple(read.candidates(files, lambda file: None)) if files else ()


def pending_service(mine: Footprint, service: str, groups: Iterable[FileGroupId]) -> Conflict | None:
    """A pending clustering plan, of any age, covers a file group that I rewrite or replace: Java would undo my update."""
    both = mine.touched & frozenset(groups)
    if not both:
        return None
    conflict = Conflict.over(
        ConflictRule.PENDING_TABLE_SERVICE,
        mine.party,
        Party(service, "clustering (planned)"),
        map(str, both),
        detail="run or roll back the planned clustering first; its execution would silently undo this write. In the other "
        "engine hoodie.clustering.inline, .schedule.inline and .async.enabled plan it",
    )
    return replace(conflict, retry_helps=False)
