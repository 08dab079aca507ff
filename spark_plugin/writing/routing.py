"""Which task rewrites which file group: pure arithmetic over the counts that the tag stage reports.

Every row of an upsert gets a *route*, an integer. Routes below the number of files name the file that holds the row's key.
The others are *slots* for new keys: one of 256 families by partition path, one of 32 slots in it by key, so equal new
keys always share a route. The driver turns routes into *packs*: what one task writes.
"""

from __future__ import annotations

import heapq
import math
import sys
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

FAMILIES = 256
SLOTS = 32
NEW_ROUTES = FAMILIES * SLOTS

TASK_ROWS, TASK_BYTES = 500_000, 512 << 20
"""How many incoming rows one write task holds, and about how much memory they may take; beyond that there are more tasks."""

_M32 = 0xFFFFFFFF


def slot_of(partition: str, key: str) -> int:
    """The slot, from 0 to 8191, of a key that no file of the partition holds."""
    return family_of(partition) * SLOTS + zlib.crc32(key.encode()) % SLOTS


def family_of(partition: str) -> int:
    return zlib.crc32(partition.encode()) % FAMILIES


@dataclass(frozen=True)
class FileTarget:
    """A file that exists: its partition, its size, and its rows (0: not known)."""

    partition: str
    size_bytes: int
    rows: int


