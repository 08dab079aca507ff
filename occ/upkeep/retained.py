"""As of when the table can be read: cleans record it, and reads from before are refused."""

from __future__ import annotations

from functools import partial

from lakelock.errors import InputError
from lakelock.occ.open_table import OpenTable
from lakelock.table.instants import Instant
from lakelock.table.service_metadata import CleanMetadata, CleanPlan, read_clean
from lakelock.table.timeline import Timeline

_LOOKS = 3
"""A pending clean vanishes between two requests once in a while, and hardly twice in a row."""


def newest_readable_from(table: OpenTable, timeline: Timeline) -> str:
    """The first instant as of which nothing is missing, `""` if no clean says. One read for each clean on the timeline.

    A pending clean counts: it may be deleting. The archiver leaves the newest clean there, and each clean of ours repeats what
    the ones before it said. If a pending one is gone when it is read, it was withdrawn, or has been completed and archived:
    then the timeline of now tells.
    """
    for look in range(_LOOKS):
        cleans = timeline.cleanings
        looks = [partial(read_clean, table.storage, clean) for clean in cleans]
        records = table.io.gather(looks)
        known = all(record is not None or clean.is_completed for clean, record in zip(cleans, records, strict=True))
        if known or look + 1 == _LOOKS:
            break
        timeline = table.timeline()
    return max((_told_by(clean, record) for clean, record in zip(cleans, records, strict=True)), default="")


def _told_by(clean: Instant, record: CleanMetadata | CleanPlan | None) -> str:
    if record is None:
        # What a pending clean deletes is not known without its plan.
        return "" if clean.is_completed else clean.requested
    return record.readable_from


def ensure_readable(table: OpenTable, timeline: Timeline, as_of: str) -> bool:
    """`InputError` that names the first readable instant when old files as of `as_of` were cleaned.

    A savepoint keeps the table readable as of exactly its instant. The answer says whether only a savepoint does.
    """
    first = newest_readable_from(table, timeline)
    if as_of >= first:
        return False
    saved = [i.requested for i in timeline.savepoints if i.is_completed]
    if as_of in saved:
        return True
    kept = f", or as of a savepoint: {', '.join(saved)}" if saved else ""
    raise InputError(
        f"{table.storage.uri} cannot be read as of {as_of}: files of that time were cleaned",
        hint=f"read as of {first} or later{kept}; to keep more, raise clean.keep_commits or clean.keep_hours",
    )


def hides_what_was_cleaned(table: OpenTable, timeline: Timeline, now: Timeline, as_of: str) -> bool:
    """Whether files as of `as_of` may have been cleaned whose successors an earlier look at the timeline does not show.

    Their commit began before `as_of`, and became visible between the two looks.
    """
    return timeline.lacks(now, as_of) and timeline.lacks(now, min(as_of, newest_readable_from(table, now)))
