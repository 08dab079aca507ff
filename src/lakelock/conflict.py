"""A conflict as a value: what collided with what. Every rejection carries one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

from lakelock.identity import WriterIdentity, name_of
from lakelock.str_enum import StrEnum

SHOWN = 5
WHOLE_TABLE = "the whole table"
"""How a read of everything describes itself."""


class ConflictRule(StrEnum):
    """The rule that was broken. Append only: names are an API, used by logs, metrics and documents."""

    PROTOCOL = "protocol"
    METADATA = "metadata"
    APPLICATION_TRANSACTION = "application-transaction"
    APPEND = "append"
    DELETE_READ = "delete-read"
    FILE_GROUP = "file-group"
    KEY = "key"
    PARTITION_OVERWRITE = "partition-overwrite"
    PENDING_TABLE_SERVICE = "pending-table-service"
    WRITE_SET = "write-set"


@dataclass(frozen=True)
class Party:
    """One side of a conflict. `writer` is None for writers that leave no identity, such as Java Hudi.

    `seen_ago_s`: seconds since its last sign of life, when known.
    """

    instant: str
    operation: str
    writer: WriterIdentity | None = None
    completion: str | None = None
    seen_ago_s: float | None = None

    def __str__(self) -> str:
        state = f", committed {self.completion}" if self.completion else ""
        alive = f", seen {self.seen_ago_s:.0f} s ago" if self.seen_ago_s is not None else ""
        return f"{self.operation} {self.instant} by {name_of(self.writer)}{state}{alive}"


@dataclass(frozen=True)
class Conflict:
    """Two transactions that cannot both commit, and what the loser can do.

    `overlap` holds the first five of `overlap_count` things that both touch, written as `partition/file id`, a partition,
    or `partition: key`. `early`: found from a claim, before the data was written. `retry_helps`: running the
    operation again on the new state can succeed. `read`: what of mine had read the overlap, in words, if the rule is about
    reads. `profile` and `level`: by which mine was judged; no level where the profile has only one. `passes_at`: the weaker
    level of the same profile at which the two would both commit, empty if there is none. `within`: the partitions of `overlap`
    where that quotes rows.
    """

    rule: ConflictRule
    mine: Party
    other: Party
    overlap: tuple[str, ...] = ()
    overlap_count: int = 0
    detail: str = ""
    retry_helps: bool = True
    early: bool = False
    read: str = ""
    profile: str = ""
    level: str = ""
    passes_at: str = ""
    within: tuple[str, ...] = ()

    @classmethod
    def over(
        cls, rule: ConflictRule, mine: Party, other: Party, overlap: Iterable[str], *, detail: str = "", early: bool = False
    ) -> Conflict:
        """A conflict over `overlap`; only the first five in order are kept."""
        things = sorted(overlap)
        return cls(rule, mine, other, tuple(things[:SHOWN]), len(things), detail, True, early)

    def without_rows(self) -> Conflict:
        """The same over whole partitions where it quotes rows: for what is kept, since rows may have to be forgotten."""
        return replace(self, overlap=self.within, overlap_count=len(self.within), within=()) if self.within else self

    def as_dict(self) -> dict[str, object]:
        return {**asdict(self), "rule": self.rule.value}

    def __str__(self) -> str:
        shown = ", ".join(self.overlap)
        more = f" and {self.overlap_count - len(self.overlap)} more" if self.overlap_count > len(self.overlap) else ""
        over = f" over {shown}{more}" if shown else ""
        when = "early conflict" if self.early else "conflict"
        why = f" ({self.detail})" if self.detail else ""
        return f"{when}, rule {self.rule}{over}{why}:\n  mine:  {self.mine}\n  other: {self.other}"
