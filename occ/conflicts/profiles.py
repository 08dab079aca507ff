"""Profiles: which rules decide, in which order, and what a rejection is called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from lakelock import errors
from lakelock.conflict import Conflict, ConflictRule
from lakelock.errors import ConflictError, EarlyConflictError, SettingsError
from lakelock.occ.conflicts import delta_rules, rules
from lakelock.occ.conflicts.footprint import Footprint
from lakelock.occ.conflicts.isolation import Isolation, Level
from lakelock.occ.conflicts.rules import FileCheck, ReadRule, Rule, application_transaction
from lakelock.occ.conflicts.summary import CommitSummary
from lakelock.settings.sections import ConcurrencySettings
from lakelock.table.layout import FileGroupId
from lakelock.table.snapshot import DataFile
from lakelock.texts import command


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
            (rules.retyped, rules.file_group, rules.partition_overwrite),
            (rules.append, rules.delete_read, rules.key),
        ),
        Profile("hudi", (rules.file_group,)),
        Profile(
            "delta",
            (
                delta_rules.metadata,
                delta_rules.append,
                delta_rules.delete_read,
                rules.file_group,
                delta_rules.partition_overwrite,
            ),
        ),
        Profile("hive", (rules.file_group, rules.write_set, rules.partition_overwrite)),
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
    """What people are told of a level; empty for a profile that has only one."""
    return str(level) if profile == "delta" else ""


def judge(
    profile: Profile, mine: Footprint, others: Sequence[CommitSummary], isolation: Isolation
) -> tuple[Conflict | None, list[FileCheck]]:
    """The first conflict that needs no look, oldest commit first; else every look that is needed.

    Whatever the profile, an application's version is applied once.
    """
    isolation = replace(isolation, before=_before(isolation, others))
    for other in others:
        for rule in (application_transaction, *profile.rules):
            conflict = rule(mine, other, isolation)
            if conflict is not None:
                return conflict, []
    return None, [look for other in others for read_rule in profile.read_rules for look in read_rule(mine, other, isolation)]


def _before(isolation: Isolation, others: Sequence[CommitSummary]) -> Callable[[FileGroupId], DataFile | None]:
    """A file group's file in the snapshot, or the one into which a commit since then has moved rows of the snapshot.

    Such a commit conflicts with no read. What is later removed from its files was read, all the same.
    """
    moved = {group: file for other in others if other.changes_no_row for group, file in other.files.items()}
    return lambda group: isolation.before(group) or moved.get(group)


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
