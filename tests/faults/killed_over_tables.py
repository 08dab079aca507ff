"""A process that moves a row from one table to another, and is killed on the way: run by `test_several_tables.py`."""

from __future__ import annotations

import sys

import pyarrow as pa
import pyarrow.compute as pc
from tests.api import ArrowEngine, LocalStorage
from tests.behaviour.tables import SCHEMA, writer
from tests.crashing import arm
from tests.over_engines import transaction


def main(orders_path: str, stock_path: str) -> None:
    arm()
    orders, stock = (ArrowEngine(writer(LocalStorage(path))) for path in (orders_path, stock_path))
    with transaction(orders, stock) as tx:
        tx[orders].insert(pa.table({"id": ["chair"], "v": [1], "month": ["1"]}, schema=SCHEMA))
        tx[stock].delete(pc.field("id") == "chair")


if __name__ == "__main__":
    main(*sys.argv[1:])