@dataclass(frozen=True)
class Routes:
    """The plan. `pack_values[route]` is the value to shuffle by; `rewritten` are the files to rewrite.

    `adopted[partition]` is the file that takes the new keys of the partition; without one they go to new file
    groups, as many as `groups_of_family` says.
    """

    packs: int
    pack_values: tuple[int, ...]
    rewritten: frozenset[int]
    adopted: Mapping[str, int] = field(default_factory=dict)
    groups_of_family: Mapping[int, int] = field(default_factory=dict)

    def target_of(self, partition: str, slot: int) -> int | tuple[str, int]:
        """Where a new key goes: to the file with this number, or to this new file group of the partition."""
        if partition in self.adopted:
            return self.adopted[partition]
        groups = self.groups_of_family.get(slot // SLOTS, 1)
        return partition, slot % SLOTS * groups // SLOTS


@dataclass
class _Unit:
    """Routes that one task must get together."""

    routes: list[int]
    load: int


def tasks_for(rows: int, at_once: int) -> int:
    """How many tasks write these rows where `at_once` can run: twice as many for many rows, so that a slow one matters less."""
    return at_once if rows < TASK_ROWS else 2 * at_once


def plan_routes(
    counts: Mapping[tuple[str, int], int],
    files: Sequence[FileTarget],
    *,
    tasks: int,
    target_rows: int,
    target_bytes: int = sys.maxsize,
    task_rows: int = TASK_ROWS,
    row_bytes: int = 1,
    in_buckets: bool = False,
) -> Routes:
    """Balance the work over about `tasks` tasks, or more, so that each has at most about `task_rows` incoming rows and
    `TASK_BYTES` of them.

    `counts` has the number of incoming rows by (partition path, route), each of about `row_bytes` in memory.
    New keys of a partition join the smallest of its files that is rewritten anyway, if it has room for them. With `in_buckets`
    they have places of their own, and each slot may go to another task.
    """
    held_rows = max(1, TASK_BYTES // max(1, row_bytes))
    found = {route for _, route in counts if route < len(files)}
    new: dict[str, int] = {}
    for (partition, route), rows in counts.items():
        if route >= len(files):
            new[partition] = new.get(partition, 0) + rows
    adopted = {} if in_buckets else _adopted(new, found, files, target_rows, target_bytes)
    groups: dict[int, int] = {}
    for partition, rows in new.items():
        if partition not in adopted:
            family, wanted = family_of(partition), SLOTS if in_buckets else math.ceil(rows / min(target_rows, held_rows))
            groups[family] = max(groups.get(family, 1), min(SLOTS, wanted))
    units = _units(counts, files, found, adopted, groups)
    wanted = max(tasks, math.ceil(sum(counts.values()) / min(task_rows, held_rows)))
    packs = max(1, min(len(units), wanted))
    values = values_for(packs)
    pack_values = [values[0]] * (len(files) + NEW_ROUTES)
    for pack, unit in _balanced(units, packs):
        for route in unit.routes:
            pack_values[route] = values[pack]
    return Routes(packs, tuple(pack_values), frozenset(found), adopted, groups)


def _adopted(
    new: Mapping[str, int], found: set[int], files: Sequence[FileTarget], target_rows: int, target_bytes: int
) -> dict[str, int]:
    smallest: dict[str, int] = {}
    for route in sorted(found):
        partition = files[route].partition
        if partition not in smallest or files[route].rows < files[smallest[partition]].rows:
            smallest[partition] = route
    return {
        partition: smallest[partition]
        for partition, rows in new.items()
        if partition in smallest and _has_room(files[smallest[partition]], rows, target_rows, target_bytes)
    }


def _has_room(file: FileTarget, rows: int, target_rows: int, target_bytes: int) -> bool:
    """Whether a file may get so many more rows, each of which takes as much of it as one that it has."""
    return file.rows + rows <= target_rows and file.size_bytes * (file.rows + rows) <= target_bytes * max(1, file.rows)


def _units(
    counts: Mapping[tuple[str, int], int],
    files: Sequence[FileTarget],
    found: set[int],
    adopted: Mapping[str, int],
    groups: Mapping[int, int],
) -> list[_Unit]:
    loads: dict[int, int] = {}
    for (_, route), rows in counts.items():
        loads[route] = loads.get(route, 0) + rows
    for route in found:
        loads[route] += max(files[route].rows, files[route].size_bytes // 64)
    families = sorted({(route - len(files)) // SLOTS for _, route in counts if route >= len(files)})
    adopting: dict[int, list[int]] = {}
    for partition, route in adopted.items():
        adopting.setdefault(family_of(partition), []).append(route)
    units = [_Unit([route], loads[route]) for route in sorted(found - set(adopted.values()))]
    for family in families:
        slots = [len(files) + family * SLOTS + slot for slot in range(SLOTS)]
        pieces = 1 if family in adopting else groups.get(family, 1)
        parts: list[list[int]] = [[] for _ in range(pieces)]
        for slot, route in enumerate(slots):
            parts[slot * pieces // SLOTS].append(route)
        parts[0].extend(adopting.get(family, ()))
        units.extend(_Unit(part, sum(loads.get(route, 0) for route in part)) for part in parts)
    return units


def _balanced(units: Sequence[_Unit], packs: int) -> list[tuple[int, _Unit]]:
    """The heaviest unit first, each to the pack with the least to do."""
    heap = [(0, pack) for pack in range(packs)]
    placed = []
    for unit in sorted(units, key=lambda u: -u.load):
        load, pack = heapq.heappop(heap)
        placed.append((pack, unit))
        heapq.heappush(heap, (load + unit.load, pack))
    return placed


def values_for(packs: int) -> list[int]:
    """Integers such that the i-th lands in the i-th of `packs` partitions when Spark repartitions by it."""
    values: dict[int, int] = {}
    candidate = 0
    while len(values) < packs:
        values.setdefault(spark_hash(candidate) % packs, candidate)
        candidate += 1
    return [values[pack] for pack in range(packs)]


def spark_hash(value: int, seed: int = 42) -> int:
    """Spark's `hash()` of one int column: Murmur3, 32 bits, as a signed number."""
    k = _rotated(value * 0xCC9E2D51 & _M32, 15) * 0x1B873593 & _M32
    h = (_rotated(seed ^ k, 13) * 5 + 0xE6546B64) & _M32
    h ^= 4
    h = (h ^ h >> 16) * 0x85EBCA6B & _M32
    h = (h ^ h >> 13) * 0xC2B2AE35 & _M32
    h ^= h >> 16
    return h - (1 << 32) if h >= 1 << 31 else h


def _rotated(x: int, bits: int) -> int:
    return (x << bits | x >> (32 - bits)) & _M32
