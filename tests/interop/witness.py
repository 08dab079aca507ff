"""Java Hudi as the tests see it: commands go to one JVM, answers come back; rows travel as Parquet files."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.servers.fetched.java_hudi import JavaHudi
from tests.servers.jvm import ALL_SHORT_LIVED

PROGRAM = Path(__file__).with_name("java_session.py")
START_WITHIN_S = 180.0
ANSWER_WITHIN_S = 1800.0
"""Long enough for one Java writer to roll back hundreds of failed ones; tests have time-outs of their own."""


class JavaError(Exception):
    """A command that failed in Java: `causes` are class and message, outermost first."""

    def __init__(self, causes: list[list[str]]) -> None:
        super().__init__("\n".join(f"{name}: {message}" for name, message in causes))
        self.causes = causes

    @property
    def classes(self) -> list[str]:
        return [name for name, _ in self.causes]


@dataclass
class Pending:
    """A command that was sent; `result` waits for its answer."""

    answer: queue.Queue[dict[str, Any]] = field(default_factory=queue.Queue)

    def result(self, within_s: float = ANSWER_WITHIN_S) -> dict[str, Any]:
        found = self.answer.get(timeout=within_s)
        if "error" in found:
            raise JavaError(found["error"])
        return found

    def is_done(self) -> bool:
        return not self.answer.empty()


class Witness:
    """One JVM with Java Hudi. Commands may be sent while others run."""

    def __init__(self, hudi: JavaHudi, folder: Path) -> None:
        self._folder, self._numbers, self._waiting = folder, count(1), {}  # type: ignore[var-annotated]
        self._log = (folder / "java.log").open("wb")
        command = hudi.command(PROGRAM)
        away = {"PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME", "PYTHONPATH"}
        environment = {name: value for name, value in os.environ.items() if name not in away}
        environment |= {"PYSPARK_PYTHON": str(hudi.python), "PYSPARK_DRIVER_PYTHON": str(hudi.python), **ALL_SHORT_LIVED}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, env=environment, cwd=folder
        )
        self._ready: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        try:
            found = self._ready.get(timeout=START_WITHIN_S)
        except queue.Empty:
            found = {}
        if "pid" not in found:
            self.close()
            raise AssertionError(f"Java did not start: {(folder / 'java.log').read_text(errors='replace')[-3000:]}")
        self.jvm_pid: int = found["pid"]

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            found = json.loads(line)
            if "ready" in found:
                self._ready.put(found)
            else:
                self._waiting.pop(found["number"]).answer.put(found)
        self._ready.put({})
        for pending in self._waiting.values():
            pending.answer.put({"error": [["Gone", "the JVM has ended"]]})

    def send(self, do: str, **what: object) -> Pending:
        number, pending = next(self._numbers), Pending()
        self._waiting[number] = pending
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"number": number, "do": do, **what}) + "\n")
        self.process.stdin.flush()
        return pending

    def begin_write(self, path: str, rows: pa.Table, options: Mapping[str, str], **more: object) -> Pending:
        """Start a write; `gate` names a file without which it stands still."""
        file = self._folder / f"rows-{next(self._numbers)}.parquet"
        pq.write_table(rows, file)
        return self.send("write", path=path, rows=str(file), options=dict(options), **more)

    def write(self, path: str, rows: pa.Table, options: Mapping[str, str], **more: object) -> None:
        self.begin_write(path, rows, options, **more).result()

    def write_query(self, path: str, query: str, options: Mapping[str, str]) -> None:
        """Write the rows of a SQL query, with columns that are not null where Spark says so."""
        self.send("write", path=path, query=query, options=dict(options)).result()

    def copy(self, table: str, path: str, options: Mapping[str, str]) -> None:
        """Write the rows of one Hudi table into another."""
        self.send("write", path=path, table=table, options=dict(options)).result()

    def read(self, path: str = "", **what: object) -> pa.Table:
        """The rows without Hudi's own columns: of the table at `path`, or of a SQL `query`."""
        folder = self._folder / f"read-{next(self._numbers)}"
        self.send("read", path=path, to=str(folder), **what).result()
        return pq.read_table(folder)

    def matches(self, path: str, key: str, conditions: Sequence[str], *, skipping: bool) -> dict[str, list[str]]:
        """The keys of the rows that satisfy each condition, with data skipping by the metadata table or without."""
        found = self.send("matches", path=path, key=key, conditions=list(conditions), skipping=skipping).result()["found"]
        return dict(zip(conditions, found, strict=True))

    def sql(self, text: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.send("sql", text=text).result()["rows"]
        return rows

    def listing(self, path: str) -> dict[str, int]:
        """The files of the table and their lengths, by Hudi's metadata table."""
        files: dict[str, int] = self.send("listing", path=path).result()["files"]
        return files

    def close(self) -> None:
        if self.process.stdin is not None and self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()
        self._log.close()


@contextmanager
def witness(hudi: JavaHudi, folder: Path) -> Iterator[Witness]:
    """A JVM for the block."""
    found = Witness(hudi, folder)
    try:
        yield found
    finally:
        found.close()
