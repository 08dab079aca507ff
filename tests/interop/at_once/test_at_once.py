"""Java Hudi and lakelock write one table at the same time under one lock: nothing that was acknowledged is lost.

Almost everybody rewrites one hot file group, with a counter of its own in it, and adds rows to a partition that only it
writes. The lakelock writers also count up one common counter, each by reading it and writing it in one transaction. Whoever
loses says why, and tries again. The last writer of each side stays in its own partition, and never loses.

The partitions hold a row before it begins: what a Java writer puts into an empty one may go with the folder, which another
Java writer's cleaner removes (HUDI-7969).
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from tests.interop.conftest import FULL
from tests.interop.lakelock_writer import COUNTER
from tests.interop.processes import Writer, ending
from tests.interop.shared import LOGGED, Layout, Row, Shared
from tests.interop.witness import JavaError
from tests.sizes import long

from lakelock.occ.foreign import audit

Share = Callable[..., Shared]

FEW, MANY = (2, 2, 3), (4, 50, 50)
"""Writers of each side, commits of each Java writer, commits of each lakelock writer."""

WITHIN_S = 7200 if FULL else 300
ATTEMPTS = 400
PAUSE_S = 0.5
"""Between two commits of a lakelock writer: it takes a tenth of the time that Java's takes, and Java would never win."""

APPENDS = {"hoodie.compact.inline": "false"}
"""Of two Java writers that compact, one fails; and what lakelock rewrites meanwhile is rejected, which no retry helps."""
LOST = {"HoodieWriteConflictException", "HoodieEarlyConflictDetectionException"}
"""How Java says that it has lost, and has to try again."""


@dataclass
class JavaWriter:
    """One of several writers in the JVM, in a thread of its own here; its counter is in the partition `home`.

    One of them `cleans`: of two that do, one fails with `HoodieIOException: Failed to create file ..clean.inflight`.
    """

    table: Shared
    name: str
    home: str
    commits: int
    cleans: bool
    lost: list[JavaError] = field(default_factory=list)
    late: list[JavaError] = field(default_factory=list)
    """Where lakelock had taken the same millisecond for its instant: Java writes nothing then, and fails."""
    failed: list[BaseException] = field(default_factory=list)

    def start(self) -> threading.Thread:
        thread = threading.Thread(target=self._run)
        thread.start()
        return thread

    def _run(self) -> None:
        try:
            for number in range(1, self.commits + 1):
                self._count(number)
        except BaseException as error:  # noqa: BLE001 raised again by the test
            self.failed.append(error)

    def _count(self, number: int) -> None:
        for _ in range(ATTEMPTS):
            try:
                rows = (self.name, number, self.home), (f"{self.name}-{number}", number, self.name)
                return self.table.java_write("upsert", *rows, **{**APPENDS, "hoodie.clean.automatic": str(self.cleans).lower()})
            except JavaError as error:
                taken = "FileAlreadyExistsException" in str(error) and str(error).rstrip().endswith(".requested")
                if not taken and not LOST.intersection(error.classes):
                    raise
                (self.late if taken else self.lost).append(error)
        raise AssertionError(f"{self.name} lost {ATTEMPTS} times in a row")


JDK = pytest.mark.skipif(shutil.which("javac") is None, reason="needs a JDK: apt-get install -y openjdk-17-jdk-headless")


@pytest.mark.timeout(WITHIN_S)
@pytest.mark.parametrize(
    "lock", ["zookeeper", *long("hive_metastore"), pytest.param("dynamodb", marks=[JDK, pytest.mark.long])]
)
def test_java_and_lakelock_at_once_under_one_lock_lose_no_update_and_every_loser_can_say_why(share: Share, lock: str) -> None:
    write_at_once(share(lock=lock))


@pytest.mark.in_ci
@pytest.mark.sampled(promise=LOGGED)
@pytest.mark.timeout(WITHIN_S)
def test_so_they_do_where_both_append_log_files(share: Share) -> None:
    write_at_once(share(Layout("mor", table_type="MERGE_ON_READ")))


def write_at_once(table: Shared) -> None:
    """Have writers of both sides at work, and check that each acknowledged row is there, and that every loser says why."""
    each, java_commits, commits = MANY if FULL else FEW
    homes = {f"{side}{n}": "eu" if n < each - 1 else f"{side}{n}" for side in ("java", "lake") for n in range(each)}
    ours = [name for name in homes if name.startswith("lake")]
    javas = [JavaWriter(table, name, homes[name], java_commits, name == "java0") for name in homes if name not in ours]
    start: list[Row] = [(COUNTER, 0, "eu")]
    for name, home in homes.items():
        start += [(name, 0, home), (f"{name}-0", 0, name)]
    table.java_write("insert", *start)
    table.put(*start)

    options = {"retry.attempts": ATTEMPTS}
    orders = [{"counts": commits, "name": name, "home": homes[name], "pause_s": PAUSE_S, "options": options} for name in ours]
    threads = [java.start() for java in javas]
    with ending([Writer(table, order) for order in orders]) as writers:
        for thread in threads:
            thread.join()
        assert [error for java in javas for error in java.failed] == []
        # What a loser of Java left is in lakelock's way for ten minutes, unless a Java writer comes after it that cleans.
        table.java_write("upsert", ("java0-end", 0, "java0"))
        table.put(("java0-end", 0, "java0"))
        told = [writer.end(WITHIN_S) for writer in writers]
    for one in told:
        assert "error" not in one and one["alerts"] == [], one

    table.put((COUNTER, (each - 1) * commits, "eu"))
    for name, home in homes.items():
        count = commits if name in ours else java_commits
        table.put((name, count, home), *((f"{name}-{n}", n, name) for n in range(1, count + 1)))
    table.agree()
    for one in told:
        assert all("mine:" in text and "other:" in text and "rule " in text for text in one["conflicts"])
    for error in (error for java in javas for error in java.lost):
        assert "overlapping writes" in str(error), error
    assert told[-1]["conflicts"] == [] and javas[-1].lost == [], (
        "a writer that touches no file group of another loses to nobody"
    )
    assert sum(len(java.late) for java in javas) <= 2
    assert audit(table.coordinator().table, 1000).overlaps == []
    print("lost by Java:", [len(java.lost) for java in javas], "by lakelock:", [len(one["conflicts"]) for one in told])
