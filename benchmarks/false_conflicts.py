"""How many rejected transactions a serial order would have allowed, per profile and level, on one generated workload.

`python -m benchmarks.false_conflicts [--seeds 4] [--transactions 250] [--live 6] [--json]`. The engine without Spark, on
Parquet files in memory. Each seed gives one list of transactions and one interleaving, with at most `--live` open at a time,
which every profile gets: streams of appends, upserts of a few keys, deletes and updates of a range of values, reports that read
such a range and write a row elsewhere, and overwrites of a partition. Nothing is run again. `serial_orders` judges each
rejection, and each commit: a commit that no order explains is an anomaly, of which serializable levels must have none.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.measuring import arguments, show
from benchmarks.serial_orders import Executed, Kind, Operation, SerialOrder, State
from lakelock.clock import SystemRuntime
from lakelock.engine.arrow import ArrowEngine
from lakelock.errors import ConflictError
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.create import create_table
from lakelock.occ.transaction import Transaction
from lakelock.settings import ConcurrencySettings, Settings, UpkeepSettings
from lakelock.storage.location import StorageLocation
from lakelock.storage.memory import MemoryStorage
from lakelock.table.properties import TableProperties
from lakelock.table.schema import TableSchema

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64()), ("part", pa.string())])
LEVELS = (
    ("strict", "Serializable"),
    ("delta", "Serializable"),
    ("delta", "WriteSerializable"),
    ("hive", "Serializable"),
    ("hudi", "Serializable"),
)
PARTS = tuple(f"p{number}" for number in range(4))
FILES, ROWS_OF_FILE, VALUES = 4, 6, 1000
KEYS_TO_COME = 6
"""Keys of each partition that upserts may bring and that are not there at the beginning."""
WIDTHS = {Kind.DELETE: 50, Kind.UPDATE: 100, Kind.REPORT: 200}
"""How many of the values a condition spans."""
MIX = {Kind.INSERT: 25, Kind.UPSERT: 25, Kind.UPDATE: 25, Kind.DELETE: 10, Kind.REPORT: 10, Kind.OVERWRITE: 5}
REPORTS = "reports"
BEGUN_AS = {Kind.INSERT: "INSERT", Kind.REPORT: "INSERT", Kind.DELETE: "DELETE", Kind.OVERWRITE: "INSERT_OVERWRITE"}


class Step(NamedTuple):
    """One step of an interleaving: a transaction begins, or writes and commits."""

    number: int
    commits: bool


@dataclass
class Tally:
    """What became of the transactions of one profile and level."""

    transactions: int = 0
    rejected: int = 0
    false: int = 0
    """Rejected, although there was a place for it in a serial order."""
    false_as_last: int = 0
    """Of these, how many could have been the last in that order."""
    anomalies: int = 0
    """Committed, although no serial order explains it."""
    by_rule: Counter[str] = field(default_factory=Counter)
    """The false ones, by the rule that rejected them."""
    as_last_by_rule: Counter[str] = field(default_factory=Counter)
    """Those of them that could have been the last."""

    def __iadd__(self, other: Tally) -> Tally:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        return self


def first_state(choose: random.Random) -> dict[str, dict[str, int]]:
    """Each partition has files for a quarter of the values each, as tables that were sorted once have."""
    width = VALUES // FILES
    return {
        part: {f"{part}-{n}": n // ROWS_OF_FILE * width + choose.randrange(width) for n in range(FILES * ROWS_OF_FILE)}
        for part in PARTS
    }


def operations(choose: random.Random, count: int) -> list[Operation]:
    return [_operation(choose, number) for number in range(count)]


def _operation(choose: random.Random, number: int) -> Operation:
    (kind,) = choose.choices(list(MIX), list(MIX.values()))
    part, low = choose.choice(PARTS), choose.randrange(VALUES - max(WIDTHS.values()))
    if kind is Kind.UPSERT:
        keys = choose.sample(range(FILES * ROWS_OF_FILE + KEYS_TO_COME), 3)
        return Operation(number, kind, part, tuple((f"{part}-{key}", choose.randrange(VALUES)) for key in keys))
    if kind in (Kind.INSERT, Kind.OVERWRITE):
        count = 3 if kind is Kind.INSERT else ROWS_OF_FILE
        return Operation(number, kind, part, tuple((f"new-{number}-{n}", choose.randrange(VALUES)) for n in range(count)))
    return Operation(number, kind, part, low=low, high=low + WIDTHS[kind])


def interleaving(choose: random.Random, count: int, live: int) -> Iterator[Step]:
    """Each transaction begins in turn; open ones commit in any order."""
    waiting, is_open = list(range(count))[::-1], list[int]()
    while waiting or is_open:
        if waiting and len(is_open) < live and (not is_open or choose.random() < 0.5):
            is_open.append(waiting.pop())
            yield Step(is_open[-1], commits=False)
        else:
            yield Step(is_open.pop(choose.randrange(len(is_open))), commits=True)


def executed(operation: Operation, state: State) -> Executed:
    """The operation as it runs on this table."""
    seen = operation.observed(state)
    given = {operation.part: dict(operation.rows)}
    if operation.kind is Kind.DELETE:
        return Executed(operation, seen, {operation.part: dict.fromkeys(seen)})
    if operation.kind is Kind.UPDATE:
        return Executed(operation, seen, {operation.part: {key: value + 1 for key, value in seen}})
    if operation.kind is Kind.REPORT:
        return Executed(operation, seen, {REPORTS: {f"report-{operation.number}": len(seen)}})
    if operation.kind is Kind.OVERWRITE:
        return Executed(operation, seen, {operation.part: {**dict.fromkeys(seen), **given[operation.part]}})
    return Executed(operation, seen, given)


def carry_out(engine: ArrowEngine, tx: Transaction, mine: Executed) -> None:
    """Do it to the table, in a transaction that began some time ago."""
    operation = mine.operation
    condition = (pc.field("part") == operation.part) & (pc.field("v") >= operation.low) & (pc.field("v") < operation.high)
    if operation.kind is Kind.DELETE:
        engine.delete_where_in(tx, condition)
        return
    written = table_of({part: {k: v for k, v in rows.items() if v is not None} for part, rows in mine.writes.items()})
    if operation.kind in (Kind.UPDATE, Kind.REPORT):
        engine.read_in(tx, condition)
    if operation.kind is Kind.OVERWRITE:
        engine.overwrite_partitions_in(tx, written)
    elif operation.kind in (Kind.INSERT, Kind.REPORT):
        engine.insert_in(tx, written)
    else:
        engine.upsert_in(tx, written)


def table_of(state: State) -> pa.Table:
    found = [(key, value, part) for part, rows in state.items() for key, value in rows.items()]
    return pa.table([list(column) for column in zip(*found, strict=True)] if found else [[], [], []], schema=SCHEMA)


def new_engine(profile: str, isolation: str, state: State) -> ArrowEngine:
    """An engine on a new table in memory with these rows."""
    storage = MemoryStorage()
    schema = TableSchema.from_arrow(SCHEMA).to_avro_json("orders")
    create_table(storage, TableProperties.new("orders", ["id"], ["part"], create_schema=schema), SystemRuntime())
    # Nothing runs at the same time here, so a claim never meets another, and only the profile's rules decide.
    concurrency = ConcurrencySettings(profile=profile, isolation=isolation, early_conflict_detection=False)  # type: ignore[arg-type]
    settings = Settings(concurrency=concurrency, upkeep=UpkeepSettings(auto=False))
    engine = ArrowEngine(Coordinator.open(StorageLocation(storage.uri), settings, storage=storage))
    for number in range(FILES):
        rows = {part: dict(list(found.items())[number * ROWS_OF_FILE :][:ROWS_OF_FILE]) for part, found in state.items()}
        engine.insert(table_of(rows))
    return engine


def measured(profile: str, isolation: str, seed: int, transactions: int, live: int) -> Tally:
    """One seed in one profile. Fails if a serializable level commits an anomaly, or the table is not what the order gives."""
    choose = random.Random(seed)
    state: State = first_state(choose)
    todo, steps = operations(choose, transactions), list(interleaving(choose, transactions, live))
    engine, order, found = new_engine(profile, isolation, state), SerialOrder(state), Tally(transactions)
    begun: dict[int, tuple[Transaction, Executed, int]] = {}
    for number, commits in steps:
        operation = todo[number]
        if not commits:
            tx = engine.coordinator.begin(BEGUN_AS.get(operation.kind, "UPSERT"))
            begun[number] = tx, executed(operation, state), order.commits
            continue
        tx, mine, seen_commits = begun.pop(number)
        place = order.place(mine, seen_commits)
        try:
            with tx:
                carry_out(engine, tx, mine)
        except ConflictError as error:
            found.rejected += 1
            if place is not None:
                found.false += 1
                found.by_rule[str(error.conflict.rule)] += 1
                if place == order.commits:
                    found.false_as_last += 1
                    found.as_last_by_rule[str(error.conflict.rule)] += 1
            continue
        found.anomalies += place is None
        order.commit(mine, place)
        state = mine.applied(state)
    stored = {(row["part"], row["id"]): row["v"] for row in engine.read().to_pylist()}
    explained = {(part, key): value for part, rows in order.state.items() for key, value in rows.items()}
    if not found.anomalies and stored != explained:
        raise AssertionError(f"{profile} {isolation}, seed {seed}: the table is not what the serial order gives")
    if profile in ("strict", "delta") and isolation == "Serializable" and found.anomalies:
        raise AssertionError(f"{profile} {isolation}, seed {seed}: {found.anomalies} commits that no serial order explains")
    return found


def measure(seeds: Sequence[int], transactions: int, live: int) -> dict[tuple[str, str], Tally]:
    """The sums over the seeds, for each profile and level."""
    found = {level: Tally() for level in LEVELS}
    for level, tally in found.items():
        for seed in seeds:
            tally += measured(*level, seed, transactions, live)
    return found


def lines(found: dict[tuple[str, str], Tally]) -> Iterator[str]:
    """A Markdown table."""
    yield "| Profile | Level | Transactions | Rejected | Of these false | Share | False, even as the last | Anomalies |"
    yield "|---|---|---|---|---|---|---|---|"
    for (profile, isolation), tally in found.items():
        level = isolation if profile == "delta" else ""
        share = f"{tally.false / tally.rejected:.0%}" if tally.rejected else "none rejected"
        yield (
            f"| `{profile}` | {level} | {tally.transactions:,} | {tally.rejected:,} | {tally.false:,} | {share} "
            f"| {tally.false_as_last:,} | {tally.anomalies:,} |"
        )


def main() -> None:
    given = arguments(__doc__, seeds=4, transactions=250, live=6)
    found = measure(range(given.seeds), given.transactions, given.live)
    if given.json:
        show({f"{profile} {level}": {**vars(tally)} for (profile, level), tally in found.items()}, True)
        return
    print("\n".join(lines(found)))
    for (profile, level), tally in found.items():
        print(f"{profile} {level}, false by rule: {dict(tally.by_rule)}; even as the last: {dict(tally.as_last_by_rule)}")


if __name__ == "__main__":
    main()
