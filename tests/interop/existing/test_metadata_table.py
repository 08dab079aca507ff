"""Tables with Hudi's metadata table, as Java's defaults make them, are written as they are: Java, which reads by the metadata
table, sees every row of lakelock's commits, and what it lists is what is there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc
import pytest
from tests.interop.shared import HIVE_STYLE, Layout, Shared, as_rows
from tests.sizes import examples, in_ci

Share = Callable[..., Shared]
ON = {"hoodie__metadata__enable": "true", "hoodie__metadata__index__column__stats__enable": "false"}
OFTEN = {
    "hoodie__metadata__compact__max__delta__commits": "2", "hoodie__clean__commits__retained": "1",
    "hoodie__keep__min__commits": "2", "hoodie__keep__max__commits": "3",
}  # fmt: skip
UTC = {"hoodie__table__timeline__timezone": "UTC"}
FLAT = replace(HIVE_STYLE, name="flat", partitions=())


class Kept:
    """A table that Java makes with its metadata table, and the checks that it is true."""

    def __init__(self, share: Share, layout: Layout = HIVE_STYLE) -> None:
        self.table = share(layout, create=False)
        self.java("bulk_insert", *((f"k{n}", n, ("eu", "us")[n % 2]) for n in range(6)), **UTC)

    def java(self, operation: str, *rows: tuple[object, ...], **options: str) -> None:
        self.table.java_changes(operation, *rows, **{**ON, **options})

    def agrees(self) -> None:
        """All readers see the model's rows, with and without the metadata table and by filters."""
        table = self.table
        table.agree()
        without = table.java.read(table.path, options={"hoodie.metadata.enable": "false"})
        assert as_rows(without, table.layout.schema) == as_rows(table.rows(*table.model.values()), table.layout.schema)
        asked = list(table.model.values())[-4:]
        conditions = [f"v = {v} and region = '{region}'" for _, v, region in asked]
        found = table.java.matches(table.path, "id", conditions, skipping=True)
        assert list(found.values()) == [[key] for key, _, _ in asked]

    def partitions(self) -> set[str]:
        """The partitions of the metadata table that are there."""
        found = {path.name for path in Path(self.table.path, ".hoodie/metadata").iterdir() if path.is_dir()}
        return found - {".hoodie"}


@pytest.mark.parametrize("layout", [HIVE_STYLE, *in_ci(FLAT)], ids=lambda layout: layout.name)
def test_java_sees_by_its_metadata_table_whatever_lakelock_commits(share: Share, layout: Layout) -> None:
    kept = Kept(share, layout)
    table = kept.table
    assert kept.partitions() == {"files"}
    engine = table.engine()
    new = [("k1", 700, "us"), ("n1", 50, "us"), ("n2", 60, "zz")]
    engine.upsert(table.rows(*new))
    table.put(*new)
    kept.agrees()
    assert kept.partitions() == {"files"}
    for turn in range(examples(2, 3)):
        engine.upsert(table.rows(("k2", 1000 + turn, "eu")))
        table.put(("k2", 1000 + turn, "eu"))
        kept.java("upsert", ("k3", 2000 + turn, "us"), **OFTEN)
        kept.agrees()
    engine.delete(pc.field("id") == "k0")
    table.drop(table.key(("k0", 0, "eu")))
    kept.agrees()
    if layout.partitions:
        engine.overwrite_partitions(table.rows(("z1", 1, "us")))
        table.replace_partition(("us",), ("z1", 1, "us"))
        kept.agrees()
    kept.java("delete", ("n2", 60, "zz"))
    kept.agrees()
