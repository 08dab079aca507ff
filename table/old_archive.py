"""The archive of layout 1, and how it is shown as one of layout 2.

Layout 1 (Hudi before 1.0): `.hoodie/<folder>/.commits_.archive.<n>_1-0-1`, numbered from 1 on, log files with blocks of Avro
rows (`HoodieArchivedMetaEntry`), one for each state of each instant. Listings leave these names out, so they are asked for one
by one. What is shown: one file of layout 2 for each, with the commits in it.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakelock.errors import CorruptTableError
from lakelock.storage import Listed, Storage, Stored
from lakelock.table import layout
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.instants import WRITES, Action, is_instant_time
from lakelock.table.layout import checked_file_name
from lakelock.table.log_files.avro_blocks import records_in, schema_of
from lakelock.table.log_files.blocks import blocks_of

MOST_FILES = 100_000
_SHOWN = pa.schema(
    [("instantTime", pa.string()), ("completionTime", pa.string()), ("action", pa.string()), ("metadata", pa.binary())]
)
_METADATA = {Action.REPLACE_COMMIT: "hoodieReplaceCommitMetadata"}
"""The field with what an action did, where it is not `hoodieCommitMetadata`."""


class OldArchive:
    """The archive of one table. What is shown is kept: of the files that are known only the last is read again."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = f"{layout.HOODIE}/{checked_file_name(folder, layout.PROPERTIES)}"
        self._known: dict[int, tuple[Listed, bytes] | None] = {}

    def listed(self) -> list[Listed]:
        """The files that are shown, in order of their names; a request for each new file of layout 1, and two more."""
        # Where files can grow, as on HDFS, only the last one does.
        for number in range(max(1, len(self._known)), MOST_FILES):
            key = f"{self._folder}/.commits_.archive.{number}_1-0-1"
            stored = self._storage.get(key)
            if stored is None:
                break
            self._known[number] = _shown(number, key, stored)
        shown = (found for found in tuple(self._known.values()) if found is not None)
        return sorted((listed for listed, _ in shown), key=lambda item: item.key)

    def opened(self, key: str) -> io.BytesIO | None:
        """The content of a file that was listed, None for any other key."""
        shown = (found for found in tuple(self._known.values()) if found is not None)
        return next((io.BytesIO(content) for listed, content in shown if listed.key == key), None)


def _shown(number: int, key: str, stored: Stored) -> tuple[Listed, bytes] | None:
    """What is shown for a file, with its content; None if it has no commits."""
    rows = list(commits_in(stored.data, key))
    if not rows:
        return None
    times, sink = sorted(row["instantTime"] for row in rows), io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, _SHOWN), sink)
    name = f"{layout.HISTORY}/{times[0]}_{times[-1]}_{number}.parquet"
    return Listed(name, sink.tell(), stored.modified_ms), sink.getvalue()


def commits_in(data: bytes, source: str) -> Iterator[dict[str, Any]]:
    """The completed commits in a file of layout 1, as rows of layout 2's archive: they completed when they were requested.

    `CorruptTableError` for a file that was torn or altered.
    """
    for block in blocks_of(io.BytesIO(data), len(data), source):
        for entry in records_in(block, schema_of(block)[1]):
            action, state = entry.get("actionType"), entry.get("actionState") or "COMPLETED"
            if not isinstance(action, str) or action not in WRITES or state != "COMPLETED":
                continue
            time, found = entry.get("commitTime"), entry.get(_METADATA.get(Action(action), "hoodieCommitMetadata"))
            if not isinstance(time, str) or not is_instant_time(time) or not isinstance(found, dict):
                raise CorruptTableError(f"{block.source} has a commit without its time or metadata", file=source)
            metadata = CommitMetadata.from_json(
                json.dumps(found, default=repr).encode(),
                f"{time}.{action} in {source}",
                replaces=action == Action.REPLACE_COMMIT,
            )
            yield {"instantTime": time, "completionTime": time, "action": action, "metadata": metadata.to_bytes()}
