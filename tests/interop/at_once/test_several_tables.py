"""A transaction over several tables where Java Hudi writes one of them: refused, and a torn end is told where it is allowed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.api import ArrowEngine
from tests.interop.lakelock_writer import write_together
from tests.interop.processes import Writer, ending
from tests.interop.shared import Shared

from lakelock.errors import TableError

NEW = ("n", 5, "sa")


@pytest.fixture
def tables(share: Callable[..., Shared]) -> tuple[Shared, Shared]:
    """The second one is written by Java, too. The first one's name sorts before: it is published first."""
    first, second = share(), share()
    for table in (first, second):
        table.engine().insert(table.rows(("a", 1, "eu")))
        table.put(("a", 1, "eu"))
    second.java_write("upsert", ("b", 2, "us"))
    second.put(("b", 2, "us"))
    assert first.path < second.path
    return first, second


def test_a_table_that_java_writes_is_refused_unless_that_is_allowed(tables: tuple[Shared, Shared]) -> None:
    with pytest.raises(TableError, match="is written by another Hudi engine, too"):
        write_together([table.engine() for table in tables], tables[0].rows(NEW))
    for table in tables:
        table.agree()
        assert table.pending() == []
    allowed = {"transaction.allow_foreign": "true"}
    write_together([ArrowEngine(table.coordinator(**allowed)) for table in tables], tables[0].rows(NEW))
    for table in tables:
        table.put(NEW)
        table.agree()


@pytest.mark.in_ci
def test_a_part_that_java_rolls_back_after_the_commit_is_an_alert_and_never_told_as_committed(
    tables: tuple[Shared, Shared],
) -> None:
    first, second = tables
    order = {
        "rows": [list(NEW)],
        "others": [{"table": second.path, "file": str(second.hudi_file)}],
        "options": {"transaction.allow_foreign": "true"},
    }
    with ending([Writer(first, order, LAKELOCK_STOP_AT="published")]) as (writer,):
        writer.until_stopped()
        (void,) = second.pending()
        assert first.pending() == []
        second.age(void)
        second.java_write("upsert", ("c", 3, "ap"))  # once the paused writer's session on the lock service has ended
        second.put(("c", 3, "ap"))
        assert [name for name in second.traces(void) if name.endswith(".parquet")] == []
        told = writer.go_on()
    assert told["error"] == "TransactionTorn"
    assert told["details"]["committed"] == [first.storage.uri] and told["details"]["void"] == [second.storage.uri]
    assert len(told["alerts"]) == 1 and "void in" in told["alerts"][0]
    first.put(NEW)
    for table in tables:
        table.agree()
        table.engine(**{"transaction.allow_foreign": "true"}).upsert(table.rows(("d", 4, "eu")))
        table.put(("d", 4, "eu"))
        table.agree()
    assert void not in [entry.instant for entry in second.coordinator().history()]
