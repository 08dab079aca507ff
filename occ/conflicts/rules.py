"""Conflict rules: small pure functions over what two transactions touched, and the profiles that order them.

The test of the whole is serializability in decision order: replaying the committed transactions one by one, in that
order, gives the table. A rule answers with a `Conflict`, with None, or (the read rule) with a `FileCheck`: files whose
content must be checked before anyone can tell, which happens outside the lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from lakelock.conflict import Conflict, ConflictRule, Party
from lakelock.occ.conflicts.footprint import ConcurrentCommit, Footprint
from lakelock.occ.conflicts.reads import Read, ReadKind
from lakelock.table.layout import FileGroupId
from lakelock.table.snapshot import DataFile

Rule = Callable[[Footprint, ConcurrentCommit], "Conflict | None"]


@dataclass(frozen=True)
class FileCheck:
    """A question that only the files can answer: does `read` see any row of `files`?"""

    read: Read
    other: ConcurrentCommit
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
        verb = {ConflictRule.APPEND: "added", ConflictRule.KEY: "wrote"}.get(self.rule, "changed")
        return Conflict.over(
            self.rule,
            mine.party,
            self.other.party,
            [match],
            detail=f"the other {verb} rows that this transaction read as {self.read.description}",
        )


def application_transaction(mine: Footprint, other: ConcurrentCommit) -> Conflict | None:
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


def file_group(mine: Footprint, other: ConcurrentCommit) -> Conflict | None:
    """The other rewrote or replaced a file group that I rewrite or replace."""
    both = mine.touched & other.touched
    return Conflict.over(ConflictRule.FILE_GROUP, mine.party, other.party, map(str, both)) if both else None


def partition_overwrite(mine: Footprint, other: ConcurrentCommit) -> Conflict | None:
    """The other wrote into a partition that I overwrite: I have not seen its rows, and they would stay.

    Not the other way round: what I add after its overwrite stands beside what it left, as if I had begun then. What I
    looked up or rewrote there is judged by the other rules, since it replaced all file groups that it found.
    """
    both = mine.overwritten_partitions & other.written_partitions
    if not both:
        return None
    return Conflict.over(ConflictRule.PARTITION_OVERWRITE, mine.party, other.party, (p or "the table" for p in both))


def file_checks(mine: Footprint, other: ConcurrentCommit, before: Callable[[FileGroupId], DataFile | None]) -> list[FileCheck]:
    """The read rules (append, delete-read, key), as questions about files.

    `before` gives a file group's file in my snapshot. Of a rewritten file group both its files matter: the old one
    tells what I may have read, the new one what I would read now. File groups that I rewrite myself need no look: the
    file-group rule has judged them. Nor does what only moved rows, whatever I read.
    """
    found: list[FileCheck] = []
    if other.changes_no_row:
        return found
    for read in mine.reads:
        added = tuple(f for g, f in other.files.items() if g not in other.touched and read.concerns(g.partition))
        changed: list[DataFile] = []
        for group in sorted(other.touched - mine.touched):  # so that the same run asks the same requests
            if read.concerns(group.partition):
                changed += [f for f in (before(group), other.files.get(group)) if f is not None]
        by_key = read.kind is ReadKind.KEYS
        if added:
            found.append(FileCheck(read, other, ConflictRule.KEY if by_key else ConflictRule.APPEND, added))
        if changed:
            found.append(FileCheck(read, other, ConflictRule.KEY if by_key else ConflictRule.DELETE_READ, tuple(changed)))
    return found


@dataclass(frozen=True)
class Profile:
    """An ordered choice of rules. `strict` is serializable in decision order; `hudi` is what Java Hudi checks."""

    name: str
    rules: tuple[Rule, ...]
    reads_matter: bool


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("strict", (file_group, partition_overwrite), True),
        Profile("hudi", (file_group,), False),
    )
}


def judge(
    profile: Profile, mine: Footprint, others: Sequence[ConcurrentCommit], before: Callable[[FileGroupId], DataFile | None]
) -> tuple[Conflict | None, list[FileCheck]]:
    """The first conflict that needs no look, oldest commit first; else every look that is needed.

    Whatever the profile, an application's version is applied once.
    """
    for other in others:
        for rule in (application_transaction, *profile.rules):
            conflict = rule(mine, other)
            if conflict is not None:
                return conflict, []
    if not profile.reads_matter:
        return None, []
    return None, [look for other in others for look in file_checks(mine, other, before)]


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
