"""The change feed of the engine without Spark: plain loops over the units, with the rows of all of them in memory."""

from __future__ import annotations

from itertools import groupby

import pyarrow as pa

from lakelock.occ.change_feed.planning import feed_between
from lakelock.occ.coordinator import Coordinator
from lakelock.table.change_feed import FeedMode, Unit, in_need_of_pairs
from lakelock.table.slice_differences import STAMPS, FeedRows, feed_schema, paired


def read_feed(coordinator: Coordinator, since: str, until: str | None, mode: FeedMode) -> pa.Table:
    """The changes of a range of positions as one table, in the order of the commits."""
    table, schema = coordinator.table, coordinator.schema()
    feed = feed_between(table, coordinator.properties, schema, since, until, mode)
    pairs = in_need_of_pairs(feed.units) if mode == "net" else frozenset()
    found = [feed_schema(schema).empty_table()]
    for partition, group in groupby(feed.units, lambda unit: unit.partition):
        units, together = list(group), partition in pairs
        reader = FeedRows.of(schema, units, coordinator.properties.timezone, stamped=together)
        rows = [reader.columns.empty_table(), *(part for unit in units for part in _read(reader, unit, coordinator))]
        whole = pa.concat_tables(rows)
        found.append(paired(whole).drop_columns(list(STAMPS)) if together else whole)
    return pa.concat_tables(found)


def _read(reader: FeedRows, unit: Unit, coordinator: Coordinator) -> list[pa.Table]:
    return list(reader.read(unit, coordinator.table.storage))
