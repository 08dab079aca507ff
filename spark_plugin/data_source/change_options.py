"""The options of `format("lakelock")` for what changes: as a stream, and as a change feed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakelock.errors import SettingsError
from lakelock.occ.change_feed import position_at
from lakelock.occ.open_table import OpenTable
from lakelock.occ.reading import ensure_not_future
from lakelock.spark_plugin.data_source.flags import true_or_false
from lakelock.table.instants import as_of_time
from lakelock.table.timeline import Timeline

OPTIONS = ("change_feed", "since", "until", "max_files_per_trigger", "skip_change_commits")
LATEST = "latest"


@dataclass(frozen=True)
class ChangeOptions:
    """`feed`: the changes of each commit, instead of rows. `since` and `until` are instants, times or versions of the feed."""

    feed: bool = False
    since: str | None = None
    until: str | None = None
    most_files: int | None = None
    skip_change_commits: bool = False

    @classmethod
    def of(cls, given: Mapping[str, str]) -> ChangeOptions:
        """From options with lower-case names; `SettingsError` for a value that means nothing."""
        return cls(
            _feed(given.get("change_feed", "false")),
            _moment(given.get("since", "")),
            _moment(given.get("until", "")),
            _positive(given.get("max_files_per_trigger")),
            true_or_false("skip_change_commits", given.get("skip_change_commits", "false").strip()),
        )

    def check_batch(self, as_of: str | None) -> None:
        """`SettingsError` for what a batch cannot have."""
        if self.feed and as_of is not None:
            hint = "until says where a change feed ends"
            raise SettingsError("a change feed is not read as of a time", hint=hint)
        if self.feed and (self.since is None or self.since == LATEST):
            hint = 'give .option("since", instant), after which it begins; table.history() lists the instants'
            raise SettingsError("a change feed that is read in a batch needs to know where it begins", hint=hint)
        if not self.feed and (self.since or self.until):
            hint = '.option("change_feed", "true") gives the changes; LakeTable.changes(since) the changed rows'
            raise SettingsError("since and until are options of a change feed", hint=hint)

    def check_stream(self, as_of: str | None) -> None:
        """`SettingsError` for what a stream cannot have."""
        if self.until is not None or as_of is not None:
            hint = 'leave it out; .option("since", ...) says where a stream begins, and .trigger(availableNow=True) ends it'
            raise SettingsError("a stream goes on: it takes neither until nor as_of", hint=hint)
        if self.feed and self.skip_change_commits:
            hint = "leave skip_change_commits out, or change_feed"
            raise SettingsError("a change feed tells changes, and skip_change_commits leaves them out", hint=hint)


def position_of_text(table: OpenTable, timeline: Timeline, text: str, zone: str, name: str) -> str:
    """The position that the option `name` means: that of a commit by its instant, a version of the feed, or a time.

    `zone`: that of the table's instants. `InputError` for a time that is still to come.
    """
    return position_at(table, timeline, ensure_not_future(table, zone, as_of_time(text, zone), name))


def _moment(text: str) -> str | None:
    """A moment without the spaces around it; `LATEST` in any case."""
    text = text.strip()
    return LATEST if text.lower() == LATEST else text or None


def _feed(text: str) -> bool:
    value = text.strip().lower()
    if value not in ("true", "false", "commits"):
        hint = 'use true or false; LakeTable.for_path(spark, path).changes(since, feed="net") compares first and last state'
        raise SettingsError(f"the option change_feed is {text!r}", hint=hint)
    return value != "false"


def _positive(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.strip().isdigit()) or int(text) < 1:
        hint = "use a whole number of at least 1; a commit with more files than that still comes whole"
        raise SettingsError(f"the option max_files_per_trigger is {text!r}", hint=hint)
    return int(text)
