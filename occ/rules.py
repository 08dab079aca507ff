"""The rules of conflict: small pure functions over what two transactions touched, and the profiles that order them.

The test of the whole is serializability in decision order: replaying the committed transactions one by one, in that order,
gives the table. A rule answers with a `Conflict` or with None; a rule about reads answers with `FileCheck`s: files whose
content must be checked first, which happens outside the lock.

The rules of Delta's conflict checker (`ConflictChecker.scala`) work on file groups. They use partitions and file statistics
and never look into files, so that all of them answer at once. Where Delta goes by partitions only, the recorded ranges of
columns narrow a condition further. A service that only moves rows conflicts with writers of the same file groups, and with no
other.

`Collision` says which part of a rejected commit collided, and whether the rest is worth keeping for the next attempt (ADR
19). It only says whether a redo is worth trying. That the redo gives the result of a fresh run is up to the code that takes
files over: it compares the base files of both snapshots, whatever the rules said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from lakelock import errors
from lakelock.conflict import Conflict, ConflictRule, Party
from lakelock.errors import ConflictError, EarlyConflictError, SettingsError
from lakelock.occ.footprint import SERVICES, CommitSummary, Footprint, Isolation, Level, Read, ReadKind
from lakelock.settings.sections import ConcurrencySettings
from lakelock.table.index import bucket_of_group
from lakelock.table.instants import Action, Instant
from lakelock.table.layout import FileGroupId
from lakelock.table.merged_slices import Change
from lakelock.table.pruning import StatisticsOf
from lakelock.table.schema import TableSchema, changed
from lakelock.table.snapshot import DataFile
from lakelock.texts import command

Rule = Callable[[Footprint, CommitSummary, Isolation], "Conflict | None"]
ReadRule = Callable[[Footprint, CommitSummary, Isolation], "list[FileCheck]"]


MOST_QUICK, QUICK_BYTES = 8, 1 << 18
"""So many log files of a commit, of so many bytes, are looked into under the lock."""


@dataclass(frozen=True)
class FileCheck:
    """A question that only the files can answer: does `read` see any row of `files`, or any that the `changes` changed?"""

    read: Read
    other: CommitSummary
    rule: ConflictRule
    files: tuple[DataFile, ...]
    changes: tuple[Change, ...] = ()

    @property
    def identity(self) -> tuple[int, str, tuple[str, ...], tuple[Change, ...]]:
        """Equal for equal questions, so that one look serves every later round of the same commit."""
        return id(self.read), self.other.party.instant, tuple(f.content for f in self.files), self.changes

    @property
    def is_quick(self) -> bool:
        """Whether the check takes no longer than releasing and retaking the lock: a few small log files are searched."""
        sizes = [log.size_bytes for change in self.changes for log in change.made.logs]
        only_logs = not self.files and all(change.made.logs for change in self.changes)
        return self.read.kind is ReadKind.KEYS and only_logs and len(sizes) <= MOST_QUICK and sum(sizes) <= QUICK_BYTES

    def answer(self, mine: Footprint) -> Conflict | None:
        """Look into the files now."""
        match = self.read.matches(self.files) if self.files else None
        if match is None and self.changes:
            match = self.read.changed_by(self.changes)
        if match is None:
            return None
        verb = {ConflictRule.APPEND: "added", ConflictRule.KEY: "wrote"}.get(self.rule, "changed")
        read = self.read.description
        conflict = Conflict.over(
            self.rule,
            mine.party,
            self.other.party,
            {file.partition or "the table" for file in (*self.files, *(change.made for change in self.changes))},
            detail=f"the other {verb} rows that this transaction read as {read}",
        )
        return replace(conflict, read=read, overlap=(match,), overlap_count=1, within=conflict.overlap)


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

    Not if one of us has only appended a log file: then the rules about rows judge. A bucket has one file group, so two writers
    who find none must not both make one. Java compares buckets, too
    (`BucketIndexConcurrentFileWritesConflictResolutionStrategy`).
    """
    both = frozenset(group for group in mine.touched & other.touched if not _lies_on(group, mine, other))
    if both:
        return Conflict.over(ConflictRule.FILE_GROUP, mine.party, other.party, map(str, both))
    made = mine.new_buckets.intersection(bucket_of_group(group) for group in other.files if group not in other.touched)
    if not made:
        return None
    detail = "both make the first file group of a bucket"
    return Conflict.over(ConflictRule.FILE_GROUP, mine.party, other.party, map(str, made), detail=detail)


