"""The window: what others committed between a transaction's baseline and its own decision.

It is told by two sources that are read in this order: the timeline (which also holds the commits of Java writers), then the
decision log (which also holds a commit that is decided and not yet visible).
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from functools import partial

from lakelock.errors import CorruptTableError
from lakelock.occ.baseline import Baseline
from lakelock.occ.conflicts.summary import CommitSummary
from lakelock.occ.open_table import OpenTable
from lakelock.occ.records.decisions import Decision, Resolution, resolve
from lakelock.storage import Storage
from lakelock.table import layout
from lakelock.table.archive import archived_write, covered_by_archive
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.timeline import Timeline


def commits_since(
    table: OpenTable,
    baseline: Baseline,
    timeline: Timeline,
    decisions: Sequence[Decision],
    known: MutableMapping[str, CommitSummary],
) -> list[CommitSummary]:
    """Every commit that the baseline does not contain, oldest decision first, foreign ones last by completion.

    `known` keeps what was read before: a commit's bytes never change.
    """
    decided = {d.instant: d for d in decisions if resolve(d) is Resolution.COMMITTED}
    fresh: list[str] = [i for i in decided if not baseline.saw(i) and i != baseline.instant]
    for instant, decision in decided.items():
        if instant in fresh and instant not in known:
            metadata = CommitMetadata.from_bytes(decision.payload, f"decision {decision.number}")
            known[instant] = CommitSummary.of(instant, decision.completion, metadata, decision.number)
    beside = [i for i in timeline.commits if not baseline.saw(i.requested) and i.requested not in decided]
    beside = [i for i in beside if i.requested != baseline.instant]
    unread = [i for i in beside if i.requested not in known]
    reads = [partial(read_commit, table.storage, i.file_name, i.requested, i.completion or "") for i in unread]
    read = table.runtime.gather(reads, limit=table.parallel_requests)
    known.update(zip((i.requested for i in unread), read, strict=True))
    fresh += [i.requested for i in beside]
    return sorted((known[i] for i in fresh), key=lambda o: (o.decision is None, o.decision or 0, o.party.completion or ""))


def read_commit(storage: Storage, file_name: str, instant: str, completion: str) -> CommitSummary:
    """Read one completed instant that a listing of the timeline showed, from there, or from the archive if it went there."""
    stored = storage.get(layout.timeline(file_name))
    archived = archived_write(storage, instant) if stored is None else None
    data = stored.data if stored is not None else archived.data if archived is not None else None
    if data is None:
        raise CorruptTableError(f"the timeline lists {file_name} but it cannot be read", hint="run again", file=file_name)
    return CommitSummary.of(instant, completion, CommitMetadata.from_bytes(data, file_name), None)


def possibly_archived(storage: Storage, baseline: Baseline, timeline: Timeline) -> set[str]:
    """Instants that were pending at the baseline and have committed and been archived since.

    Such a commit can no longer be judged. An instant that vanished otherwise was rolled back or given up. The names of the
    archive's files rule out most; of those that they cover the archive itself tells.
    """
    then = baseline.timeline
    pending_then = {i.requested for i in (*then.pending, *then.pending_services)} - {baseline.instant}
    covered = covered_by_archive(storage, {i for i in pending_then if timeline.state_of(i) is None})
    return {instant for instant in covered if archived_write(storage, instant) is not None}
