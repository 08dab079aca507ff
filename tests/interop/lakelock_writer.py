"""A lakelock writer as a process of its own: `python -m tests.interop.lakelock_writer ORDER`, prints one line of JSON last.

ORDER is JSON: `table`, `file` (the Hudi properties file that the Java writers have, too), `rows` (lists in the order of the
table's columns) to upsert; or `counts`, to count up so many times, `pause_s` apart: as `name` in the partition `home`, which
is that of the shared counter, too, or one of its own. `others`: more tables, each with its file, which get the rows as well, in
one transaction. `options` are settings beside the file. Steps at which it dies or stops come in by `LAKELOCK_CRASH_AT` and
`LAKELOCK_STOP_AT`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from tests.api import ArrowEngine, Committed, Coordinator, Event, EventKind, StorageLocation, Transaction, with_retries
from tests.crashing import arm
from tests.interop.shared import rows
from tests.over_engines import transaction

from lakelock.errors import LakelockError
from lakelock.settings import Settings

COUNTER = "counter"


def count_apart(coordinator: Coordinator, name: str, number: int) -> Committed:
    """Note the number in a row of one's own and insert another, both in a partition that nobody else writes."""
    return ArrowEngine(coordinator).upsert(rows((name, number, name), (f"{name}-{number}", number, name)))


def count(coordinator: Coordinator, name: str, number: int) -> Committed:
    """Add one to the counter that all lakelock writers share, note it in a row of one's own, insert one elsewhere."""
    engine = ArrowEngine(coordinator)

    def work(tx: Transaction) -> Committed:
        (seen,) = engine.read_in(tx, pc.field("id") == COUNTER).column("v").to_pylist()
        return engine.upsert_in(tx, rows((COUNTER, seen + 1, "eu"), (name, number, "eu"), (f"{name}-{number}", number, name)))

    return with_retries(coordinator, "UPSERT", work)


def write_together(engines: Sequence[ArrowEngine], new: pa.Table) -> None:
    with transaction(*engines) as tx:
        for engine in engines:
            tx[engine].upsert(new)


def run(order: dict[str, Any], told: list[str]) -> dict[str, Any]:
    """Carry out the order; the alerts are added to `told`."""

    def listen(event: Event) -> None:
        if event.kind is EventKind.ALERT:
            told.append(f"{event.facts['problem']} {event.facts.get('hint', '')}")

    def opened(table: str, file: str) -> Coordinator:
        settings = Settings.resolve(order.get("options", {}), file=file).settings
        return Coordinator.open(StorageLocation.of(table), settings, listeners=[listen])

    with ExitStack() as stack:
        coordinator = stack.enter_context(opened(order["table"], order["file"]))
        if "others" in order:
            others = [stack.enter_context(opened(**other)) for other in order["others"]]
            write_together([ArrowEngine(each) for each in (coordinator, *others)], rows(*map(tuple, order["rows"])))
            return {"alerts": told}
        if "rows" in order:
            done = ArrowEngine(coordinator).upsert(rows(*map(tuple, order["rows"])))
            return {"committed": done.instant, "alerts": told}
        conflicts, work = [], count_apart if order["home"] == order["name"] else count
        for number in range(1, order["counts"] + 1):
            conflicts += [str(c) for c in work(coordinator, order["name"], number).conflicts]
            time.sleep(order["pause_s"])
        return {"conflicts": conflicts, "alerts": told}


def main() -> None:
    arm()
    told: list[str] = []
    try:
        print(json.dumps(run(json.loads(sys.argv[1]), told)))
    except LakelockError as error:
        said = {"error": type(error).__name__, "message": str(error), "hint": error.hint, "details": error.details}
        print(json.dumps({**said, "alerts": told}, default=str))


if __name__ == "__main__":
    main()
