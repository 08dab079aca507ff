"""Java Hudi and lakelock write one table at the same time under one lock: nothing that was acknowledged is lost.

Everybody rewrites one hot file group, with a counter of its own in it, and adds rows to a partition that only it writes. The
lakelock writers also count up one common counter, each by reading it and writing it in one transaction. Whoever loses says
why, and tries again.

The partitions hold a row before it begins: what a Java writer puts into an empty one may go with the folder, which another
Java writer's cleaner removes (HUDI-7969).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from lakelock.occ.overlaps import audit
from tests.interop.conftest import FULL
from tests.interop.lakelock_writer import COUNTER
from tests.interop.processes import Writer
from tests.interop.shared import Row, Shared
from tests.interop.witness import JavaError

Share = Callable[..., Shared]

FEW, MANY = (2, 3, 6), (4, 50, 50)
"""Writers of each side, commits of each Java writer, commits of each lakelock writer."""

WITHIN_S = 7200 if FULL else 300
ATTEMPTS = 400
PAUSE_S = 0.5
"""Between two commits of a lakelock writer: it takes a tenth of the time that Java's takes, and Java would never win."""

LOST = {"HoodieWriteConflictException", "HoodieEarlyConflictDetectionException"}
"""How Java says that it has lost, and has to try again."""


@dataclass
class JavaWriter:
    """One of several writers in the JVM, in a thread of its own here.

    One of them `cleans`: of two that do, one fails with `HoodieIOException: Failed to create file ..clean.inflight`.
    """

    table: Shared
    name: str
    commits: int
    cleans: bool
    lost: list[JavaError] = field(default_factory=list)
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
                rows = (self.name, number, "eu"), (f"{self.name}-{number}", number, self.name)
                return self.table.java_write("upsert", *rows, **{"hoodie.clean.automatic": str(self.cleans).lower()})
            except JavaError as error:
                if not LOST.intersection(error.classes):
                    raise
                self.lost.append(error)
        raise AssertionError(f"{self.name} lost {ATTEMPTS} times in a row")


@pytest.mark.timeout(WITHIN_S)
@pytest.mark.parametrize(
    "lock",
    [
        "zookeeper",
        "hive_metastore",
        pytest.param("dynamodb", marks=pytest.mark.skipif(not FULL, reason="two minutes more: make interop FULL=1")),
    ],
)
def test_java_and_lakelock_at_once_under_one_lock_lose_no_update_and_every_loser_can_say_why(share: Share, lock: str) -> None:
    each, java_commits, commits = MANY if FULL else FEW
    table = share(lock=lock)
    javas = [JavaWriter(table, f"java{n}", java_commits, n == 0) for n in range(each)]
    ours = [f"lake{n}" for n in range(each)]
    names = [*(java.name for java in javas), *ours]
    start: list[Row] = [(COUNTER, 0, "eu"), *((name, 0, "eu") for name in names), *((f"{name}-0", 0, name) for name in names)]
    table.java_write("insert", *start)
    table.put(*start)

    options = {"retry.attempts": ATTEMPTS}
    orders = [{"counts": commits, "name": name, "pause_s": PAUSE_S, "options": options} for name in ours]
    threads = [java.start() for java in javas]
    told = [writer.end(WITHIN_S) for writer in [Writer(table, order) for order in orders]]
    for thread in threads:
        thread.join()
    assert [error for java in javas for error in java.failed] == []

    table.put((COUNTER, each * commits, "eu"))
    for name, count in [*((java.name, java_commits) for java in javas), *((name, commits) for name in ours)]:
        table.put((name, count, "eu"), *((f"{name}-{n}", n, name) for n in range(1, count + 1)))
    table.agree()
    for one in told:
        assert "error" not in one and one["alerts"] == [], one
        assert all("mine:" in text and "other:" in text and "rule " in text for text in one["conflicts"])
    for error in (error for java in javas for error in java.lost):
        assert "overlapping writes" in str(error), error
    assert audit(table.coordinator().table, 1000)[1] == []
    print("lost by Java:", [len(java.lost) for java in javas], "by lakelock:", [len(one["conflicts"]) for one in told])
