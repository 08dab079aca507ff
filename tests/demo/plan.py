"""Who writes what: the demo's operations and their rows, decided by the seed before any writer starts.

The serial replay reads this description and nothing of lakelock, so it must contain everything that the operations mean.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.demo.flights import ORDERING, SCHEMA, DemoError

LOADER = "loader"
STREAM = "stream"
CORRECTION_A = "correction-a"
CORRECTION_B = "correction-b"
ERASURE = "erasure"
LATE_FEED = "late-feed"
RECOUNT = "recount"
WRITERS = (LOADER, STREAM, CORRECTION_A, CORRECTION_B, LATE_FEED, RECOUNT, ERASURE)

AGENT_A, AGENT_B, AGENT_C = "agent-a", "agent-b", "agent-c"
AUDITOR = "auditor"
AGENCY: Mapping[str, str] = {
    AGENT_A: "moves bookings; killed before an outcome",
    AGENT_B: "moves bookings; killed when half of a move is visible",
    AGENT_C: "moves bookings between flights, and their seats",
    AUDITOR: "reads bookings and seats as of one moment",
}
"""Who works on the bookings and their seats, two tables of their own, and what for."""

KILLED_AT: Mapping[str, str] = {LATE_FEED: "decided", RECOUNT: "reconciled", AGENT_A: "prepared:5", AGENT_B: "published:5"}
"""The step of a transaction at which each of these dies: between decision and publication, between data and decision, between
a prepare and the outcome of all tables, and between the publication in one table and in the other."""

CHUNKS = 10
LOADED_DAYS = 15
"""The loader brings the days 1 to 15 of each month, the stream and the late feed the rest."""


@dataclass(frozen=True)
class Operation:
    """What one writer does: rows of its `inputs` (paths relative to the work folder), or every row of some `tails`."""

    writer: str
    kind: Literal["insert", "upsert", "delete"]
    about: str
    inputs: tuple[str, ...] = ()
    tails: tuple[str, ...] = ()

    @property
    def condition(self) -> str:
        """The delete's condition as SQL."""
        return "tailnum IN ({})".format(", ".join(f"'{tail}'" for tail in self.tails))


@dataclass(frozen=True)
class Plan:
    """The operations of one run. `chunks` are the files of the stream, which appends one per micro-batch."""

    seed: int
    size: int
    operations: Mapping[str, Operation]

    @property
    def chunks(self) -> tuple[str, ...]:
        return self.operations[STREAM].inputs

    def save(self, work: Path) -> None:
        text = {"seed": self.seed, "size": self.size, "operations": [asdict(o) for o in self.operations.values()]}
        (work / "plan.json").write_text(json.dumps(text, indent=1))

    @classmethod
    def load(cls, work: Path) -> Plan:
        text = json.loads((work / "plan.json").read_text())
        operations = [Operation(**{**o, "inputs": tuple(o["inputs"]), "tails": tuple(o["tails"])}) for o in text["operations"]]
        return cls(text["seed"], text["size"], {o.writer: o for o in operations})


def make_plan(flights: pa.Table, seed: int, work: Path) -> Plan:
    """Choose the operations by the seed and write their rows below `work`. Deterministic: same seed, same files."""
    loaded_half = pc.less_equal(flights["day"], LOADED_DAYS)
    loaded, later = flights.filter(loaded_half), flights.filter(pc.invert(loaded_half))
    tails = _seeded(_ranked(flights["tailnum"])[20:200], seed, "tails")[:3]
    busy = _seeded(_ranked(flights["carrier"])[:8], seed, "carriers")
    late = _seeded(["WN", "VX", "FL", "AA", "US"], seed, "late feed")[:2]
    first = int(_seeded([str(m) for m in range(1, 13)], seed, "months")[0])

    is_late = pc.and_(pc.is_in(later["carrier"], pa.array(late)), pc.invert(_in_tails(later, tails)))
    # An erased aircraft goes on flying in one chunk only: the erasure meets the stream there or nowhere.
    is_erased = _in_tails(later, tails)
    plain = later.filter(pc.invert(pc.or_(is_late, is_erased)))
    meets = int(_seeded([str(n) for n in (1, CHUNKS - 3, CHUNKS - 2)], seed, "meeting")[0])
    chunks = {f"stream-{n:02}": rows for n, rows in enumerate(_slices(plain, CHUNKS))}
    chunks[f"stream-{meets:02}"] = pa.concat_tables([chunks[f"stream-{meets:02}"], later.filter(is_erased)])

    months_a, months_b, months_c = _months(first, 8), _months(first + 4, 8), _months(first, 2)
    rows = {
        LOADER: loaded,
        CORRECTION_A: _corrected(loaded, busy[0:3], months_a, seed, pc.subtract(loaded["flight"], _thirds(loaded))),
        CORRECTION_B: _corrected(loaded, busy[2:5], months_b, seed + 1, 1),
        LATE_FEED: later.filter(is_late),
        RECOUNT: _corrected(loaded, busy, months_c, seed + 2, 9),
    }
    paths = _write({**rows, **chunks}, work)
    operations = [
        Operation(LOADER, "insert", f"days 1 to {LOADED_DAYS} of every month", (paths[LOADER],)),
        Operation(STREAM, "insert", f"the other days, in {CHUNKS} micro-batches", tuple(paths[c] for c in chunks)),
        Operation(CORRECTION_A, "upsert", f"delays of {_list(busy[0:3])}, months {_list(months_a)}", (paths[CORRECTION_A],)),
        Operation(CORRECTION_B, "upsert", f"delays of {_list(busy[2:5])}, months {_list(months_b)}", (paths[CORRECTION_B],)),
        Operation(LATE_FEED, "insert", f"later flights of {_list(late)}; killed when decided", (paths[LATE_FEED],)),
        Operation(RECOUNT, "upsert", f"months {_list(months_c)}; killed before deciding", (paths[RECOUNT],)),
        Operation(ERASURE, "delete", f"every flight of {_list(tails)}", (), tuple(tails)),
    ]
    plan = Plan(seed, flights.num_rows, {o.writer: o for o in operations})
    plan.save(work)
    return plan


