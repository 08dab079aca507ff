"""Java Hudi and lakelock write one table in turns: after every step they, and hudi-rs, see the same rows."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow.compute as pc
import pytest
from tests.interop.conftest import FULL
from tests.interop.shared import HIVE_STYLE, Layout, Shared
from tests.sizes import in_ci

Share = Callable[..., Shared]

PLAIN = Layout("plain", hive_style=False)
UNPARTITIONED = Layout("unpartitioned", partitions=())
COMPOSITE = Layout("composite", keys=("id", "region"), partitions=("region", "id"))
ORDERED = Layout("ordered", ordering="v")


@pytest.mark.in_ci
def test_every_kind_of_java_write_between_writes_of_lakelock(share: Share) -> None:
    table = share()
    engine = table.engine()
    engine.insert(table.rows(("a", 1, "eu"), ("b", 2, "eu"), ("c", 3, "us")))
    table.put(("a", 1, "eu"), ("b", 2, "eu"), ("c", 3, "us"))
    table.agree()

    table.java_write("insert", ("d", 4, "eu"), ("e", 5, "ap"))
    table.put(("d", 4, "eu"), ("e", 5, "ap"))
    table.agree()
    engine.upsert(table.rows(("d", 40, "eu"), ("a", 10, "eu"), ("f", 6, "ap")))
    table.put(("d", 40, "eu"), ("a", 10, "eu"), ("f", 6, "ap"))
    table.agree()

    table.java_write("upsert", ("a", 11, "eu"), ("g", 7, "us"))
    table.put(("a", 11, "eu"), ("g", 7, "us"))
    table.agree()
    engine.delete(pc.field("id") == "b")
    table.drop(("eu", "b"))
    table.agree()

    table.java_write("upsert", ("d", 41, "eu"), ("f", 60, "ap"), ("h", 8, "eu"), hoodie__index__type="BLOOM")
    table.put(("d", 41, "eu"), ("f", 60, "ap"), ("h", 8, "eu"))
    table.agree()

    table.java_write("delete", ("c", 0, "us"), ("f", 0, "ap"))
    table.drop(("us", "c"), ("ap", "f"))
    table.agree()
    engine.overwrite_partitions(table.rows(("o", 9, "ap")))
    table.replace_partition(("ap",), ("o", 9, "ap"))
    table.agree()

    table.java_write("insert_overwrite", ("p", 10, "us"))
    table.replace_partition(("us",), ("p", 10, "us"))
    table.agree()
    engine.upsert(table.rows(("p", 11, "us"), ("q", 12, "us")))
    table.put(("p", 11, "us"), ("q", 12, "us"))
    table.agree()

    table.java_write("delete_partition", ("p", 0, "us"), hoodie__datasource__write__partitions__to__delete="region=us")
    table.replace_partition(("us",))
    table.agree()
    engine.insert(table.rows(("r", 13, "us")))
    table.put(("r", 13, "us"))
    table.agree()

    table.java_write("bulk_insert", ("s", 14, "us"), ("t", 15, "sa"))
    table.put(("s", 14, "us"), ("t", 15, "sa"))
    table.agree()
    engine.upsert(table.rows(("s", 140, "us"), ("t", 150, "sa"), ("a", 12, "eu")))
    table.put(("s", 140, "us"), ("t", 150, "sa"), ("a", 12, "eu"))
    table.agree()


@pytest.mark.parametrize("layout", [PLAIN, *in_ci(UNPARTITIONED, COMPOSITE, ORDERED)], ids=lambda layout: layout.name)
def test_a_table_made_by_lakelock_is_written_by_java_whatever_its_keys_and_folders(share: Share, layout: Layout) -> None:
    table = share(layout)
    takes_turns(table)


@pytest.mark.parametrize("layout", [HIVE_STYLE, PLAIN, UNPARTITIONED, COMPOSITE, ORDERED] if FULL else [COMPOSITE],
                         ids=lambda layout: layout.name)  # fmt: skip
def test_a_table_made_by_java_is_written_by_lakelock(share: Share, layout: Layout) -> None:
    table = share(layout, create=False)
    # Spark knows that none of these columns can be null, so Java writes down that none may be.
    options = table.java_options("insert", hoodie__table__timeline__timezone="UTC")
    table.java.write_query(table.path, "select 'z' as id, id as v, 'eu' as region from range(1)", options)
    table.put(("z", 0, "eu"))
    table.agree()
    takes_turns(table)


def takes_turns(table: Shared) -> None:
    """Both insert, and each updates and deletes what the other wrote."""
    engine = table.engine()
    engine.insert(table.rows(("a", 1, "eu"), ("b", 2, "eu"), ("c", 3, "us")))
    table.put(("a", 1, "eu"), ("b", 2, "eu"), ("c", 3, "us"))
    table.agree()
    table.java_write("upsert", ("a", 10, "eu"), ("d", 4, "us"))
    table.put(("a", 10, "eu"), ("d", 4, "us"))
    table.agree()
    engine.upsert(table.rows(("d", 40, "us"), ("a", 11, "eu"), ("e", 5, "ap")))
    table.put(("d", 40, "us"), ("a", 11, "eu"), ("e", 5, "ap"))
    table.agree()
    engine.delete(pc.field("id") == "b")
    table.drop(table.key(("b", 2, "eu")))
    table.agree()
    table.java_write("delete", ("e", 6, "ap"), ("c", 6, "us"), hoodie__index__type="BLOOM")
    table.drop(table.key(("e", 5, "ap")), table.key(("c", 3, "us")))
    table.agree()
