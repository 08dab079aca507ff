"""What one process has observed of a table that it has open, for as long as it is open."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from lakelock.table.index import TableIndex
from lakelock.table.properties import TableProperties

MOST_TOLD = 1_000
"""How many alerts a process remembers, so as not to raise them again."""


@dataclass
class Observations:
    """Shared by all transactions on one open table, also by those of other threads: observations only save requests or add
    caution, so a value that is a moment old does no harm.
    """

    newest_time: str = ""
    """The latest instant or completion time met so far, whoever made it; new instants are later."""
    same_lock: bool = False
    """Whether the lock that the table has on record was found to be this process's."""
    others_at_lock: bool = False
    """Whether somebody else held the commit lock between the last two times that this process did."""
    foreign_writers: bool = False
    """Whether another engine writes the table; then a few more checks are made."""
    newest_foreign: str = ""
    """The newest known commit of another engine, empty as long as only pending instants were seen."""
    looked_through: tuple[int, frozenset[str]] | None = None
    """When this process last looked for commits of which the log has no decision: the head, and the commits there were."""
    known_ours: frozenset[str] = frozenset()
    """Instants of lakelock's writers, as of the last time that this process looked for dead writers."""
    index: TableIndex | None = None
    """The index that the table has on record, once `index_known`: such a record never changes."""
    index_known: bool = False
    index_checked: bool = False
    """Whether this process has made sure that Java keeps no buckets of another kind."""
    foreign_buckets: bool = False
    """Whether a commit of another engine was met whose files look like buckets."""
    newest_commit: str | None = None
    """The newest commit that the timeline has shown, `""` if there was none yet; None before the first look."""
    opened_as: TableProperties | None = None
    """What the table said of itself when it was opened."""
    timeline_files: int = 0
    """How many files the newest listing of the timeline showed."""
    name: str = ""
    """The name in the catalog under which this process registered the table, besides that of the settings."""
    rollback_targets: dict[str, str] = field(default_factory=dict)
    """By rollback, the instant that its plan names; plans never change."""

    own_columns: tuple[pa.Field, ...] = ()
    """What writes of this process added to the table's columns: it knows these, whatever the table was when it was opened."""
    void: set[str] = field(default_factory=set)
    """Instants that are decided and will never be visible: another engine rolled them back, or removed files of them."""
    told: dict[str, None] = field(default_factory=dict)
    """What alerts about other engines were about, oldest first: each is raised once."""

    def is_news(self, about: str) -> bool:
        """Whether no alert was about this yet, as far as this process remembers. From now on one was."""
        if about in self.told:
            return False
        self.told[about] = None
        if len(self.told) > MOST_TOLD:
            del self.told[next(iter(self.told))]
        return True

    def brought(self, columns: Iterable[pa.Field]) -> None:
        """Remember that a write of this process brings these columns."""
        self.own_columns = tuple(dict.fromkeys((*self.own_columns, *columns)))

    def time_seen(self, instant: str) -> None:
        """Remember an instant or completion time that is taken."""
        self.newest_time = max(self.newest_time, instant)

    def met_foreign(self, committed: str = "") -> None:
        """Remember that another engine writes this table, too, and the instant that it has `committed`."""
        self.foreign_writers = True
        self.newest_foreign = max(self.newest_foreign, committed)
