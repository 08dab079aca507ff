"""Listing a folder of a cluster at any depth, in the order of keys.

A name node lists one folder, by the bytes of the names, which are signed numbers to it: `ä` comes before `a`.
"""

from __future__ import annotations

from collections.abc import Iterator

from lakelock.storage.base import Listed
from lakelock.storage.hdfs.cluster import Cluster, Status
from lakelock.storage.keys import METADATA_FOLDER, is_past, is_temporary


def walk(cluster: Cluster, root: str, folder: str, prefix: str, start_after: str) -> Iterator[Listed]:
    """Files below `root` whose key begins with `folder` (with its slash) and is greater than `start_after`."""
    for name, found in _entries(cluster, root, folder):
        key = folder + name
        if name[-1] == "/":
            if not is_past(key, start_after) and (prefix or key != f"{METADATA_FOLDER}/"):
                yield from walk(cluster, root, key, prefix, start_after)
        elif key > start_after and not is_temporary(name):
            yield Listed(key, found.size_bytes, found.modified_ms)


def _entries(cluster: Cluster, root: str, folder: str) -> list[tuple[str, Status]]:
    """What is in one folder, in the order of keys: folders count with their trailing slash."""
    found = []
    for each in cluster.entries(f"{root}/{folder}".rstrip("/") or "/"):
        if each.kind == "DIRECTORY":
            found.append((f"{each.name}/", each))
        elif each.is_file and each.name:
            found.append((each.name, each))
    return sorted(found, key=lambda entry: entry[0])
