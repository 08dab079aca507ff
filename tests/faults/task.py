"""One task as an executor's process of its own: `python -m tests.faults.task FILE`, where FILE holds a pickled `Task`.

Prints one line of JSON last: what it has written.
"""

from __future__ import annotations

import json
import pickle
import sys
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from tests.api import DataFile, Keyed, WriteStat
from tests.crashing import arm

from lakelock.engine.file_tasks import FileTasks
from lakelock.errors import LakelockError
from lakelock.markers.data_files import TaskToken
from lakelock.occ.begin import WriteContext


@dataclass(frozen=True)
class Task:
    """One attempt to write rows: into a new file group of `partition`, or into that of `base`. `result` gets the stats."""

    context: WriteContext
    token: TaskToken
    rows: pa.Table
    result: str
    partition: str = ""
    base: DataFile | None = None

    def run(self) -> list[WriteStat]:
        if self.base is None:
            return FileTasks.of(self.context).write_new_files(self.partition, [self.rows], self.token)
        upserts = Keyed.of(self.rows, self.context.properties)
        return [FileTasks.of(self.context).rewrite_group(self.base, self.token, upserts=upserts)]


def main() -> None:
    arm()
    task: Task = pickle.loads(Path(sys.argv[1]).read_bytes())
    try:
        Path(task.result).write_bytes(pickle.dumps(task.run()))
        answer = {"outcome": "written"}
    except LakelockError as error:
        answer = {"outcome": error.code.value, "message": str(error)}
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
