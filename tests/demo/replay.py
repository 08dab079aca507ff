"""The serial replay: the committed operations one after another, in DuckDB, from the plan's own description of them.

A table written by many at once must equal it. It uses nothing of lakelock except the demo's plan; the order comes from the
table's commit files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from tests.demo.commits import SERVICES, TableCommit
from tests.demo.flights import KEY, ORDERING, SCHEMA, DemoError
from tests.demo.plan import STREAM, Operation, Plan

REPLAY = "replay"
_SAME_KEY = " AND ".join(f"t.{name} = s.{name}" for name in KEY)
_COLUMNS = ", ".join(SCHEMA.names)


@dataclass(frozen=True)
class Applied:
    """One committed operation with its rows; `batch` is set for those of the stream."""

    commit: TableCommit
    operation: Operation
    inputs: tuple[str, ...]

    @property
    def name(self) -> str:
        batch = self.commit.batch
        return self.operation.writer if batch is None else f"{self.operation.writer} batch {batch[1]}"


def committed_operations(
    commits: Sequence[TableCommit], plan: Plan, pids: Mapping[int, str], batches: Mapping[int, Sequence[str]]
) -> list[Applied]:
    """Which operation each commit carries out, in decision order.

    `pids` names the writer of each process, `batches` the input files of each micro-batch. A commit that was made
    twice, or by a writer that is not in the plan, is an error.
    """
    applied = []
    for commit in commits:
        if commit.operation in SERVICES:
            continue
        writer = pids.get(commit.pid)
        if writer is None:
            raise DemoError(f"commit {commit.instant} was made by process {commit.pid}, which is not one of the demo's writers")
        operation = plan.operations[writer]
        if writer != STREAM:
            inputs = operation.inputs
        elif commit.batch is None or commit.batch[1] not in batches:
            raise DemoError(f"commit {commit.instant} of the stream belongs to no micro-batch in its checkpoint")
        else:
            inputs = tuple(batches[commit.batch[1]])
        applied.append(Applied(commit, operation, inputs))
    names = [a.name for a in applied]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DemoError(f"committed more than once: {', '.join(twice)}")
    return applied


def stream_batches(checkpoint: Path, plan: Plan) -> dict[int, list[str]]:
    """The chunks of each micro-batch, as Spark's file source recorded them before it ran the batch."""
    chunks = {Path(path).name: path for path in plan.chunks}
    batches: dict[int, set[str]] = {}
    for log in (checkpoint / "sources" / "0").iterdir():
        if log.name.startswith(".") or not log.name.removesuffix(".compact").isdigit():
            continue
        for line in log.read_text().splitlines()[1:]:
            entry = json.loads(line)
            batches.setdefault(int(entry["batchId"]), set()).add(chunks[Path(entry["path"]).name])
    return {number: sorted(files) for number, files in sorted(batches.items())}


def replay(connection: duckdb.DuckDBPyConnection, applied: Iterable[Applied], work: Path, *, newer_stays: bool = True) -> int:
    """Make the table `replay` by running the operations one after another; how many rows it has in the end.

    `newer_stays`: an upsert replaces no row that is newer by the ordering column.
    """
    empty = SCHEMA.empty_table()
    connection.register("empty_flights", empty)
    connection.execute(f"CREATE OR REPLACE TABLE {REPLAY} AS SELECT * FROM empty_flights")
    for one in applied:
        for statement in _statements(one, work, newer_stays):
            connection.execute(statement)
    return int(connection.execute(f"SELECT count(*) FROM {REPLAY}").fetchall()[0][0])


def _statements(one: Applied, work: Path, newer_stays: bool) -> list[str]:
    if one.operation.kind == "delete":
        return [f"DELETE FROM {REPLAY} WHERE {one.operation.condition}"]
    files = ", ".join(f"'{work / path}'" for path in one.inputs)
    source = f"(SELECT {_COLUMNS} FROM read_parquet([{files}]))"
    if one.operation.kind == "insert":
        return [f"INSERT INTO {REPLAY} SELECT {_COLUMNS} FROM {source}"]
    # An upsert replaces a row unless the stored one is newer, and adds the rows whose key is new.
    replaced = f"{_SAME_KEY} AND s.{ORDERING} >= t.{ORDERING}" if newer_stays else _SAME_KEY
    return [
        f"DELETE FROM {REPLAY} t USING {source} s WHERE {replaced}",
        f"INSERT INTO {REPLAY} SELECT {_COLUMNS} FROM {source} s WHERE NOT EXISTS (SELECT 1 FROM {REPLAY} t WHERE {_SAME_KEY})",
    ]
