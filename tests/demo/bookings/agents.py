"""One agent, or the auditor, in a process of its own and without Spark.

`python -m tests.demo.bookings.agents NAME WORK_FOLDER`. An agent moves bookings until the others are done, or until it is
killed. The auditor reads both tables as of one moment, again and again.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from lakelock.errors import ConflictError, LockTimeout, RolledBackError
from lakelock.settings import Settings
from tests.api import ArrowEngine, Coordinator, Event, EventKind, Runtime, StorageLocation, SystemRuntime, layout
from tests.crashing import arm
from tests.demo.bookings.tables import BOOKED, BOOKINGS, SEATS, create_both, first_rows, halves, move
from tests.demo.feed import Feed
from tests.demo.flights import DemoError
from tests.demo.plan import AGENT_A, AGENT_B, AGENT_C, AUDITOR
from tests.demo.signals import Signals
from tests.demo.store import Store
from tests.over_engines import snapshot, transaction

PATIENCE_S = 400.0
PAUSE_S = 0.3
MOST_MOVES = 2_000
ENDS_S = 60.0
"""How long the dead may take to be ended once all others are done."""


@dataclass(frozen=True)
class Agency:
    """What an agent works with: both tables, the feed and the signals."""

    name: str
    store: Store
    options: dict[str, str]
    runtime: Runtime
    feed: Feed
    signals: Signals

    @classmethod
    def of(cls, name: str, work: Path) -> Agency:
        runtime, run = SystemRuntime(), json.loads((work / "run.json").read_text())
        options = {**run["options"], "lock.provider": run["bookings_lock"], "upkeep.auto": "false"}
        feed, signals = Feed(work / "feed", name, runtime), Signals(work / "signals", runtime)
        return cls(name, Store(**run["store"]), options, runtime, feed, signals)

    def engine(self, table: str) -> ArrowEngine:
        settings = Settings.resolve(self.options).settings
        location = StorageLocation.of(self.store.uri(table), settings.storage)
        return ArrowEngine(Coordinator.open(location, settings, application=self.name, listeners=(self._listen,)))

    def _listen(self, event: Event) -> None:
        """Tell what concerns a whole move. Instants of different tables may be equal, so each is told with its table."""
        table = Path(event.table).name
        part = f"{table}/{event.instant}"
        if event.kind is EventKind.BEGAN:
            self.feed.say("move-begun", part=part)
        elif event.kind in (EventKind.FINISHED_FOR_ANOTHER, EventKind.ROLLED_BACK):
            self.feed.say("move-ended", part=part, table=table, published=event.kind is EventKind.FINISHED_FOR_ANOTHER)
        elif event.kind is EventKind.ALERT:
            self.feed.event(event)


def move_bookings(agency: Agency) -> None:
    """Move bookings until killed, or until the others are done; then see that nothing of the dead is left."""
    if agency.name == AGENT_A:
        create_both(agency.store.root, agency.options, agency.runtime)
        both = agency.engine(BOOKINGS), agency.engine(SEATS)
        with transaction(*both) as tx:
            for engine, rows in zip(both, first_rows(), strict=True):
                tx[engine].insert(rows)
        agency.signals.give("booked")
    agency.signals.wait_for("booked", PATIENCE_S)
    bookings, seats = agency.engine(BOOKINGS), agency.engine(SEATS)
    agency.signals.wait_for("loaded", PATIENCE_S)
    random, moved = agency.runtime.random, 0
    agency.feed.say("moves")
    for _ in range(MOST_MOVES):
        if agency.name == AGENT_C and agency.signals.given("others-done"):
            break
        agency.runtime.sleep(PAUSE_S)
        booking = f"B{int(random() * BOOKED):02}"
        try:
            there = move(bookings, seats, booking, random())
        except (ConflictError, RolledBackError, LockTimeout):
            continue
        moved += 1
        agency.feed.say("moved", booking=booking, there=there)
    end_the_dead(agency, bookings, seats)
    agency.feed.say("all-moved", moves=moved)


def end_the_dead(agency: Agency, *engines: ArrowEngine) -> None:
    """Return when neither a pending move nor a heartbeat is left in any table; `DemoError` if that takes too long."""
    for killed in (AGENT_A, AGENT_B):
        agency.signals.wait_for(f"{killed}-killed", ENDS_S)
    deadline_s = agency.runtime.monotonic_s() + ENDS_S
    while any(engine.coordinator.table.timeline().pending or _beats(engine) for engine in engines):
        if agency.runtime.monotonic_s() > deadline_s:
            raise DemoError(f"a dead agent's move was not ended within {ENDS_S:.0f} s")
        agency.runtime.sleep(PAUSE_S)
        for engine in engines:
            engine.coordinator.reap()


def _beats(engine: ArrowEngine) -> bool:
    """Whether a heartbeat is there: a dead agent's goes last, after its markers."""
    return any(engine.coordinator.table.storage.list(layout.HEARTBEATS))


def audit(agency: Agency) -> None:
    """Look at both tables as of one moment until all is written; beside that, at one table after the other."""
    agency.signals.wait_for("booked", PATIENCE_S)
    bookings, seats = agency.engine(BOOKINGS), agency.engine(SEATS)
    looks = wrong = torn = 0
    agency.feed.say("audits")
    last = False
    while not last:
        last = agency.signals.given("all-written")
        seen = snapshot(bookings, seats)
        found = halves(seen[bookings].read(), seen[seats].read())
        looks, wrong = looks + 1, wrong + bool(found)
        if found:
            agency.feed.say("half-seen", what=found[0])
        torn += bool(halves(bookings.read(), seats.read()))
        agency.runtime.sleep(PAUSE_S)
    agency.feed.say("audited", looks=looks, wrong=wrong, torn=torn)


def main(name: str, work: Path) -> int:
    arm()
    agency = Agency.of(name, work)
    try:
        (audit if name == AUDITOR else move_bookings)(agency)
        return 0
    except Exception as error:
        agency.feed.say("failed", problem=str(error).splitlines()[0], error=type(error).__name__)
        raise


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