def _lies_on(group: FileGroupId, mine: Footprint, other: CommitSummary) -> bool:
    """Whether readers see both changes of a file group: one is a log file that they lay over what the other wrote.

    My log file completes last, so it is on top. The other's is on my base file if it completed no earlier than that was
    requested.
    """
    if group in mine.replaced | other.replaced:
        return False
    return group in mine.appended or (group in other.appended and (other.party.completion or "") >= mine.party.instant)


def partition_overwrite(mine: Footprint, other: CommitSummary, isolation: Isolation) -> Conflict | None:
    """The other wrote into a partition that I overwrite: I have not seen its rows, and they would stay.

    Not the other way round: what I add after its overwrite is added to what it left, as if I had begun then. What I
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
    """The other changed rows that a condition which I evaluated selects, or rewrote or replaced files that may have such."""
    reads = _at_stake(mine, other, ReadKind.ROWS)
    return [check for read in reads for check in _changed(ConflictRule.DELETE_READ, read, mine, other, isolation)]


def key(mine: Footprint, other: CommitSummary, isolation: Isolation) -> list[FileCheck]:
    """The other may have written one of the keys that I looked up, found or not."""
    found: list[FileCheck] = []
    for read in _at_stake(mine, other, ReadKind.KEYS):
        found += _added(ConflictRule.KEY, read, other)
        found += _changed(ConflictRule.KEY, read, mine, other, isolation)
    return found


def same_rows(mine: Footprint, other: CommitSummary, isolation: Isolation) -> list[FileCheck]:
    """In a file group that both of us changed, one by a log file, the other changed a row that I have found or chosen there."""
    both = (mine.touched & other.touched) - mine.replaced - other.replaced
    found: list[FileCheck] = []
    for kind, rule in ((ReadKind.ROWS, ConflictRule.DELETE_READ), (ReadKind.KEYS, ConflictRule.KEY)):
        for read in _at_stake(mine, other, kind) if both else ():
            changes = _changes(read, both, other, isolation)
            found += [FileCheck(read, other, rule, (), changes)] if changes else []
    return found


def _at_stake(mine: Footprint, other: CommitSummary, kind: ReadKind) -> list[Read]:
    """My reads of a kind; none if the other only moved rows."""
    return [] if other.changes_no_row else [read for read in mine.reads if read.kind is kind]


def _added(rule: ConflictRule, read: Read, other: CommitSummary) -> list[FileCheck]:
    added = _named([f for g, f in other.files.items() if g not in other.touched and read.concerns(g.partition)], read)
    return [FileCheck(read, other, rule, added)] if added else []


def _changed(rule: ConflictRule, read: Read, mine: Footprint, other: CommitSummary, isolation: Isolation) -> list[FileCheck]:
    """Both files of a rewritten file group matter: the old one shows what I may have read, the new one what I would read now.
    Where one of us has appended a log file, only the rows matter that the other changed. What both of us rewrote or replaced is
    left out: the file-group rule has judged that.
    """
    by_rows = frozenset(group for group in other.touched if group in mine.touched or group in other.appended) - other.replaced
    changed: list[DataFile] = []
    for group in sorted(other.touched - mine.touched - by_rows):  # sorted, so that a run's requests are reproducible
        if read.concerns(group.partition):
            changed += [f for f in (isolation.before(group), other.files.get(group)) if f is not None]
    changed_files, changes = _named(changed, read), _changes(read, by_rows - mine.replaced, other, isolation)
    return [FileCheck(read, other, rule, changed_files, changes)] if changed_files or changes else []


def _changes(
    read: Read, groups: Iterable[FileGroupId], other: CommitSummary, isolation: Isolation
) -> tuple[Change, ...]:  # fmt: skip
    """What the other changed in these file groups, as far as it may concern the read."""
    found: list[Change] = []
    for group in sorted(groups):
        made = other.files.get(group)
        if made is not None and read.concerns(group.partition) and _named([made], read):
            found.append(Change(isolation.before(group), made, isolation.after(other, group) or made))
    return tuple(found)


def _named(files: list[DataFile], read: Read) -> tuple[DataFile, ...]:
    """The files that have to be looked into: all that their names do not rule out."""
    return tuple(read.candidates(files, lambda file: None)) if files else ()


_PLANNED_IN: dict[str, str] = {
    Action.CLUSTERING: "hoodie.clustering.inline, .schedule.inline and .async.enabled plan it",
    Action.COMPACTION: "hoodie.compact.inline and hoodie.compact.schedule.inline plan it, and call run_compaction executes it",
}


def pending_service(mine: Footprint, plan: Instant, groups: Iterable[FileGroupId]) -> Conflict | None:
    """A pending plan, of any age, covers a file group that I rewrite or replace: Java would undo my update."""
    both = mine.touched & frozenset(groups)
    if plan.action == Action.COMPACTION:
        both -= mine.appended  # log files that complete after the plan lie on the base file that it makes
    if not both:
        return None
    conflict = Conflict.over(
        ConflictRule.PENDING_TABLE_SERVICE,
        mine.party,
        Party(plan.requested, f"{plan.action} (planned)"),
        map(str, both),
        detail=f"run or roll back the planned {plan.action} first; its execution would silently undo this write"
        + (f". In the other engine {_PLANNED_IN[plan.action]}" if plan.action in _PLANNED_IN else ""),
    )
    return replace(conflict, retry_helps=False)


def delta_metadata(mine: Footprint, other: CommitSummary, isolation: Isolation) -> Conflict | None:
    """The other changed the table's columns, in whatever way: who writes by the old ones begins again."""
    if isolation.schema is None or not other.schema_json:
        return None
    before, after = isolation.schema, TableSchema.of_commit(other.schema_json)
    if after == before:
        return None
    columns = [*changed(before.arrow, after.arrow), *(name for name in before.names if name not in after.names)]
    over = columns or ["the order of the columns"]
    return Conflict.over(ConflictRule.METADATA, mine.party, other.party, over, detail="the other changed the columns")


