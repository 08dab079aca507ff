"""The window: what others committed between a transaction's baseline and its own decision.

It is told by two sources that are read in this order: the timeline (which also holds the commits of Java writers), then the
decision log (which also holds a commit that is decided and not yet visible).
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from functools import partial

from lakelock.occ.baseline import Baseline
from lakelock.occ.conflicts.summary import CommitSummary
from lakelock.occ.open_table import OpenTable
from lakelock.occ.publishing.settling import counts
from lakelock.occ.records.decisions import Decision
from lakelock.storage import Storage
from lakelock.table.archive import archived_write, covered_by_archive, read_commit
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.instants import Instant
from lakelock.table.timeline import Timeline


def commits_since(
    table: OpenTable,
    baseline: Baseline,
    timeline: Timeline,
    decisions: Sequence[Decision],
    known: MutableMapping[str, CommitSummary],
) -> list[CommitSummary]:
    """Every commit that the baseline does not contain, oldest decision first, foreign ones last by completion.

    A prepare among the decisions counts if the timeline shows its commit, so the timeline is one that `finish_head` returned.
    `known` keeps what was read before: a commit's bytes never change.
    """
    decided = {d.instant: d for d in decisions if counts(d, timeline)}
    fresh: list[str] = [i for i in decided if not baseline.saw(i) and i != baseline.instant]
    for instant, decision in decided.items():
        if instant in fresh and instant not in known:
            metadata = CommitMetadata.from_bytes(decision.payload, f"decision {decision.number}")
            known[instant] = CommitSummary.of(instant, decision.completion, metadata, decision.number)
    beside = [i for i in timeline.commits if not baseline.saw(i.requested) and i.requested not in decided]
    beside = [i for i in beside if i.requested != baseline.instant]
    unread = [i for i in beside if i.requested not in known]
    reads = [partial(read_summary, table.storage, i) for i in unread]
    read = table.io.gather(reads)
    known.update(zip((i.requested for i in unread), read, strict=True))
    fresh += [i.requested for i in beside]
    return sorted((known[i] for i in fresh), key=lambda o: (o.decision is None, o.decision or 0, o.party.completion or ""))


def read_summary(storage: Storage, instant: Instant) -> CommitSummary:
    """What is compared of a completed instant that a listing of the timeline showed; errors as for `read_commit`."""
    return CommitSummary.of(instant.requested, instant.completion or "", read_commit(storage, instant), None)


def possibly_archived(storage: Storage, baseline: Baseline, timeline: Timeline) -> set[str]:
    """Instants that were pending at the baseline and have committed and been archived since.

    Such a commit can no longer be judged. An instant that vanished otherwise was rolled back or given up. The names of the
    archive's files rule out most; of those that they cover the archive itself tells.
    """
    then = baseline.timeline
    pending_then = {i.requested for i in (*then.pending, *then.pending_services)} - {baseline.instant}
    covered = covered_by_archive(storage, {i for i in pending_then if timeline.state_of(i) is None})
    return {instant for instant in covered if archived_write(storage, instant) is not None}
