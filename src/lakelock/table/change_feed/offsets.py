"""How far a stream has read a table: a set of commits, never a time.

A commit that completes late may have an early instant, and if its writer's clock is slow, or it takes no lock, even an early
completion time. So an offset names the commits that were read, as a checkpoint of the file index names those that it covers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from lakelock.errors import InputError
from lakelock.table.file_index.coverage import Coverage, lowest_open, restores_of
from lakelock.table.instants import Instant
from lakelock.table.timeline import Timeline

_FORMAT = 1


@dataclass(frozen=True)
class StreamOffset:
    """The commits that were read, and of the first state, with which a stream may begin, how many files; None: all of it.

    `position` is that of the last commit; it tells people how far the stream is.
    """

    covered: Coverage
    position: str = ""
    first_files: int | None = None

    @classmethod
    def after_all(cls, timeline: Timeline, archived: Iterable[str], unread: Iterable[Instant]) -> StreamOffset:
        """The offset at which everything that the timeline shows was read, but the `unread` commits. `archived` are the
        archived instants that were read, as far back as a clock may be slow.
        """
        left = {instant.requested for instant in unread}
        low = min([lowest_open(timeline), *left])
        read = (timeline.completed_instants | frozenset(archived)) - left
        position = max((i.completion or i.requested for i in timeline.commits if i.requested in read), default="")
        kept = frozenset(instant for instant in read if instant >= low)
        return cls(Coverage(low, kept, restores=restores_of(timeline)), position)

    def and_(self, commits: Iterable[Instant], timeline: Timeline, unread: Iterable[Instant]) -> StreamOffset:
        """The offset after some more commits; `unread` are those that are left. What it forgets by name lies below
        everything that is open.
        """
        added = tuple(commits)
        names = {instant.requested for instant in added}
        low = max(self.covered.low, min([lowest_open(timeline), *names, *(instant.requested for instant in unread)]))
        kept = frozenset(instant for instant in self.covered.instants | names if instant >= low)
        position = max([self.position, *(i.completion or i.requested for i in added)])
        return replace(self, covered=replace(self.covered, low=low, instants=kept), position=position)

    def to_json(self) -> dict[str, object]:
        """As Spark keeps it in a checkpoint."""
        found: dict[str, object] = {
            "format": _FORMAT,
            "position": self.position,
            "low": self.covered.low,
            "instants": ",".join(sorted(self.covered.instants)),
            "restores": ",".join(sorted(self.covered.restores)),
        }
        return found if self.first_files is None else {**found, "first_files": self.first_files}

    @classmethod
    def from_json(cls, found: Mapping[str, object]) -> StreamOffset:
        """`InputError` for an offset of another source, or of a newer release."""
        if found.get("format") != _FORMAT:
            raise InputError(
                f"the checkpoint has an offset that this release does not know: {dict(found)}",
                hint="use the checkpoint of a stream from a lakelock table, and the release that wrote it or a newer one",
            )
        instants, restores = (
            frozenset(filter(None, str(found.get(name) or "").split(","))) for name in ("instants", "restores")
        )
        first = found.get("first_files")
        return cls(
            Coverage(str(found.get("low") or ""), instants, restores=restores),
            str(found.get("position") or ""),
            first if isinstance(first, int) else None,
        )
