"""New versions of the history: more files, or several merged into one, and what old versions leave behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lakelock.markers.liveness import StorageClock
from lakelock.occ.open_table import OpenTable
from lakelock.occ.steps import Step, reached
from lakelock.occ.upkeep.budget import Budget
from lakelock.storage import Storage
from lakelock.table import layout
from lakelock.table.upkeep.history import (
    VERSION,
    History,
    HistoryFile,
    manifest_bytes,
    manifest_key,
    manifests,
    merged_bytes,
    read_history,
    read_manifest,
    read_rows,
)

KEPT_VERSIONS = 3
"""How many versions keep all their files for readers, as in Java Hudi."""

MERGED_BYTES = 256 * 1024 * 1024
"""Files larger than this in total are not merged: merging reads them into memory."""

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
    if made is not None or _names(storage, number):
        return True
    storage.delete([manifest_key(version)])
    return False


def _names(storage: Storage, number: bytes) -> bool:
    """Whether the version names this manifest of ours: a repeated request is refused because of what the first one did."""
    stored = storage.get(VERSION)
    return stored is not None and stored.data == number


def put_once(storage: Storage, key: str, data: bytes) -> bool:
    """Whether the object is there with these bytes, created by this call or by somebody who stored the same."""
    if storage.put_if_absent(key, data) is not None:
        return True
    found = storage.get(key)
    return found is not None and found.data == data


def merge_levels(table: OpenTable, budget: Budget) -> int:
    """Merge files of a level where there are `archive.merge_files` of them, and remove old versions; how many were merged."""
    merged, history = 0, read_history(table.storage)
    for level in range(LEVELS):
        while not budget.is_spent:
            files = history.level(level)[: table.settings.archive.merge_files]
            if len(files) < table.settings.archive.merge_files or sum(f.size_bytes for f in files) > MERGED_BYTES:
                break
            budget.progress("merge history", merged, merged + len(files))
            data = merged_bytes([read_rows(table.storage, file) for file in files])
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
    """Remove the manifests of old versions, and the files that only they list or that nobody lists and nobody is writing."""
    found = manifests(table.storage)
    newest = read_history(table.storage).version
    kept = sorted(number for number in found if number <= newest)[-KEPT_VERSIONS:]
    if not kept:
        return
    listed = {file.name for number in kept for file in read_manifest(table.storage, number)}
    now_ms = StorageClock.measure(table.storage, table.runtime).now_ms(table.runtime)
    oldest_ms = now_ms - round(table.settings.archive.min_age_s * 1000)
    files = [
        item.key
        for item in table.storage.list(layout.HISTORY)
        if HistoryFile.parse(item.key.rpartition("/")[2]) is not None
        and item.key.rpartition("/")[2] not in listed
        and item.modified_ms <= oldest_ms
    ]
    table.storage.delete([manifest_key(number) for number in found if number < kept[0]])
    table.storage.delete(files)
