"""New versions of the history: more files, or several merged into one, and what old versions leave behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lakelock.errors import CorruptTableError, StorageError
from lakelock.markers.liveness import StorageClock
from lakelock.occ.open_table import OpenTable
from lakelock.occ.steps import Step, reached
from lakelock.occ.upkeep.budget import Budget
from lakelock.storage import Storage
from lakelock.table import layout
from lakelock.table.history_files import (
    VERSION,
    History,
    HistoryFile,
    is_superseded,
    manifest_bytes,
    manifest_key,
    manifests,
    merged_bytes,
    read_history,
    read_manifest,
)

KEPT_VERSIONS = 3
"""How many versions keep all their files for readers, as in Java Hudi."""

MERGED_BYTES = 16 * 1024 * 1024
"""Files larger than this in total are not merged: some ten thousand commits, which whoever reads the history has in memory."""

LEVELS = 8


def extend(storage: Storage, history: History, files: Mapping[HistoryFile, bytes], without: Iterable[HistoryFile]) -> bool:
    """Put the next version of the history, with `files` and without others; False when it is no longer what was read.

    Hold the table's lock: other engines replace the version without checking.
    """
    known = {file.name for file in history.files}
    for file, data in files.items():
        if file.name in known or not put_once(storage, file.key, data):
            return False
    reached(Step.HISTORY_WRITTEN)
    gone = {file.name for file in without}
    listed = manifest_bytes(sorted([file for file in history.files if file.name not in gone] + list(files)))
    version = history.version + 1
    while not put_once(storage, manifest_key(version), listed):
        # Left by somebody who died before the version named it, or is about to name it: numbers may be skipped.
        version += 1
        if version > history.version + 100:
            return False
    number = str(version).encode()
    made = storage.put_if_match(VERSION, number, history.etag) if history.etag else storage.put_if_absent(VERSION, number)
    # A manifest that no version names stays: a late request to remove it could hit the next one of its number.
    return made is not None


def put_once(storage: Storage, key: str, data: bytes) -> bool:
    """Whether the object is there with these bytes, created by this call or by somebody who stored the same."""
    if storage.put_if_absent(key, data) is not None:
        return True
    found = storage.get(key)
    return found is not None and found.data == data


def merge_levels(table: OpenTable, budget: Budget) -> int:
    """Merge files of a level where there are enough of them, and remove old versions; how many were merged."""
    merged, history = 0, read_history(table.storage)
    for level in range(LEVELS):
        while not budget.is_spent:
            files = history.level(level)[: table.settings.archive.merge_files]
            if len(files) < table.settings.archive.merge_files or sum(f.size_bytes for f in files) > MERGED_BYTES:
                break
            budget.progress("merge history", merged, merged + len(files))
            try:
                data = merged_bytes(table.storage, files)
            except (CorruptTableError, StorageError):
                if not is_superseded(table.storage, history):
                    raise
                break
            last = max(file.last for file in files)
            one = HistoryFile(min(file.first for file in files), last, level + 1, len(data))
            with table.locked(operation="ARCHIVE"):
                if not extend(table.storage, history, {one: data}, without=files):
                    break
            merged += len(files)
            history = read_history(table.storage)
    if merged:
        _remove_old(table)
    return merged


def _remove_old(table: OpenTable) -> None:
    """Remove the manifests of old versions, and the files that only they list or that no run will list again."""
    now_ms = StorageClock.measure(table.storage, table.runtime).now_ms(table.runtime)
    oldest_ms = now_ms - round(table.settings.archive.min_age_s * 1000)
    listed = list(table.storage.list(layout.HISTORY))
    # The version is read after the listing: a file that it does not list either belongs to the past or to an unfinished run.
    newest = read_history(table.storage)
    found = [number for number in manifests(listed) if number < newest.version]
    kept = found[-(KEPT_VERSIONS - 1) :]
    shown = set(newest.files).union(*(read_manifest(table.storage, number) or () for number in kept))
    names = {file.name for file in shown}
    # Other engines may add files that end before the history does: those are listed long before they are that old.
    files = [HistoryFile.parse(item.key.rpartition("/")[2]) for item in listed if item.modified_ms <= oldest_ms]
    gone = [file.key for file in files if file is not None and file.name not in names and _is_past(file, newest)]
    table.storage.delete([manifest_key(number) for number in found if number not in kept])
    table.storage.delete(gone)


def _is_past(file: HistoryFile, newest: History) -> bool:
    """Whether no archiver of lakelock can list the file again, as one of the next ones does with what a killed one left.

    A file of instants is past once the history reaches its end, since archivers add to the end only; a merged file is past
    once the files that it was made of are gone.
    """
    if file.level == 0:
        return file.last <= newest.last
    parts = [other for other in newest.level(file.level - 1) if file.first <= other.first and other.last <= file.last]
    return not parts
