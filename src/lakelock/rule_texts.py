"""What each conflict rule says to people: whom it rejects, when that is found, and what helps. Error messages, the command line
and the reference pages all take their words from here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lakelock.conflict import ConflictRule
from lakelock.str_enum import StrEnum


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
        "a Java writer upgraded the table, or switched its metadata table on",
        "yes, if the table may still be written",
        FoundAt.COMMIT,
        (Remedy.RUN_AGAIN, Remedy.ANOTHER_TIME),
    ),
    ConflictRule.METADATA: RuleText(
        "changed the table's columns in a way that does not fit my change: nullable columns that both add go together, "
        "whoever adds them, and so do wider types of one column; nothing else does",
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
        "plans to cluster a file group that I rewrite or replace, or to remove the folder of a partition that I write into",
        "Java Hudi has scheduled clustering and not executed it; its cleaner found a partition empty that I write into",
        "clustering: no, execute or roll back the plan first, its execution would undo the write; cleaning: yes",
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
