"""Publication: a decided commit becomes visible by one file in the timeline. Whoever finds it missing creates it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial

from lakelock.occ.open_table import OpenTable
from lakelock.occ.publishing.fate import InstantFate, is_rolled_back, shown_fate
from lakelock.occ.records.decisions import Decision, LogView, Resolution, resolve
from lakelock.storage import has_file
from lakelock.table import layout
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.instants import Instant, State
from lakelock.table.snapshot import DataFile
from lakelock.table.timeline import Timeline


class Publication(Enum):
    """PUBLISHED by this call; ALREADY visible; VOID: a foreign writer rolled the instant back before it was visible, or
    removed files of it.
    """

    PUBLISHED = "published"
    ALREADY = "already"
    VOID = "void"


FILES_LOOKED_AT = 16
"""Of a commit with more files, so many are looked for before it is published: whoever rolls it back removes all of them."""


def publish(table: OpenTable, decision: Decision, timeline: Timeline, files_gone: Callable[[], Sequence[str]]) -> Publication:
    """Make a decided commit visible, unless it is already, a foreign rollback targets it, or files of it are gone.

    Hold the table's lock. `timeline` was read after the decision was seen, or under the same lock. All lower commits must be
    published. Idempotent: the file's name and bytes are fixed by the decision.
    """
    fate = shown_fate(timeline, decision.instant)
    if fate is InstantFate.COMMITTED:
        return Publication.ALREADY
    if fate is InstantFate.GONE or is_rolled_back(table, timeline, decision.instant) or files_gone():
        table.observed.void.add(decision.instant)
        return Publication.VOID
    completed = Instant(decision.instant, decision.action, State.COMPLETED, decision.completion)
    made = table.storage.put_if_absent(layout.timeline(completed.file_name), decision.payload)
    return Publication.PUBLISHED if made is not None else Publication.ALREADY


def looked_for(decision: Decision) -> list[str]:
    """The files of a decided commit that are looked for before it is published: all of them, or the same few for everybody."""
    paths = files_of(CommitMetadata.from_bytes(decision.payload, f"decision {decision.number}"))
    return paths[:: -(-len(paths) // FILES_LOOKED_AT)] if paths else []


def files_of(metadata: CommitMetadata) -> list[str]:
    """The base files that a commit names, in order."""
    return sorted(stat.path for stat in metadata.stats if stat.path and DataFile.parse(stat.path) is not None)


def missing(table: OpenTable, paths: Sequence[str]) -> list[str]:
    """Those of the files that are not there. One request each, made at once."""
    there = table.io.gather([partial(has_file, table.storage, path) for path in paths])
    return [path for path, found in zip(paths, there, strict=True) if not found]


def newest_commit(view: LogView) -> Decision | None:
    """The head of the log if it is a commit: the only decision that can still await publication."""
    decision = view.decisions[-1] if view.decisions else None
    return decision if resolve(decision) is Resolution.COMMITTED else None
