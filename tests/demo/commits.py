"""What the table's own files say: its commits in decision order, and the data files of its snapshot.

Reads the timeline with fastavro alone. It uses nothing of lakelock, which makes it an independent witness.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastavro import reader

from tests.api import layout
from tests.demo.flights import DemoError

_COMPLETED = (".commit", ".deltacommit", ".replacecommit")
SERVICES = frozenset({"COMPACT", "CLUSTER"})
"""Operations that change no row."""


@dataclass(frozen=True)
class TableCommit:
    """One visible commit. `batch` is the (query id, batch id) of a streaming commit, None for others."""

    decision: int
    instant: str
    completion: str
    operation: str
    pid: int
    batch: tuple[str, int] | None
    written: Mapping[str, str]
    """File id to path, relative to the table, of each data file that it wrote: a base file or a log file."""
    replaced: frozenset[str]
    """File ids whose content it replaced."""


def read_commits(table: Path) -> list[TableCommit]:
    """The visible commits in the order in which they were decided."""
    names = sorted(p for p in (table / layout.TIMELINE).iterdir() if p.suffix in _COMPLETED and p.name[0] != ".")
    commits = sorted((_read(path) for path in names), key=lambda c: c.decision)
    numbers = [c.decision for c in commits]
    if len(set(numbers)) != len(numbers):
        raise DemoError(f"two commits carry the same decision number: {numbers}")
    return commits


def snapshot_files(commits: Iterable[TableCommit]) -> list[str]:
    """The newest base file of each file group, as Hudi readers choose it: by the instant at which its writer began."""
    newest: dict[str, str] = {}
    for commit in sorted(commits, key=lambda c: c.instant):
        for file_id in commit.replaced:
            newest.pop(file_id, None)
        newest.update({file_id: path for file_id, path in commit.written.items() if not is_log(path)})
    return sorted(newest.values())


def is_log(path: str) -> bool:
    """Whether a path is that of a log file."""
    return ".log." in path.rpartition("/")[2]


def foreign_files(table: Path, commits: Iterable[TableCommit]) -> list[str]:
    """Data files in the table that no commit wrote: there must be none once the dead writers were cleaned up."""
    known = {path for commit in commits for path in commit.written.values()}
    found = (p.relative_to(table) for p in table.rglob("*") if p.suffix == ".parquet" or is_log(p.name))
    return sorted(p.as_posix() for p in found if layout.HOODIE not in p.parts and p.as_posix() not in known)


def pending_instants(table: Path) -> list[str]:
    """Instants that began but neither completed nor were rolled back."""
    begun, completed = set(), set()
    for path in (table / layout.TIMELINE).iterdir():
        instant = path.name.split(".")[0]
        if path.name.endswith((".requested", ".inflight")):
            begun.add(instant)
        elif "_" in instant:
            completed.add(instant.split("_")[0])
    return sorted(begun - completed)


def _read(path: Path) -> TableCommit:
    requested, _, completion = path.name.split(".")[0].partition("_")
    with path.open("rb") as stream:
        record: Any = next(reader(stream))
    extra: dict[str, str] = record["extraMetadata"] or {}
    stats = list(_flat(record["partitionToWriteStats"]))
    replaced = frozenset(_flat(record.get("partitionToReplaceFileIds")))
    try:
        return TableCommit(
            decision=int(extra["lakelock.decision"]),
            instant=requested,
            completion=completion,
            operation=record["operationType"] or "",
            pid=int(json.loads(extra["lakelock.writer"])["pid"]),
            batch=_batch(extra),
            written={s["fileId"]: s["path"] for s in stats if s["path"]},
            replaced=replaced,
        )
    except KeyError as missing:
        raise DemoError(f"{path.name}: the commit does not name its {missing}") from None


def _batch(extra: Mapping[str, str]) -> tuple[str, int] | None:
    if "lakelock.application" not in extra:
        return None
    values = json.loads(extra["lakelock.application"])
    return str(values["id"]), int(values["version"])


def _flat(by_partition: Mapping[str, list[Any]] | None) -> Iterator[Any]:
    for values in (by_partition or {}).values():
        yield from values