def delta_delete_read(mine: Footprint, other: CommitSummary, isolation: Isolation) -> Conflict | None:
    """The other rewrote or replaced a file with rows that I may have read."""
    for read in _delta_at_stake(mine, other):
        files = [isolation.before(group) for group in sorted(other.touched) if read.concerns(group.partition)]
        found = _with_rows(read, [file for file in files if file is not None], isolation.statistics)
        if found:
            return _over(ConflictRule.DELETE_READ, mine, other, read, found, "rewrote files that may hold rows")
    return None


def delta_append(mine: Footprint, other: CommitSummary, isolation: Isolation) -> Conflict | None:
    """The other wrote a file with rows that I may have to read now. Blind appends count where the level says so."""
    if _is_passed_over(other, isolation):
        return None
    files = [file for _, file in sorted(other.files.items())]
    for read in _delta_at_stake(mine, other):
        concerned = [file for file in files if read.concerns(file.partition)]
        found = _with_rows(read, concerned, other.statistics_of)
        if found:
            conflict = _over(ConflictRule.APPEND, mine, other, read, found, "wrote files that may hold rows")
            return _with_weaker_level(conflict, other)
    return None


def delta_partition_overwrite(mine: Footprint, other: CommitSummary, isolation: Isolation) -> Conflict | None:
    """The other wrote into a partition that I overwrite, unless it did so blindly and the level lets that pass."""
    conflict = None if _is_passed_over(other, isolation) else partition_overwrite(mine, other, isolation)
    return None if conflict is None else _with_weaker_level(conflict, other)


def _is_passed_over(other: CommitSummary, isolation: Isolation) -> bool:
    return isolation.level is Level.WRITE_SERIALIZABLE and other.is_blind_append


def _with_weaker_level(conflict: Conflict, other: CommitSummary) -> Conflict:
    return replace(conflict, passes_at=Level.WRITE_SERIALIZABLE.value if other.is_blind_append else "")


