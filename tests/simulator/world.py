"""One table of a run, on simulated storage: its processes, its settings, and what is checked of each event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from math import inf

from lakelock.occ.footprint import SERVICES
from lakelock.occ.log import DecisionLog
from lakelock.occ.open_table import Observations, OpenTable
from lakelock.providers.base import Opening
from lakelock.settings import (
    CheckpointSettings,
    ConcurrencySettings,
    DecisionSettings,
    HeartbeatSettings,
    ListingSettings,
    LockSettings,
    RetrySettings,
    Settings,
    WriteSettings,
)
from lakelock.table.properties import MERGE_ON_READ
from tests.api import (
    Coordinator,
    Event,
    EventKind,
    Events,
    StorageLocation,
    TableProperties,
    TableSchema,
    WriterIdentity,
    layout,
)
from tests.simulator.checking.checks import Checker
from tests.simulator.engine import LIGHT, PARQUET, Engine
from tests.simulator.faults import Faults
from tests.simulator.locks import LockRoom, open_lock
from tests.simulator.metadata import make_metadata_table
from tests.simulator.rows import SCHEMA
from tests.simulator.runtime import SimRuntime
from tests.simulator.scenarios.scenario import Scenario, Tending
from tests.simulator.scenarios.stragglers import Stragglers
from tests.simulator.scenarios.upkeep import keeps_every_claim
from tests.simulator.scheduler import Hub, Process
from tests.simulator.storage import SimServer, SimStorage
from tests.simulator.trace import Trace

MOST_STEPS = 400_000
"""More than any history takes. Long ones whose folders are listed four keys at a time, and twice, take over 200,000."""
CHECKPOINTS_EVERY = (1, 2, 3, 5, 25)
"""After how many commits a checkpoint of the file index is due, chosen by the seed."""
WITHOUT_INDEX = 13
"""One seed in this many has no file index: its snapshots follow the names of the files, as those of others do. Families
are chosen by powers of two, so each of them has such seeds."""


class World:
    """Everything of one run."""

    def __init__(
        self,
        scenario: Scenario,
        *,
        only: frozenset[tuple[str, int]] | None = None,
        keep_events: bool = False,
        name: str = "simulated",
        beside: World | None = None,
    ) -> None:
        """The table `name`; `beside` another one it shares time, weather and processes with it."""
        self.scenario, self._keep_events = scenario, keep_events
        self.hub: Hub = beside.hub if beside is not None else Hub(scenario.seed, most_steps=MOST_STEPS)
        self.server = SimServer(self.hub, name)
        self.faults: Faults = beside.faults if beside is not None else Faults(scenario.weather, only)
        self.tables: dict[str, World] = beside.tables if beside is not None else {}
        """All tables of the run, by their URIs."""
        self.tables[self.server.uri] = self
        serial, tending = scenario.is_serializable, scenario.tending
        self.checker = Checker(
            self.hub, self.server, scenario.operations, serial=serial and scenario.foreign != "careless",
            clean=tending.clean, archive=tending.archive, careless=scenario.foreign == "careless",
        )  # fmt: skip
        if scenario.foreign != "none":
            # A foreign writer does not know decisions: a commit published after its own was judged before it. That is
            # the one gap that no lock closes once its holder is dead (docs/robustness.md).
            self.faults.spared = lambda: self.checker.ledger.awaits_publication
        self.room = LockRoom(self.hub, scenario.lock, silent_from_s=scenario.silent_from_s)
        self.trace = Trace()
        self.network = Process("network", 0)
        self.settings = _settings(
            ConcurrencySettings(
                profile=scenario.profile, isolation=scenario.isolation, early_conflict_detection=scenario.early
            ),
            scenario.lease_s,
            scenario.collect_above,
            min(scenario.page_keys, SHORT) if scenario.seed >= FOLLOWED_FROM else scenario.page_keys,
            checkpoints_every(scenario.seed),
            scenario.tending,
            RetrySettings(
                attempts=3,
                first_wait_s=0.02,
                longest_wait_s=0.5,
                holder_wait_s=scenario.holder_wait_s,
                redo_attempts=scenario.redo_attempts,
                reserve_after=scenario.reserve_after,
            ),
            groups=scenario.groups,
        )
        self.location = StorageLocation(self.server.uri)
        self.properties = _MERGE_ON_READ if scenario.merge_on_read else _PROPERTIES
        self._stragglers = Stragglers(self.hub, self.checker, self.process, self.storage)
        self._keeps_claims = keeps_every_claim(scenario)
        self._processes = 0
        self._births: dict[int, Callable[[], None]] = {}
        if beside is None:
            self.hub.on_death = self._died
        else:
            self.checker.ledger.verdicts = beside.checker.ledger.verdicts
        if scenario.metadata:
            self.properties = make_metadata_table(
                self.server, self.properties, self.network,
                record_index=scenario.record_index, statistics=scenario.statistics,
            )  # fmt: skip
        self.server.write(layout.PROPERTIES, self.properties.serialize(0), self.network)
        self.server.observer = self.checker

    def process(self, name: str, *, skew_ms: int = 0, rate: float = 1.0) -> Process:
        self._processes += 1
        return Process(name, self._processes, skew_ms=skew_ms, rate=rate)

    def storage(self, process: Process) -> SimStorage:
        page_keys, scattered = self.scenario.page_keys, self.scenario.scattered
        return SimStorage(self.server, process, self.faults, self.network, page_keys=page_keys, scattered=scattered)

    def coordinator(self, process: Process) -> Coordinator:
        """Open the table in a process, as `Coordinator.open` does."""
        storage, runtime = self.storage(process), SimRuntime(self.hub, process)
        events = Events((lambda event: self._on_event(process, event),))
        writer = WriterIdentity.of_this_process(runtime, process.name)
        opening = Opening("simulated:", self.settings, storage, runtime, writer, events)
        provider = open_lock(self.scenario.lock, self.room, opening, process, self._overran)
        log = DecisionLog(storage, runtime)

        def neighbours(uri: str) -> SimStorage:
            return self.tables[uri].storage(process)

        table = OpenTable(self.location, storage, runtime, self.settings, provider, writer, events, log, neighbours)
        if self.scenario.groups and self.scenario.seed % 4:
            table = replace(table, observed=_Crowded(crowded_until_s=inf))
        return Coordinator(table, self.properties)

    def engine(self, process: Process) -> Engine:
        coordinator = self.coordinator(process)
        rows = PARQUET if self.scenario.files == "parquet" else LIGHT
        return Engine(coordinator, rows, follow=self._stragglers.follow if self.scenario.stragglers else None)

    def when_dead(self, process: Process, then: Callable[[], None]) -> None:
        self._births[process.number] = then

    def _died(self, process: Process) -> None:
        then = self._births.pop(process.number, None)
        if then is not None:
            then()

    def _on_event(self, process: Process, event: Event) -> None:
        if event.kind is EventKind.BEGAN:
            self.trace.begun += 1
            self.checker.owns(event.instant, process)
        elif event.kind in (EventKind.REJECTED, EventKind.COMMITTED):
            self.checker.ended(event.instant)
            if event.kind is EventKind.REJECTED:
                self.trace.rejected.add(event.instant)
        elif event.kind is EventKind.CONFLICT and self._keeps_claims and event.operation not in SERVICES:
            other = str(event.facts["other"])
            if other.startswith(tuple(SERVICES)) and not self.checker.claims_lost:
                detail = f"{event.operation} {event.instant} has written, and loses to {other}"
                self.checker.fail("no write loses to upkeep", detail)
        elif event.kind is EventKind.ALERT:
            self.checker.could_not_tidy(event.instant)
            self.trace.alerts.append(str(event.facts["problem"]))
        if self.scenario.keeps_turns:
            self._check_turns(event)
        if self._keep_events:
            self.trace.events.append((self.hub.now_s, process.name, event))

    def _check_turns(self, event: Event) -> None:
        lost = event.kind in (EventKind.CONFLICT, EventKind.EARLY_CONFLICT)
        if lost and event.facts["reserved"] and not self.checker.claims_lost:
            detail = f"{event.operation} {event.instant} loses to {event.facts['other']}"
            self.checker.fail("whoever has reserved is not overtaken", detail)
        if event.kind is EventKind.ALERT and "waited_s" in event.facts:
            self.checker.fail("nobody waits in a circle, nor for the dead", str(event.facts["problem"]))

    def _overran(self, detail: str) -> None:
        self.checker.fail("every wait ends within its bound", detail)


class _Crowded(Observations):
    """Those of a process that always expects others at the lock, also where the lock lets everybody in."""

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, inf if name == "crowded_until_s" else value)


_PROPERTIES = TableProperties.new(
    "t", record_keys=("id",), partition_fields=("part",), create_schema=TableSchema.from_arrow(SCHEMA).to_avro_json("t")
)

_MERGE_ON_READ = _PROPERTIES.changed({"hoodie.table.type": MERGE_ON_READ})


def checkpoints_every(seed: int) -> int:
    """After how many commits a checkpoint of the file index is due; 0 is a table without an index."""
    return 0 if seed % WITHOUT_INDEX == 5 else CHECKPOINTS_EVERY[seed % len(CHECKPOINTS_EVERY)]


FOLLOWED_FROM = 1_000_000
"""From this seed on, a timeline of more than `SHORT` files is a long one, which is followed. Of the earlier seeds only those
with small pages follow one: the others stay as they are, so that bugs are found by the seeds that found them.
"""
SHORT = 6


@lru_cache(maxsize=256)
def _settings(
    concurrency: ConcurrencySettings,
    lease_s: float,
    collect_above: int,
    at_once: int,
    every_commits: int,
    tending: Tending,
    retry: RetrySettings,
    groups: bool = False,
) -> Settings:
    return Settings(
        concurrency=concurrency,
        lock=LockSettings(wait_s=max(8.0, lease_s / 2), lease_s=lease_s, renew_s=lease_s / 4, poll_s=0.1),
        heartbeat=HeartbeatSettings(interval_s=1.0, tolerable_misses=2),
        retry=retry,
        decisions=DecisionSettings(slot_attempts=20, collect_above=collect_above),
        clean=tending.clean,
        archive=tending.archive,
        upkeep=tending.upkeep,
        checkpoint=CheckpointSettings(every_commits=every_commits),
        listing=ListingSettings(at_once=at_once),
        write=WriteSettings(bloom_entries=1, compression="none", missing_columns="keep", group_commit=groups, progress=False),
    )
