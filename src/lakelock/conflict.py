"""A conflict as a value: what collided with what, by which rule, when it is found, and what helps.

Every rejection carries a `Conflict`. An `Explanation` says the same of two operations that have not run. What each
conflict rule says to people is here, too: error messages, the command line and the reference pages all take their words
from here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from enum import Enum

from lakelock.identity import WriterIdentity, name_of
from lakelock.texts import StrEnum

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


class FoundAt(StrEnum):
    """When a conflict is found: CLAIM, before the data is written; COMMIT, after it."""

    CLAIM = "claim"
    COMMIT = "commit"


class Remedy(StrEnum):
    """Something that the loser of a conflict can do. Append only: the names are an API."""

    RUN_AGAIN = "run-again"
    DECLARE_PARTITION = "declare-partition"
    READ_WHERE = "read-where"
    ANOTHER_LEVEL = "another-level"
    ANOTHER_TIME = "another-time"
    OTHER_ENGINE = "other-engine"


REMEDIES: dict[Remedy, str] = {
    Remedy.RUN_AGAIN: "run the operation again on the new state",
    Remedy.DECLARE_PARTITION: 'keep the two in different partitions, and declare it: partition="month=1"',
    Remedy.READ_WHERE: 'read only what the result depends on: tx.read(where="month = 1")',
    Remedy.ANOTHER_LEVEL: "choose a profile or level without this rule (concurrency.profile, concurrency.isolation), if what "
    "it promises is enough",
    Remedy.ANOTHER_TIME: "run the two one after the other, or in PESSIMISTIC mode, which waits instead",
    Remedy.OTHER_ENGINE: "let the other engine execute or roll back its plan, and switch off what makes it plan",
}

DECLARE_SCOPE = (
    'it read the whole table: declare the scope, what it reads by where="month = 1", what it writes by partition="month=1"'
)
"""The advice where a read of the whole table caused the conflict."""

WEAKER_LEVEL = 'with concurrency.isolation = "{level}" the other, which appended blindly, would not count'
"""The advice where only the level of the profile delta makes it a conflict."""

NO_RETRY = "a retry meets the same conflict"


@dataclass(frozen=True)
class RuleText:
    """One rule in words: `rejects` completes "my transaction is rejected if the other …"; `retry` says whether running again
    helps; `found` is the earliest moment at which the rule can tell.
    """

    rejects: str
    example: str
    retry: str
    found: FoundAt
    remedies: tuple[Remedy, ...]


_APART = (Remedy.DECLARE_PARTITION, Remedy.ANOTHER_TIME)
_READING = (Remedy.READ_WHERE, Remedy.ANOTHER_LEVEL, Remedy.ANOTHER_TIME)

RULES: dict[ConflictRule, RuleText] = {
    ConflictRule.PROTOCOL: RuleText(
        "changed `hoodie.properties` in something that matters to a writer",
        "a Java writer upgraded the table",
        "yes, if the table may still be written",
        FoundAt.COMMIT,
        (Remedy.RUN_AGAIN, Remedy.ANOTHER_TIME),
    ),
    ConflictRule.METADATA: RuleText(
        "changed the table's columns in a way that does not fit my change: nullable columns that both add go together, "
        "and so do wider types of one column; nothing else does",
        "two writers add the same column at the same time, one as a number and one as text",
        "yes",
        FoundAt.COMMIT,
        (Remedy.RUN_AGAIN, Remedy.ANOTHER_TIME),
    ),
    ConflictRule.APPLICATION_TRANSACTION: RuleText(
        "carries my application's version, or a later one",
        "one streaming query was started twice from one checkpoint",
        "the second run finds that the batch is applied, and writes nothing",
        FoundAt.CLAIM,
        (),
    ),
    ConflictRule.APPEND: RuleText(
        "added rows that match a condition that I read",
        "an erasure `tail_number = 'N14228'` and an append that brings a flight of N14228",
        "yes",
        FoundAt.COMMIT,
        (Remedy.RUN_AGAIN, *_READING),
    ),
    ConflictRule.DELETE_READ: RuleText(
        "rewrote or replaced a file group, other than by clustering, that holds or held a row that I read",
        "a transaction sums up January, another one corrects a flight of January",
        "yes, but only the author can compute the result anew",
        FoundAt.COMMIT,
        (Remedy.RUN_AGAIN, *_READING),
    ),
    ConflictRule.FILE_GROUP: RuleText(
        "rewrote or replaced a file group that I rewrite or replace",
        "two corrections touch rows that are in one file",
        "yes",
        FoundAt.CLAIM,
        (Remedy.RUN_AGAIN, *_APART),
    ),
    ConflictRule.KEY: RuleText(
        "wrote a record key that I looked up and did not find",
        "two upserts bring the same new order: without the rule it would be there twice",
        "yes: the second one updates the row of the first",
        FoundAt.COMMIT,
        (Remedy.RUN_AGAIN, Remedy.ANOTHER_TIME),
    ),
    ConflictRule.PARTITION_OVERWRITE: RuleText(
        "wrote into a partition that I overwrite",
        "a nightly overwrite of a day, and a late append to that day that was decided first",
        "yes",
        FoundAt.COMMIT,
        (Remedy.RUN_AGAIN, Remedy.DECLARE_PARTITION, Remedy.ANOTHER_LEVEL, Remedy.ANOTHER_TIME),
    ),
    ConflictRule.PENDING_TABLE_SERVICE: RuleText(
        "plans to cluster or compact a file group that I rewrite or replace, or to remove the folder of a partition that I "
        "write into",
        "Java Hudi has scheduled clustering or compaction and not executed it; its cleaner found a partition empty that I "
        "write into",
        "clustering: no, execute or roll back the plan first, its execution would undo the write; compaction: if it was "
        "planned while I ran, since log files are appended then, but no for what replaces a file group; cleaning: yes",
        FoundAt.CLAIM,
        (Remedy.OTHER_ENGINE,),
    ),
    ConflictRule.WRITE_SET: RuleText(
        "updated or deleted rows of a partition in which I do, too: the first committer wins",
        "two corrections of different rows of one month",
        "yes",
        FoundAt.COMMIT,
        (Remedy.RUN_AGAIN, Remedy.DECLARE_PARTITION, Remedy.ANOTHER_LEVEL, Remedy.ANOTHER_TIME),
    ),
}

IN_DELTA: dict[ConflictRule, RuleText] = {
    ConflictRule.METADATA: replace(
        RULES[ConflictRule.METADATA],
        rejects="changed the table's columns, in whatever way",
        example="a load adds a column while a correction runs",
    ),
    ConflictRule.APPEND: replace(
        RULES[ConflictRule.APPEND],
        rejects="wrote a file that may hold a row which I read, or whose key I looked up, as far as partitions and the "
        "recorded ranges of columns tell; with WriteSerializable, not if it appended blindly",
        example="an update of January, and an append to January or another update of it",
    ),
    ConflictRule.DELETE_READ: replace(
        RULES[ConflictRule.DELETE_READ],
        rejects="rewrote or replaced a file that may hold a row which I read, or whose key I looked up, and changed rows",
        example="an update of January, and an erasure that leaves nothing of a file of January",
    ),
    ConflictRule.PARTITION_OVERWRITE: replace(
        RULES[ConflictRule.PARTITION_OVERWRITE],
        rejects="wrote into a partition that I overwrite; with WriteSerializable, not if it appended blindly",
    ),
}
"""What the same rules say in the profile `delta`, where it says something else."""


def rule_text(rule: ConflictRule, profile: str = "") -> RuleText:
    """The words of a rule, as a profile has it; without a profile, those of all others."""
    return IN_DELTA.get(rule, RULES[rule]) if profile == "delta" else RULES[rule]


def about(text: str, partition: str) -> str:
    """An advice with a partition of the table that it is about, instead of the example; with none where it is not known."""
    parts = [part.partition("=") for part in partition.split("/") if part]
    where = " and ".join(f"{name} = {value if value.isdecimal() else repr(value)}" for name, _, value in parts)
    given = {'where="month = 1"': f'where="{where}"', 'partition="month=1"': f'partition="{partition}"'}
    for example, own in given.items():
        text = text.replace(example, own if parts else f"{example.partition('=')[0]}=...")
    return text


@dataclass(frozen=True)
class Explanation:
    """Why `mine` was rejected: `other`, which ran at the same time, was decided first.

    `overlap` is the first five of `overlap_count` things. `profile` and `level` are those by which mine is judged; no level
    where the profile has only one. `helps` are sentences for people, the nearest first.
    """

    mine: str
    other: str
    rule: ConflictRule
    profile: str
    level: str
    overlap: tuple[str, ...]
    overlap_count: int
    found: FoundAt
    detail: str
    helps: tuple[str, ...]

    @classmethod
    def of(cls, conflict: Conflict) -> Explanation:
        return cls(
            mine=str(conflict.mine),
            other=str(conflict.other),
            rule=conflict.rule,
            profile=conflict.profile,
            level=conflict.level,
            overlap=conflict.overlap,
            overlap_count=conflict.overlap_count,
            found=FoundAt.CLAIM if conflict.early else FoundAt.COMMIT,
            detail=conflict.detail,
            helps=_helps(conflict),
        )

    @property
    def rejects(self) -> str:
        """What the other did, by the rule's words."""
        return rule_text(self.rule, self.profile).rejects

    def as_dict(self) -> dict[str, object]:
        """Plain values, for logs and `--json`."""
        plain = {name: value.value if isinstance(value, Enum) else value for name, value in asdict(self).items()}
        return {**plain, "rejects": self.rejects}

    def facts(self) -> dict[str, str]:
        """One line each, by name, for people; what does not apply is left out."""
        more = f" and {self.overlap_count - len(self.overlap)} more" if self.overlap_count > len(self.overlap) else ""
        before = {FoundAt.CLAIM: "before the data is written", FoundAt.COMMIT: "after the data is written"}
        named = {
            "mine": self.mine,
            "other": f"{self.other}, decided first",
            "rule": f"{self.rule}: the other {self.rejects}",
            "over": ", ".join(self.overlap) + more,
            "because": self.detail,
            "profile": f"{self.profile} ({self.level})" if self.level else self.profile,
            "found": f"at the {self.found}, {before[self.found]}",
            "helps": "\n".join(self.helps),
        }
        return {name: text for name, text in named.items() if text}

    def __str__(self) -> str:
        return "\n".join(f"{name}: {line}" for name, text in self.facts().items() for line in text.split("\n"))


