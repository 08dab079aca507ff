"""Operations that nobody has run, as the rules see them: the most that they may read and write in the table as it is now.

What they really touch is known only once their rows are looked up. So a footprint here holds every file group of its scope, and
says how much of that is certain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from lakelock.conflict import WHOLE_TABLE, Party
from lakelock.data_locks.request import Resource
from lakelock.occ.conflicts.asked import AskedOperation, Effect
from lakelock.occ.conflicts.footprint import Footprint
from lakelock.occ.conflicts.reads import Read, ReadKind
from lakelock.occ.conflicts.summary import CommitSummary
from lakelock.occ.locking.targets import resources_of, target_of_condition, within
from lakelock.table.buckets import bucket_group, bucket_name, bucket_of_group
from lakelock.table.layout import FileGroupId
from lakelock.table.properties import TableProperties
from lakelock.table.pruning.files import StatisticsOf
from lakelock.table.snapshot import DataFile, Snapshot

_PATH = re.compile(r"""\w+\s*=\s*[^\s'"<>=!(),;/]+(/\w+=[^\s'"<>=!(),;/]+)*""")
_LATER = "99991231235959999"
"""The instant of files that nobody has written."""


@dataclass(frozen=True)
class Scope:
    """The part of a table that an operation is about: everywhere without `targets`. `condition` is empty for all rows there."""

    targets: tuple[Resource, ...] = ()
    condition: str = ""

    @classmethod
    def of(cls, text: str, schema: pa.Schema, properties: TableProperties) -> Scope:
        """What a partition such as `month=1/day=2`, or a condition in SQL, chooses; `InputError` for a column that is unknown.

        A condition that fixes no partition in plain words may be about any.
        """
        if not text:
            return cls()
        column = text.partition("=")[0].strip()
        if _PATH.fullmatch(text) and (column in properties.partition_fields or schema.get_field_index(column) < 0):
            return cls(resources_of(re.sub(r"\s*=\s*", "=", text), properties))
        targets = target_of_condition(text, schema, properties)
        terms = len(re.split(r"\bAND\b", text, flags=re.IGNORECASE))
        return cls(targets, "" if targets and len(targets[0].parts) == terms else text)

    def has(self, partition: str) -> bool:
        return not self.targets or within(partition, self.targets)

    def partitions(self, snapshot: Snapshot, properties: TableProperties) -> tuple[str, ...]:
        """The partitions in it, and those that it names and nobody has written to yet."""
        depth = len(properties.partition_fields)
        named = {target.path for target in self.targets if len(target.parts) == depth}
        return tuple(sorted({*filter(self.has, snapshot.partitions), *named}))

    def is_exact(self, properties: TableProperties) -> bool:
        """Whether it is whole partitions, each named."""
        depth = len(properties.partition_fields)
        return bool(self.targets) and not self.condition and all(len(target.parts) == depth for target in self.targets)


@dataclass(frozen=True)
class AskedRead:
    """The read of an operation that nobody has run. Nothing can be looked up for it, so it is only asked what concerns it."""

    kind: ReadKind
    description: str
    scope: Scope

    def concerns(self, partition: str) -> bool:
        return self.scope.has(partition)

    def candidates(self, files: Sequence[DataFile], statistics: StatisticsOf) -> Sequence[DataFile]:
        return files

    def matches(self, files: Sequence[DataFile]) -> str | None:
        return f"rows in {files[0].partition or 'the table'}" if files else None

    @property
    def sees_every_row(self) -> bool:
        return self.kind is ReadKind.ROWS and not self.scope.condition


@dataclass(frozen=True)
class Side:
    """One of two operations, as either side of a conflict.

    `touches_all`: it certainly touches all file groups of its footprint. `writes_there`: it certainly writes to each of its
    partitions.
    """

    name: str
    footprint: Footprint
    summary: CommitSummary
    touches_all: bool
    writes_there: bool

    @classmethod
    def of_commit(cls, found: CommitSummary) -> Side:
        """A commit that there is."""
        footprint = Footprint(
            party=found.party,
            added=frozenset(found.files) - found.touched,
            rewritten=found.rewritten,
            replaced=found.replaced,
            overwritten_partitions=found.overwritten_partitions,
        )
        return cls(str(found.party), footprint, found, touches_all=True, writes_there=True)

    @classmethod
    def of_asked(
        cls,
        asked: AskedOperation,
        schema: pa.Schema,
        properties: TableProperties,
        snapshot: Snapshot,
        beside: Iterable[FileGroupId],
    ) -> Side:
        """An operation that nobody has run, `beside` a commit that touched or made these file groups, if there is one."""
        scope = Scope.of(asked.scope, schema, properties)
        effect = _effect(asked, scope, bucketed=properties.bucket_index is not None)
        partitions = scope.partitions(snapshot, properties)
        now = {file.group: file for partition in partitions for file in snapshot.in_partition(partition)}
        groups = frozenset(now).union(group for group in beside if scope.has(group.partition))
        stem = bucket_name(0) if properties.bucket_index is not None else "new"
        new = {partition: DataFile(partition, f"{stem}-{asked.name}", "0-0-0", _LATER) for partition in partitions}
        added = frozenset(file.group for file in new.values()) if effect.adds else frozenset()
        rewritten = groups if effect.rewrites else frozenset()
        replaced = groups if effect.replaces else frozenset()
        overwritten = frozenset(partitions) if effect.overwrites else frozenset()
        party = Party("", str(asked))
        read = _read_of(asked, effect, scope)
        footprint = Footprint(party, added, rewritten, replaced, overwritten, (read,) if read else ())
        if properties.bucket_index is not None and effect.adds:
            buckets = {bucket_group(partition, 0) for partition in partitions} | set(map(bucket_of_group, groups - set(now)))
            footprint = replace(footprint, new_buckets=frozenset(buckets))
        made = {group: file._replace(instant=_LATER) for group, file in now.items()} if effect.rewrites else {}
        made |= {file.group: file for file in new.values()} if effect.adds else {}
        summary = CommitSummary(
            party=party,
            decision=None,
            number=None,
            is_foreign=False,
            files=made,
            rewritten=frozenset(made) - added,
            replaced=frozenset(now) if effect.replaces else frozenset(),
            written_partitions=frozenset(partitions) if made else frozenset(),
            overwritten_partitions=overwritten,
            changes_no_row=effect.replaces and not effect.overwrites,
        )
        exact = scope.is_exact(properties)
        all_of_it = effect.overwrites or (asked.name == "DELETE" and not scope.condition)
        return cls(str(asked), footprint, summary, touches_all=all_of_it, writes_there=exact and bool(effect.hudi_name))


def _effect(asked: AskedOperation, scope: Scope, *, bucketed: bool) -> Effect:
    """An overwrite of the rows of a condition rewrites what it finds; of everything, it reads everything."""
    effect = asked.effect
    if effect.overwrites and scope.condition:
        return Effect("UPSERT", adds=True, rewrites=True, reads=ReadKind.ROWS)
    if effect.overwrites and not scope.targets:
        return replace(effect, reads=ReadKind.ROWS)
    return replace(effect, rewrites=True) if bucketed and effect.adds and not effect.replaces else effect


def _read_of(asked: AskedOperation, effect: Effect, scope: Scope) -> Read | None:
    if effect.reads is None:
        return None
    if effect.reads is ReadKind.KEYS:
        return AskedRead(effect.reads, f"a key of the {asked}", scope)
    return AskedRead(effect.reads, asked.scope or WHOLE_TABLE, scope)
