"""A scenario: who does what, with which clock, lock service and weather."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Literal

from lakelock.settings import ArchiveSettings, CleanSettings, UpkeepSettings
from tests.simulator.faults import Weather
from tests.simulator.locks import LockKind
from tests.simulator.operations import Operation

ACCOUNTS = (("0", "a0"), ("0", "a1"), ("1", "a2"), ("1", "a3"))
HOT = (("0", "h0"), ("1", "h1"), ("2", "h2"))
BUSIEST = 1_000
"""More operations than any scenario has: higher numbers belong to the families' own actors."""

Foreign = Literal["none", "lazy", "eager", "careless"]


@dataclass(frozen=True)
class ActorPlan:
    """One user of the table: what it does, in which order, and how wrong its clock is."""

    name: str
    operations: tuple[Operation, ...]
    skew_ms: int = 0
    rate: float = 1.0
    think_s: float = 0.1


@dataclass(frozen=True)
class Tending:
    """What upkeep keeps in a scenario, and when it runs."""

    clean: CleanSettings = field(default_factory=CleanSettings)
    archive: ArchiveSettings = field(default_factory=ArchiveSettings)
    upkeep: UpkeepSettings = field(default_factory=UpkeepSettings)


@dataclass(frozen=True)
class Scenario:
    """Everything that a run depends on besides the code."""

    seed: int
    actors: tuple[ActorPlan, ...]
    files: Literal["json", "parquet"] = "json"
    profile: Literal["strict", "hudi", "delta", "hive"] = "strict"
    isolation: Literal["Serializable", "WriteSerializable"] = "Serializable"
    lock: LockKind = LockKind.STORAGE
    weather: Weather = field(default_factory=Weather)
    foreign: Foreign = "none"
    page_keys: int = 1000
    scattered: bool = False
    """Whether listings come in no order, as those of a directory bucket of S3."""
    collect_above: int = 64
    early: bool = True
    lease_s: float = 3.0
    redo_attempts: int = 0
    reserve_after: int = 2
    holder_wait_s: float = 4.0
    keeps_turns: bool = False
    """Whether nothing happens that excuses the loss of an attempt which has reserved all that it touches."""
    groups: bool = False
    """Whether small inserts that meet are committed together."""
    merge_on_read: bool = False
    """Whether the table is merge-on-read, and the foreign writer appends log files."""
    stragglers: bool = False
    """Whether tasks have attempts that write after the commit has looked for their files, and are then killed."""
    metadata: bool = False
    """Whether the table has Hudi's metadata table."""
    record_index: bool = False
    """Whether that has a record index."""
    statistics: bool = False
    """Whether it has statistics of files and partitions."""
    tending: Tending = field(default_factory=Tending)
    silent_from_s: float = inf
    """When a lock service that falls silent stops answering for the rest of the actors' work."""

    @property
    def is_serializable(self) -> bool:
        """Whether its profile promises that the commits are as if they had run one by one, in the order of their decisions."""
        return self.profile in ("strict", "delta") and self.isolation == "Serializable"

    @property
    def operations(self) -> dict[int, Operation]:
        return {operation.id: operation for actor in self.actors for operation in actor.operations}
