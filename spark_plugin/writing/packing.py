"""The shuffle between the two stages of a write: each row to the task that writes its file group."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import Column
from pyspark.sql import functions as F

from lakelock.spark_plugin.writing.routing import Routes


def pack_of(routes: Routes, route: str) -> Column:
    """The value to shuffle by, for the number in the column `route`: one look-up in a constant array."""
    values = ",".join(map(str, routes.pack_values))
    return F.expr(f"element_at(cast(split('{values}', ',') as array<int>), {route} + 1)")


def among(routes: Collection[int], route: str) -> Column:
    """Whether the number in the column `route` is one of these. As one text, since Python would send each number alone."""
    return F.expr(f"{route} in ({','.join(map(str, sorted(routes)))})")
