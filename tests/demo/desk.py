"""What a writer of the demo works with: its operation, its session, the table, the feed and the signals."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from lakelock.spark_plugin import LakeTable
from tests.api import Event, Runtime, SystemRuntime
from tests.demo.feed import Feed
from tests.demo.plan import Operation, Plan
from tests.demo.session import start_session
from tests.demo.signals import Signals
from tests.demo.store import FLIGHTS_TABLE, MERGE_ON_READ, Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PATIENCE_S = 400.0
"""How long a writer waits for its turn before it gives up."""


@dataclass(frozen=True)
class Desk:
    """What a writer works with. The session is started at first use."""

    name: str
    work: Path
    plan: Plan
    runtime: Runtime
    feed: Feed
    signals: Signals
    store: Store
    options: Mapping[str, str]
    type: str

    @classmethod
    def of(cls, name: str, work: Path) -> Desk:
        runtime = SystemRuntime()
        run = json.loads((work / "run.json").read_text())
        feed, signals = Feed(work / "feed", name, runtime), Signals(work / "signals", runtime)
        return cls(name, work, Plan.load(work), runtime, feed, signals, Store(**run["store"]), run["options"], run["type"])

    @property
    def operation(self) -> Operation:
        return self.plan.operations[self.name]

    @cached_property
    def spark(self) -> SparkSession:
        return start_session(f"lakelock demo: {self.name}", self.work, self.store.confs)

    @property
    def is_merge_on_read(self) -> bool:
        return self.type == MERGE_ON_READ

    @property
    def table_path(self) -> str:
        return self.store.uri(FLIGHTS_TABLE)

    def rows(self, *paths: str) -> DataFrame:
        return self.spark.read.parquet(*(str(self.work / path) for path in paths or self.operation.inputs))

    def table(self, *listeners: Callable[[Event], None], options: Mapping[str, str] | None = None) -> LakeTable:
        """The table, opened with the options of the run and these."""
        return LakeTable.for_path(
            self.spark,
            self.table_path,
            options={**self.options, **(options or {})},
            application=self.name,
            listeners=(self.feed.event, *listeners),
        )

    def wait_for(self, signal: str, what: str = "") -> None:
        self.feed.say("waits", what=what or signal)
        self.signals.wait_for(signal, PATIENCE_S)

    def write(self, *listeners: Callable[[Event], None]) -> None:
        """Carry out the operation of the plan."""
        table = self.table(*listeners)
        if self.operation.kind == "delete":
            table.delete(self.operation.condition)
        elif self.operation.kind == "upsert":
            table.upsert(self.rows())
        else:
            table.insert(self.rows())