def _delta_at_stake(mine: Footprint, other: CommitSummary) -> tuple[Read, ...]:
    """My reads; none if the other only moved rows."""
    return () if other.changes_no_row else mine.reads


def _with_rows(read: Read, files: Sequence[DataFile], statistics: StatisticsOf) -> list[DataFile]:
    """The files that may hold a row which the read would see. Where Delta removes a file whose last row is deleted, here is one
    without rows.
    """
    return [file for file in read.candidates(files, statistics) if (known := statistics(file)) is None or known.rows != 0]


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


@dataclass(frozen=True)
class Profile:
    """An ordered choice of rules: `rules` answer at once, `read_rules` by files to look into."""

    name: str
    rules: tuple[Rule, ...]
    read_rules: tuple[ReadRule, ...] = ()


PROFILES = {
    profile.name: profile
    for profile in (
        Profile(
            "strict",
            (retyped, file_group, partition_overwrite),
            (append, delete_read, key),
        ),
        Profile("hudi", (file_group,), (same_rows,)),
        Profile(
            "delta",
            (
                delta_metadata,
                delta_append,
                delta_delete_read,
                file_group,
                delta_partition_overwrite,
            ),
            (same_rows,),
        ),
        Profile("hive", (file_group, write_set, partition_overwrite), (same_rows,)),
    )
}
"""`strict` is serializable in decision order; `hudi` is what Java Hudi checks; `delta` has the rules and levels of Delta; in
`hive` the first committer wins per partition, as in Hive 3.
"""

_STRENGTH: dict[tuple[str, Level], int] = {
    ("strict", Level.SERIALIZABLE): 4,
    ("delta", Level.SERIALIZABLE): 4,
    ("delta", Level.WRITE_SERIALIZABLE): 3,
    ("hive", Level.SERIALIZABLE): 2,
    ("hudi", Level.SERIALIZABLE): 1,
}
"""Which guarantees are stronger. Both profiles with the greatest number are serializable; `delta` rejects more to be so."""

LEVELS = tuple(_STRENGTH)
"""Every profile at each level that it has, from strong to weak."""

_NAMED_BY_DELTA = {
    ConflictRule.APPEND: errors.ConcurrentAppendException,
    ConflictRule.KEY: errors.ConcurrentAppendException,
    ConflictRule.PARTITION_OVERWRITE: errors.ConcurrentAppendException,
    ConflictRule.DELETE_READ: errors.ConcurrentDeleteReadException,
    ConflictRule.FILE_GROUP: errors.ConcurrentDeleteDeleteException,
    ConflictRule.WRITE_SET: errors.ConcurrentDeleteDeleteException,
    ConflictRule.PENDING_TABLE_SERVICE: errors.ConcurrentDeleteDeleteException,
    ConflictRule.METADATA: errors.MetadataChangedException,
    ConflictRule.APPLICATION_TRANSACTION: errors.ConcurrentTransactionException,
    ConflictRule.PROTOCOL: errors.ProtocolChangedException,
}


def level_name(profile: str, level: str) -> str:
    """The text for people about a level; empty for a profile that has only one."""
    return str(level) if profile == "delta" else ""


def judge(
    profile: Profile, mine: Footprint, others: Sequence[CommitSummary], isolation: Isolation
) -> tuple[Conflict | None, list[FileCheck]]:
    """The first conflict that needs no look, oldest commit first; else every look that is needed.

    Whatever the profile, an application's version is applied once.
    """
    before = _before(isolation, others)
    isolation = replace(isolation, before=before, after=_after(before, others))
    for other in others:
        for rule in (application_transaction, *profile.rules):
            conflict = rule(mine, other, isolation)
            if conflict is not None:
                return conflict, []
    return None, [look for other in others for read_rule in profile.read_rules for look in read_rule(mine, other, isolation)]


def _before(isolation: Isolation, others: Sequence[CommitSummary]) -> Callable[[FileGroupId], DataFile | None]:
    """A file group's file in the snapshot, or the file into which a later commit has moved rows of the snapshot.

    Moving rows conflicts with no read. But if a row is then deleted from the new file, this transaction had read it.
    """
    moved = {group: file for other in others if other.changes_no_row for group, file in other.files.items()}
    return lambda group: isolation.before(group) or moved.get(group)


