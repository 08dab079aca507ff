"""One writer as a process of its own, with the engine on Arrow tables: `python -m tests.faults.worker '<json>'`.

Prints one line of JSON last: what became of the operation. Steps at which it dies or stops come in by `LAKELOCK_CRASH_AT`
and `LAKELOCK_STOP_AT`.
"""

from __future__ import annotations

import ctypes
import json
import resource
import signal
import sys
from dataclasses import asdict

import pyarrow as pa
import pyarrow.compute as pc
from tests.api import ArrowEngine, Committed, Coordinator, StorageLocation
from tests.behaviour.tables import SCHEMA
from tests.crashing import arm
from tests.tuning import settings_of

from lakelock.errors import LakelockError


def open_engine(uri: str, options: dict[str, object], name: str = "writer") -> ArrowEngine:
    """The table as any process would open it."""
    settings = settings_of(options)
    return ArrowEngine(Coordinator.open(StorageLocation.of(uri, settings.storage), settings, application=name))


def rows(values: list[list[object]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in values], schema=SCHEMA)


def perform(engine: ArrowEngine, operation: str, argument: object) -> Committed | None:
    """One operation, named and with plain values."""
    if operation == "delete_where":
        return engine.delete(pc.field("id") == argument)
    if operation == "reap":
        engine.coordinator.reap()
        return None
    if operation == "collect":
        engine.coordinator.collect()
        return None
    if operation == "upkeep":
        engine.coordinator.upkeep()
        return None
    if operation == "savepoint":
        engine.coordinator.savepoint(str(argument))
        return None
    if operation == "insert_each":
        return [engine.insert(rows([row])) for row in argument][-1]  # type: ignore[attr-defined]
    write = getattr(engine, operation)
    return write(rows(argument))  # type: ignore[arg-type]


def limited(limits: dict[str, int]) -> None:
    """Take from this process what the order says: room for files, or what lets root pass by permissions."""
    if "file_bytes" in limits:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limits["file_bytes"], resource.RLIM_INFINITY))
    if limits.get("obey_permissions"):
        version_3, this_process = 0x20080522, 0
        header, no_capabilities = (ctypes.c_uint32 * 2)(version_3, this_process), (ctypes.c_uint32 * 6)()
        if ctypes.CDLL(None, use_errno=True).capset(header, no_capabilities) != 0:
            raise OSError(ctypes.get_errno(), "capset")


def answer_of(order: dict) -> dict[str, object]:
    """What became of the operation; the room for files is back, so that it can be told in one."""
    try:
        return _answer_of(order)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def _answer_of(order: dict) -> dict[str, object]:
    try:
        limited(order.get("limits", {}))
        engine = open_engine(order["table"], order["options"], order["name"])
        done = perform(engine, order["operation"], order["argument"])
    except LakelockError as error:
        conflict = error.details.get("conflict")
        return {"outcome": error.code.value, "message": str(error), "conflict": conflict and asdict(conflict), **error.details}
    return {"outcome": "committed", "instant": done.instant, "attempts": done.attempts} if done else {"outcome": "done"}


def main() -> None:
    arm()
    print(json.dumps(answer_of(json.loads(sys.argv[1])), default=str), flush=True)


if __name__ == "__main__":
    main()