def _seeded(things: Iterable[str], seed: int, purpose: str) -> list[str]:
    """The things in an order that only the seed decides, the same on every machine and Python."""
    return sorted(things, key=lambda thing: sha256(f"{seed}/{purpose}/{thing}".encode()).digest())


def _ranked(column: pa.ChunkedArray) -> list[str]:
    """Values by how often they occur, most frequent first."""
    counts = column.drop_null().value_counts().to_pylist()
    return [c["values"] for c in sorted(counts, key=lambda c: (-c["counts"], c["values"]))]


def _in_tails(table: pa.Table, tails: list[str]) -> pa.ChunkedArray:
    return pc.is_in(table["tailnum"], pa.array(tails, pa.string()))


def _months(first: int, count: int) -> list[int]:
    return [(first - 1 + n) % 12 + 1 for n in range(count)]


def _slices(table: pa.Table, count: int) -> list[pa.Table]:
    bounds = [n * table.num_rows // count for n in range(count + 1)]
    return [table.slice(a, b - a) for a, b in pairwise(bounds)]


def _thirds(table: pa.Table) -> pa.ChunkedArray:
    """The largest multiple of 3 up to the flight number: the number minus this is 0, 1 or 2."""
    return pc.multiply(pc.divide(table["flight"], 3), 3)


def _corrected(table: pa.Table, carriers: list[str], months: list[int], seed: int, hours: pa.ChunkedArray | int) -> pa.Table:
    """The flights of these carriers and months with other arrival delays, stamped `hours` after the corrections' epoch.

    Correction A stamps 0, 1 or 2 hours by flight number and B always 1: where they meet, a third of B's rows are newer, a
    third older, and a third equal, so the order of the commits shows in the result.
    """
    shift = pc.add(pc.multiply(table["flight"], 7), pc.add(pc.multiply(table["day"], 13), seed % 41))
    shift = pc.subtract(pc.subtract(shift, pc.multiply(pc.divide(shift, 41), 41)), 20)
    delay = pc.add(pc.fill_null(table["arr_delay"], 0), shift).cast(pa.int32())
    epoch_us = 1_391_212_800_000_000  # 2014-02-01, after every flight
    stamp = pc.add(pc.multiply(pc.cast(_column(hours, table.num_rows), pa.int64()), 3_600_000_000), epoch_us)
    index = table.schema.get_field_index
    changed = table.set_column(index("arr_delay"), SCHEMA.field("arr_delay"), delay)
    changed = changed.set_column(index(ORDERING), SCHEMA.field(ORDERING), stamp.cast(SCHEMA.field(ORDERING).type))
    chosen = pc.and_(pc.is_in(table["carrier"], pa.array(carriers)), pc.is_in(table["month"], pa.array(months, pa.int32())))
    return changed.filter(chosen)


def _column(values: pa.ChunkedArray | int, length: int) -> pa.ChunkedArray | pa.Array:
    return pa.repeat(pa.scalar(values, pa.int64()), length) if isinstance(values, int) else values


def _write(tables: Mapping[str, pa.Table], work: Path) -> dict[str, str]:
    (work / "inputs").mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        if not table.num_rows:
            raise DemoError(f"with this --size and --seed there is nothing for {name} to write; use more flights")
        pq.write_table(table, work / "inputs" / f"{name}.parquet", compression="zstd")
    return {name: f"inputs/{name}.parquet" for name in tables}


def _list(things: Iterable[object]) -> str:
    return ", ".join(str(thing) for thing in things)