def _after(
    before: Callable[[FileGroupId], DataFile | None], others: Sequence[CommitSummary]
) -> Callable[[CommitSummary, FileGroupId], DataFile | None]:
    """A file group's slice in the snapshot, as others have changed it one by one up to a commit."""

    def after(last: CommitSummary, group: FileGroupId) -> DataFile | None:
        slice_ = before(group)
        for other in others:
            made = other.files.get(group)
            if made is not None:
                slice_ = made if made.token or slice_ is None else slice_._replace(logs=(*slice_.logs, *made.logs))
            if other is last:
                break
        return slice_

    return after


def rejection(mine: ConcurrencySettings, conflict: Conflict, *, read: bool = False, hint: str = "") -> ConflictError:
    """The error to raise for a conflict of a writer with these settings, which it names; in the profile `delta`, Delta's.

    `read`: whether the loser read what it rewrites. An update of a file that another update rewrote has read that file, so
    Delta calls it a delete-read conflict.
    """
    conflict = replace(conflict, profile=mine.profile, level=level_name(mine.profile, mine.isolation))
    if mine.profile != "delta":
        return EarlyConflictError(conflict, hint=hint) if conflict.early else ConflictError(conflict, hint=hint)
    rule = ConflictRule.DELETE_READ if read and conflict.rule is ConflictRule.FILE_GROUP else conflict.rule
    return _NAMED_BY_DELTA[rule](conflict, hint=hint)


def ensure_not_weaker(mine: ConcurrencySettings, profile: str, isolation: str, uri: str) -> None:
    """`SettingsError` if a writer with these settings has a weaker profile than the table requires.

    A profile that this release does not know is stronger than any that it has.
    """
    if not profile:
        return
    known = {(name, level.value): strength for (name, level), strength in _STRENGTH.items()}
    if known[mine.profile, mine.isolation] < known.get((profile, isolation), len(known)):
        level = f" ({isolation})" if profile == "delta" else ""
        raise SettingsError(
            f"{uri} requires the profile {profile}{level}, and this writer has {mine.profile}"
            f"{f' ({mine.isolation})' if mine.profile == 'delta' else ''}, which promises less",
            hint=f"set concurrency.profile to {profile}{f' and concurrency.isolation to {isolation}' if level else ''}; "
            f"`{command('profile', uri)}` shows and changes what the table requires",
            key="concurrency.profile",
            required=profile,
        )


REDOABLE = frozenset(
    {
        ConflictRule.APPEND,
        ConflictRule.DELETE_READ,
        ConflictRule.FILE_GROUP,
        ConflictRule.KEY,
        ConflictRule.WRITE_SET,
    }
)
"""Rules about rows and file groups. The others say that something changed on which all files of a write depend."""


@dataclass(frozen=True)
class Collision:
    """The file groups that a rejected commit wrote: those that others have changed meanwhile, and the rest."""

    collided: frozenset[FileGroupId]
    kept: frozenset[FileGroupId]


def collision(mine: Footprint, others: Iterable[CommitSummary]) -> Collision:
    """Divide what I wrote by what others have rewritten, replaced or, in a table with buckets, made as I did."""
    others = tuple(others)
    touched = frozenset(group for other in others for group in other.touched)
    made = frozenset(bucket_of_group(group) for other in others for group in other.files.keys() - other.touched)
    written = mine.added | mine.touched
    doubly_made = frozenset(group for group in mine.added if bucket_of_group(group) in mine.new_buckets & made)
    collided = (written & touched) | doubly_made
    return Collision(collided, written - collided)


def worth_keeping(conflict: Conflict, mine: Footprint, others: Iterable[CommitSummary]) -> Collision | None:
    """What a redo would keep of a commit that was rejected by this conflict; None if the write has to run as a whole again.

    An overwrite depends on all of its partitions. What running again does not resolve, this does not resolve, either.
    """
    if conflict.rule not in REDOABLE or not conflict.retry_helps or mine.overwritten_partitions or mine.replaced:
        return None
    found = collision(mine, others)
    return found if found.kept else None
