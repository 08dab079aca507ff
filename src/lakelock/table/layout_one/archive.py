"""The archive of layout 1, and how it is shown as one of layout 2.

Layout 1 (Hudi before 1.0): `.hoodie/<folder>/.commits_.archive.<n>_<write token>`, log files with blocks of Avro rows
(`HoodieArchivedMetaEntry`), one for each state of each instant. With `hoodie.archive.merge.enable` Java joins old files in a
new one and removes them, so numbers have gaps. What is shown: one file of layout 2 for each, with the commits in it.
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
from lakelock.storage.keys import OLD_ARCHIVE
from lakelock.table import layout
from lakelock.table.archive import LOOKS
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.instants import WRITES, Action, is_instant_time
from lakelock.table.layout import checked_file_name
from lakelock.table.log_files.avro_blocks import records_in, schema_of
from lakelock.table.log_files.blocks import blocks_of

_SHOWN = pa.schema(
    [("instantTime", pa.string()), ("completionTime", pa.string()), ("action", pa.string()), ("metadata", pa.binary())]
)
_METADATA = {Action.REPLACE_COMMIT: "hoodieReplaceCommitMetadata"}
"""The field with what an action did, where it is not `hoodieCommitMetadata`."""


class OldArchive:
    """The archive of one table. What is shown is kept: a file is read again only if it has grown or was replaced."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = f"{layout.HOODIE}/{checked_file_name(folder, layout.PROPERTIES)}"
        self._known: dict[Listed, tuple[Listed, bytes] | None] = {}

    def listed(self) -> list[Listed]:
        """The files that are shown, in order of their names; one listing, and a read of each file that is new.

        `CorruptTableError` if files keep vanishing while they are read.
        """
        for _ in range(LOOKS):
            there = [item for item in self._storage.list(self._folder) if item.key.startswith(f"{self._folder}/{OLD_ARCHIVE}")]
            if self._read(there):
                return sorted((listed for listed, _ in self._files), key=lambda item: item.key)
        hint = "Java Hudi may be merging its archive; run the command again"
        raise CorruptTableError(f"files of {self._folder} vanish while they are read", hint=hint, file=self._folder)

    def _read(self, there: list[Listed]) -> bool:
        """Read the files that are not known yet; whether all of them were still there."""
        known: dict[Listed, tuple[Listed, bytes] | None] = {}
        for item in there:
            if item in self._known:
                known[item] = self._known[item]
                continue
            stored = self._storage.get(item.key)
            if stored is None:
                return False
            known[item] = _shown(item.key, stored)
        self._known = known
        return True

    def opened(self, key: str) -> io.BytesIO | None:
        """The content of a file that was listed, None for any other key."""
        return next((io.BytesIO(content) for listed, content in self._files if listed.key == key), None)

    @property
    def _files(self) -> list[tuple[Listed, bytes]]:
        return [found for found in self._known.values() if found is not None]


def _shown(key: str, stored: Stored) -> tuple[Listed, bytes] | None:
    """What is shown for a file, with its content; None if it has no commits."""
    rows = list(commits_in(stored.data, key))
    if not rows:
        return None
    times, sink = sorted(row["instantTime"] for row in rows), io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, _SHOWN), sink)
    name = f"{layout.HISTORY}/{times[0]}_{times[-1]}_{key.rpartition(OLD_ARCHIVE)[2]}.parquet"
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
