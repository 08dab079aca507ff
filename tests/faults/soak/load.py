"""The mixed load of the soak, as values: what a writer does next, and what that does to a plain model of the table."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from tests.api import ArrowEngine, Committed, Transaction
from tests.behaviour.tables import SCHEMA

Model = dict[tuple[str, str], int]
"""The rows: (partition, key) -> value."""

ACCOUNTS = [f"account-{n}" for n in range(6)]
HOT = [f"hot-{n}" for n in range(8)]
COLD = [f"cold-{n}" for n in range(400)]
INSERTED = [f"inserted-{n}" for n in range(3)]
PER_ACCOUNT = 1000
KINDS = {"insert": 30, "hot": 22, "cold": 16, "delete": 8, "purge": 6, "overwrite": 8, "transfer": 10}


@dataclass(frozen=True)
class Operation:
    """One thing that a writer does. `rows` are (key, value, partition); of a purge one row says below which value."""

    tag: str
    kind: str
    rows: tuple[tuple[str, int, str], ...]


def partition_of(key: str) -> str:
    return f"{key.partition('-')[0]}-{int(key.rpartition('-')[2]) % 4}"


def first_rows() -> list[tuple[str, int, str]]:
    """What the table has before the writers begin."""
    keys = [(key, 0) for key in (*HOT, *COLD)]
    return [(key, v, partition_of(key)) for key, v in keys] + [(key, PER_ACCOUNT, "accounts") for key in ACCOUNTS]


def operations(writer: str, seed: int) -> Iterator[Operation]:
    """What this writer does, without end; the same for the same seed."""
    choose = random.Random(f"{writer}/{seed}")
    for number in range(1 << 40):
        kind = choose.choices(list(KINDS), list(KINDS.values()))[0]
        yield Operation(f"{writer}/{number}", kind, _rows(kind, f"{writer}/{number}", choose))


def _rows(kind: str, tag: str, choose: random.Random) -> tuple[tuple[str, int, str], ...]:
    def some(keys: list[str], number: int) -> list[tuple[str, int, str]]:
        return [(key, choose.randrange(1000), partition_of(key)) for key in choose.sample(keys, number)]

    if kind == "insert":
        where = choose.choice(INSERTED)
        found = [(f"{tag}-{n}", choose.randrange(1000), where) for n in range(4)]
    elif kind == "hot":
        found = some(HOT, 2)
    elif kind == "cold":
        found = some(COLD, 3)
    elif kind == "delete":
        found = some([*HOT, *COLD[::10]], 2)
    elif kind == "purge":
        found = [("", choose.randrange(300), choose.choice(INSERTED))]
    elif kind == "overwrite":
        where = choose.choice([*INSERTED, "hot-0", "cold-1", "cold-2"])
        keys = [k for k in (*HOT, *COLD) if partition_of(k) == where] or [f"{tag}-{n}" for n in range(5)]
        found = [(key, choose.randrange(1000), where) for key in keys]
    else:
        giver, taker = choose.sample(ACCOUNTS, 2)
        amount = choose.randrange(1, 50)
        found = [(giver, -amount, "accounts"), (taker, amount, "accounts")]
    return tuple(found)


def carry_out(engine: ArrowEngine, operation: Operation) -> Committed:
    """Do it to the table."""
    table = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in operation.rows], schema=SCHEMA)
    kind, tag = operation.kind, operation.tag
    if kind == "insert":
        return engine.insert(table, tag=tag)
    if kind in ("hot", "cold"):
        return engine.upsert(table, tag=tag)
    if kind == "delete":
        return engine.delete(table, tag=tag)
    if kind == "purge":
        _, below, where = operation.rows[0]
        return engine.delete((pc.field("month") == where) & (pc.field("v") < below), tag=tag)
    if kind == "overwrite":
        return engine.overwrite_partitions(table, tag=tag)

    def transfer(tx: Transaction) -> Committed:
        keys = [row[0] for row in operation.rows]
        seen = engine.read_in(tx, (pc.field("month") == "accounts") & pc.field("id").isin(keys)).to_pylist()
        change = {key: amount for key, amount, _ in operation.rows}
        moved = [{**row, "v": row["v"] + change[row["id"]]} for row in seen]
        return engine.upsert_in(tx, pa.Table.from_pylist(moved, schema=SCHEMA))

    return engine.run(transfer, tag=tag)


def replay(model: Model, operation: Operation) -> None:
    """Do it to the model."""
    if operation.kind == "purge":
        _, below, where = operation.rows[0]
        for key in [k for k, v in model.items() if k[0] == where and v < below]:
            del model[key]
        return
    if operation.kind == "overwrite":
        where = {row[2] for row in operation.rows}
        for key in [k for k in model if k[0] in where]:
            del model[key]
    for key, value, where in operation.rows:
        if operation.kind == "delete":
            model.pop((where, key), None)
        elif operation.kind == "transfer":
            model[where, key] += value
        elif operation.kind == "insert" and (where, key) in model:
            raise AssertionError(f"{operation.tag} was inserted twice")
        else:
            model[where, key] = value
