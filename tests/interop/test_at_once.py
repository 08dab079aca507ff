"""Java Hudi and lakelock write one table at the same time under one lock: nothing that was acknowledged is lost.

Everybody rewrites one hot file group, with a counter of its own in it, and adds rows to file groups that only it writes. The
lakelock writers also count up one common counter, each by reading it and writing it in one transaction.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from lakelock.occ.overlaps import audit
from lakelock.testing.servers.service import Service
from tests.interop.conftest import FULL
from tests.interop.lakelock_writer import COUNTER
from tests.interop.processes import Writer
from tests.interop.shared import Row, Shared, metastore_lock
from tests.interop.witness import JavaError

Share = Callable[..., Shared]

FEW, MANY = (2, 4, 8), (4, 25, 25)
"""Writers of each side, commits of each Java writer, commits of each lakelock writer."""

WITHIN_S = 7200 if FULL else 300
ATTEMPTS = 200
LOST = {"HoodieWriteConflictException", "HoodieEarlyConflictDetectionException", "HoodieRollbackException"}
"""How Java says that it has to try again. The last: somebody else has rolled back the dead writer that it was rolling back."""


@pytest.mark.skipif(not FULL, reason="not steady yet, see docs/howto-tables-of-java-hudi.md: make interop FULL=1")
@pytest.mark.timeout(WITHIN_S)
def test_java_and_lakelock_at_once_under_a_lock_in_zookeeper_lose_no_update_and_every_loser_can_say_why(share: Share) -> None:
    all_at_once(share(), *(MANY if FULL else FEW))


@pytest.mark.skipif(not FULL, reason="the same with another lock: make interop FULL=1")
def test_java_and_lakelock_at_once_under_a_lock_in_the_hive_metastore_lose_no_update(share: Share, metastore: Service) -> None:
    table = share(create=False)
    table.lock = metastore_lock(metastore, table.name)
    all_at_once(table.create(), *FEW)


def all_at_once(table: Shared, each: int, java_commits: int, commits: int) -> None:
    javas, ours = [f"java{n}" for n in range(each)], [f"lake{n}" for n in range(each)]
    start: list[Row] = [(COUNTER, 0, "eu"), *((name, 0, "eu") for name in (*javas, *ours))]
    table.engine().insert(table.rows(*start))

    losses: dict[str, list[list[str]]] = {name: [] for name in javas}
    failed: list[BaseException] = []
    threads = [threading.Thread(target=java_counts, args=(table, name, java_commits, losses[name], failed)) for name in javas]
    writers = [Writer(table, {"counts": commits, "name": name, "options": {"retry.attempts": ATTEMPTS}}) for name in ours]
    for thread in threads:
        thread.start()
    told = [writer.end(WITHIN_S) for writer in writers]
    for thread in threads:
        thread.join()
    assert not failed, failed

    table.put((COUNTER, each * commits, "eu"))
    table.put(*((name, java_commits, "eu") for name in javas), *((name, commits, "eu") for name in ours))
    table.put(*((f"{name}-{n}", n, name) for name in javas for n in range(1, java_commits + 1)))
    table.put(*((f"{name}-{n}", n, name) for name in ours for n in range(1, commits + 1)))
    table.agree()
    for one in told:
        assert "error" not in one and one["alerts"] == [], one
        assert all("mine:" in text and "other:" in text and "rule " in text for text in one["conflicts"])
    for classes in (classes for lost in losses.values() for classes in lost):
        assert LOST.intersection(classes), classes
    assert audit(table.coordinator().table, 1000)[1] == []
    print("lost by Java:", {name: len(lost) for name, lost in losses.items()})
    print("lost by lakelock:", [len(one["conflicts"]) for one in told])


def java_counts(table: Shared, name: str, commits: int, lost: list[list[str]], failed: list[BaseException]) -> None:
    """Count to the end, and try again after each conflict."""
    try:
        for number in range(1, commits + 1):
            for _ in range(ATTEMPTS):
                try:
                    table.java_write("upsert", (name, number, "eu"), (f"{name}-{number}", number, name))
                    break
                except JavaError as error:
                    if not LOST.intersection(error.classes):
                        raise
                    lost.append(error.classes)
            else:
                raise AssertionError(f"{name} lost {ATTEMPTS} times in a row")
    except BaseException as error:  # noqa: BLE001 raised again by the test
        failed.append(error)
