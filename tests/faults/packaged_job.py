"""A job whose executors have another Python than its driver: `python -m tests.faults.packaged_job FOLDER TABLE [CONF AS JSON]`.

The executors write each row. Prints the rows of the table after two writes, or the hint of the error.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.faults.cluster import rows, start

from lakelock.errors import WriteFailed
from lakelock.spark_plugin import LakeTable


def main(folder: str, path: str, conf: str = "{}") -> None:
    spark, options = start(Path(folder), json.loads(conf)), {"write.driver_rows": 0}
    schema = rows(spark, 0, 1, 1).schema
    with LakeTable.create(spark, path, schema=schema, key="id", partition_by="month", options=options) as table:
        try:
            table.insert(rows(spark, 0, 4, 2))
            table.upsert(rows(spark, 2, 4, 2))
        except WriteFailed as error:
            print(json.dumps({"problem": error.message, "hint": error.hint}))
            return
        print(json.dumps({"ids": sorted(row["id"] for row in table.read().collect())}))


if __name__ == "__main__":
    main(*sys.argv[1:])
