"""Writers of mixed load, killed and paused now and then: `python -m tests.faults.soak.run --minutes 30 --writers 8`.

Afterwards the table must have the rows of the serial replay in decision order, nothing may be left over, and what every
writer was told must be true. Memory and open files of each writer that lived long enough must be flat. Prints one summary
line last.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.api import ArrowEngine, DataFile, LocalStorage, layout
from tests.behaviour.tables import leftovers, new_table
from tests.faults.soak.load import Model, Operation, first_rows, replay
from tests.faults.soak.usage import Usage, growth
from tests.faults.worker import open_engine, rows

from lakelock.occ.rejections import MOST_RECORDS

HEARTBEAT_LIMIT_S = 8.0
OPTIONS: dict[str, object] = {
    "heartbeat.interval_s": HEARTBEAT_LIMIT_S / 2, "heartbeat.tolerable_misses": 2, "lock.lease_s": 5, "lock.renew_s": 1,
    "lock.poll_s": 0.05, "retry.attempts": 30, "retry.first_wait_s": 0.05, "retry.longest_wait_s": 1,
    "retry.holder_wait_s": 30, "decisions.collect_above": 32,
    "clean.policy": "KEEP_LATEST_COMMITS", "clean.keep_commits": 5, "clean.readers_s": 5,
    "archive.min_commits": 10, "archive.max_commits": 15, "archive.min_age_s": 30,
}  # fmt: skip
OLD_S, MOST_OLD = 60, 300
"""Objects under `.hoodie` that are so old after upkeep, however long the soak was: younger ones may have to stay. Records of
rejections have a bound of their own."""
END_WAIT_S = 180


@dataclass
class Writer:
    """One process; `ended` when it was killed on purpose."""

    name: str
    process: subprocess.Popen[bytes]
    usage: list[Usage] = field(default_factory=list)


@dataclass
class Soak:
    """One run on one new table under `folder`."""

    folder: Path
    seconds: float
    writers: int
    quiet: bool = False
    told: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def run(self) -> str:
        """Run it; the summary, whose problems are in `problems`."""
        self.path = str(self.folder / "table")
        new_table(LocalStorage(self.path))
        self._engine().insert(rows([list(row) for row in first_rows()]))
        self.began_s = time.monotonic()
        running = [self._start(number, 0) for number in range(self.writers)]
        retired = self._disturb(running)
        for writer in running:
            try:
                if writer.process.wait(END_WAIT_S) != 0:
                    self.problems.append(f"writer {writer.name} ended with status {writer.process.returncode}")
            except subprocess.TimeoutExpired:
                self.problems.append(f"writer {writer.name} did not end within {END_WAIT_S} s")
                writer.process.kill()
                writer.process.wait()
        time.sleep(HEARTBEAT_LIMIT_S + 2)
        return self._judge([*running, *retired])

    def _engine(self) -> ArrowEngine:
        return open_engine(self.path, OPTIONS, "soak")

    def _left_s(self) -> float:
        return self.began_s + self.seconds - time.monotonic()

    def _start(self, number: int, life: int) -> Writer:
        name = f"w{number}.{life}"
        journal = str(self.folder / f"{name}.journal")
        left = str(max(0.0, self._left_s()))
        command = [sys.executable, "-m", "tests.faults.soak.writer", self.path, journal, name, left, json.dumps(OPTIONS)]
        return Writer(name, subprocess.Popen(command))

    def _disturb(self, running: list[Writer]) -> list[Writer]:
        """Until time is up: kill and pause the writers of the upper half by turns, and measure all."""
        choose, retired = random.Random(self.writers), []
        pause_s = max(3.0, min(15.0, self.seconds / 12))
        mortal = list(range((self.writers + 1) // 2, self.writers))
        next_progress_s = 30.0
        asleep: tuple[Writer, float] | None = None
        next_s = pause_s
        while self._left_s() > 0:
            time.sleep(min(1.0, max(0.05, self._left_s())))
            passed_s = self.seconds - self._left_s()
            for writer in running:
                if writer.process.poll() is None:
                    writer.usage.append(Usage.of(writer.process.pid))
            if asleep is not None and passed_s >= asleep[1]:
                asleep[0].process.send_signal(signal.SIGCONT)
                asleep = None
            if mortal and passed_s >= next_s and self._left_s() > pause_s:
                next_s = passed_s + pause_s
                number = choose.choice(mortal)
                if asleep is None and choose.random() < 0.3:
                    running[number].process.send_signal(signal.SIGSTOP)
                    asleep = running[number], passed_s + HEARTBEAT_LIMIT_S + 4
                    self.told["paused"] += 1
                elif asleep is None or asleep[0] is not running[number]:
                    running[number].process.kill()
                    running[number].process.wait()
                    self.told["killed"] += 1
                    retired.append(running[number])
                    running[number] = self._start(number, len(retired))
            if not self.quiet and passed_s >= next_progress_s:
                next_progress_s += 30
                print(f"soak: {passed_s:.0f} of {self.seconds:.0f} s", file=sys.stderr, flush=True)
        if asleep is not None:
            asleep[0].process.send_signal(signal.SIGCONT)
        return retired

    def _judge(self, writers: list[Writer]) -> str:
        engine = self._engine()
        engine.coordinator.reap()
        objects = self._kept_up(engine)
        done, outcomes = self._journals()
        model: Model = {(where, key): value for key, value, where in first_rows()}
        commits = sorted(engine.coordinator.history(limit=1_000_000), key=lambda entry: entry.decision or 0)
        # A group commit has the tags of its members.
        tags = [tag for entry in commits for tag in ([member.tag for member in entry.members] or [entry.tag]) if tag]
        for tag in tags:
            replay(model, done[tag])
        table = engine.read()
        found = {(row["month"], row["id"]): row["v"] for row in table.to_pylist()}
        if len(found) != table.num_rows or found != model:
            wrong = sorted({k for k in found.keys() | model.keys() if found.get(k) != model.get(k)})[:5]
            self.problems.append(f"rows differ from the serial replay, first at {wrong}")
        for tag, times in Counter(tags).items():
            if times > 1:
                self.problems.append(f"{tag} is committed {times} times")
        there = set(tags)
        for tag, (outcome, message) in outcomes.items():
            self.told[outcome] += 1
            if outcome != "unknown" and (outcome == "committed") != (tag in there):
                self.problems.append(f"{tag} was told {outcome} ({message}), which is not true")
        left = leftovers(LocalStorage(self.path))
        if left:
            self.problems.append(f"left over: {left[:5]}")
        most_mb, most_files, grown = growth([writer.usage for writer in writers])
        self.problems += grown
        told, same = self.told, "compared with" if self.problems else "equal to"
        return (
            f"soak: {self.seconds:.0f} s, {self.writers} writers, {len(tags)} commits, {told['rejected']} rejected, "
            f"{told['unknown']} unknown, {told['killed']} killed, {told['paused']} paused; {table.num_rows} rows {same} the "
            f"serial replay in decision order, {objects}, {len(left)} leftovers, "
            f"{most_mb:.0f} MB and {most_files} open files at most; "
            f"{'; '.join(self.problems) or 'all flat, all true'}"
        )

    def _kept_up(self, engine: ArrowEngine) -> str:
        """Run upkeep once more; how many objects there are, which must be what is live and retained."""
        time.sleep(float(str(OPTIONS["clean.readers_s"])))
        for problem in engine.coordinator.upkeep().problems:
            self.problems.append(f"upkeep: {problem}")
        storage, coordinator = LocalStorage(self.path), engine.coordinator
        files = {file.key for item in storage.list("") if (file := DataFile.parse(item.key)) is not None}
        since_ms = (time.time() - OLD_S) * 1000
        metadata = list(storage.list(".hoodie"))
        rejections = sum(item.key.startswith(f"{layout.REJECTIONS}/") for item in metadata)
        old = sum(item.modified_ms < since_ms for item in metadata if not item.key.startswith(f"{layout.REJECTIONS}/"))
        kept = coordinator.table.timeline().commits[-1 - int(str(OPTIONS["clean.keep_commits"])) :]
        needed = {file.key for commit in kept for file in coordinator.snapshot(commit.requested).files}
        if not files <= needed:
            self.problems.append(
                f"{len(files - needed)} data files are neither live nor retained, such as {min(files - needed)}"
            )
        if old > MOST_OLD:
            self.problems.append(f"{old} old objects under .hoodie")
        if rejections > MOST_RECORDS:
            self.problems.append(f"{rejections} records of rejections")
        return (
            f"{len(files)} data files, {len(coordinator.snapshot().files)} of them live, {rejections} records of rejections "
            f"and {len(metadata) - rejections} other objects, {old} of them old"
        )

    def _journals(self) -> tuple[dict[str, Operation], dict[str, tuple[str, str]]]:
        done: dict[str, Operation] = {}
        outcomes: dict[str, tuple[str, str]] = {}
        for journal in self.folder.glob("*.journal"):
            for line in journal.read_text("utf-8").splitlines():
                entry = json.loads(line)
                if "outcome" in entry:
                    outcomes[entry["tag"]] = entry["outcome"], entry["message"]
                else:
                    done[entry["tag"]] = Operation(entry["tag"], entry["kind"], tuple(map(tuple, entry["rows"])))
        return done, outcomes


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--minutes", type=float, default=30)
    arguments.add_argument("--writers", type=int, default=8)
    arguments.add_argument("--keep", help="a new folder for table and journals, which stays")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(Path(given.keep or folder), given.minutes * 60, given.writers)
        soak.folder.mkdir(exist_ok=True)
        print(soak.run(), flush=True)
    sys.exit(1 if soak.problems else 0)


if __name__ == "__main__":
    main()
