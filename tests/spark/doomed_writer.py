"""A driver with a JVM of its own that goes away in the middle of a write: `python -m tests.spark.doomed_writer '<json>'`.

The order names the table, a folder and what is to be written. A task touches `reached` in the folder and goes on when there is
`open`; the driver writes `pid`, that of its JVM. Prints one line of JSON last: the error that its user sees.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from tests.spark.writer_process import frame, gate, session
from tests.waiting import eventually

from lakelock.spark_plugin import LakeTable, changing

cloudpickle.register_pickle_by_value(sys.modules["tests.spark.writer_process"])


def doomed(table: LakeTable, rows: DataFrame, order: dict) -> object:
    """The write in whose middle Spark goes away."""
    folder = order["folder"]
    if order["what"] == "upsert":
        original = changing.rewrite_stage
        changing.rewrite_stage = lambda plan, batches: original(plan, gate(folder)(batches))  # type: ignore[assignment]
        return table.upsert(rows)
    assert order["what"] in ("transaction", "computing")
    slow = rows.coalesce(1).mapInArrow(gate(folder), rows.schema)
    with table.transaction() as tx:
        tx.read("v < 0")
        if order["what"] == "computing":
            slow.count()
        tx.upsert(slow)
    return tx.result


def afterwards(spark: SparkSession, table: LakeTable, rows: DataFrame, order: dict) -> list[Callable[[], object]]:
    """What is tried in the session that has gone."""
    return [
        table.read,
        table.history,
        lambda: table.delete("v = 1"),
        lambda: table.upsert(rows),
        lambda: table.transaction().__enter__(),
        lambda: LakeTable.for_path(spark, order["table"]),
    ]


def told(work: Callable[[], object]) -> dict[str, object]:
    """What the user hears."""
    try:
        return {"type": "none", "text": repr(work())}
    except BaseException as error:  # noqa: BLE001 whatever it is, the test looks at it
        notes = [*getattr(error, "__notes__", []), *map(str, error.args)]
        return {"type": type(error).__name__, "text": str(error), "notes": notes, "trace": traceback.format_exc()}


def main() -> None:
    order = json.loads(sys.argv[1])
    spark = session()
    folder = Path(order["folder"])
    pid = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    (folder / "pid").write_text(str(pid))
    table = LakeTable.for_path(spark, order["table"], options=order["options"])
    rows = frame(spark, order["rows"])
    if order.get("stops"):

        def stop() -> None:
            eventually((folder / "reached").exists)
            spark.stop()

        threading.Thread(target=stop, daemon=True).start()
    answer = told(lambda: doomed(table, rows, order))
    answer["later"] = [] if order.get("runs on") else [told(work) for work in afterwards(spark, table, rows, order)]
    print(json.dumps(answer), flush=True)
    os._exit(0)  # PySpark would wait for a JVM that is not there any more


if __name__ == "__main__":
    main()