def next_step(conflict: Conflict) -> str:
    """The hint of the error: the first thing that helps, then what only this conflict calls for."""
    first = REMEDIES[Remedy.RUN_AGAIN] if conflict.retry_helps else NO_RETRY
    return "; ".join((first, *_particular(conflict)))


def _helps(conflict: Conflict) -> tuple[str, ...]:
    """What this conflict calls for, then what helps against every conflict of its rule and is not said yet."""
    said = {Remedy.READ_WHERE} if conflict.read == WHOLE_TABLE else set[Remedy]()
    said |= {Remedy.ANOTHER_LEVEL} if conflict.passes_at else set()
    said |= set() if conflict.retry_helps else {Remedy.RUN_AGAIN}
    usual = [REMEDIES[remedy] for remedy in rule_text(conflict.rule, conflict.profile).remedies if remedy not in said]
    return (*_particular(conflict), *(about(advice, _partition(conflict)) for advice in usual))


def _particular(conflict: Conflict) -> tuple[str, ...]:
    scope = (about(DECLARE_SCOPE, _partition(conflict)),) if conflict.read == WHOLE_TABLE else ()
    return (*scope, WEAKER_LEVEL.format(level=conflict.passes_at)) if conflict.passes_at else scope


_FOLDER = re.compile(r"[^/=]+=[^/]*(?:/[^/=]+=[^/]*)*")


def _partition(conflict: Conflict) -> str:
    """The first partition that the conflict is about, as `day=2026-11-20`; empty where its folders do not name columns."""
    found = (_FOLDER.match(text) for text in (*conflict.within, *conflict.overlap))
    return next((match.group() for match in found if match is not None), "")
