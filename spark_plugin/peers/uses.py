"""Which options of `format("lakelock")` do something in which use of it: elsewhere they are errors, and not passed over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum

from lakelock.errors import SettingsError


class Use(Enum):
    """What Spark does with a table."""

    BATCH_READ = "a read in a batch"
    STREAM_READ = "a stream from a table"
    BATCH_WRITE = "a write of a batch"
    STREAM_WRITE = "a stream into a table"


READS = (Use.BATCH_READ, Use.STREAM_READ)
WRITES = (Use.BATCH_WRITE, Use.STREAM_WRITE)
_USES: dict[str, tuple[Use, ...]] = {
    **dict.fromkeys(("max_files_per_trigger", "skip_change_commits"), (Use.STREAM_READ,)),
    **dict.fromkeys(("as_of", "until", "include_meta", "change_feed", "since"), READS),
    "query_type": (Use.BATCH_READ,),
    **dict.fromkeys(("txn_replay", "queryname"), (Use.STREAM_WRITE,)),
    "checkpointlocation": (Use.STREAM_READ, Use.STREAM_WRITE),
    **dict.fromkeys(("operation", "partitions_to_delete"), WRITES),
    **dict.fromkeys(("overwrite", "partitionoverwritemode", "overwrite_schema", "txn_app_id", "txn_version", "tag"), WRITES),
}
"""The options that are not for every use. Those of a stream that it cannot have, such as `as_of`, have errors of their own."""
_NOTHING = {"": "", "include_meta": "false", "change_feed": "false", "skip_change_commits": "false", "query_type": "snapshot"}
_NOTHING |= {"overwrite": "table", "partitionoverwritemode": "static", "overwrite_schema": "false", "txn_replay": "false"}


def without_effect(given: Mapping[str, str], uses: tuple[Use, ...]) -> Iterator[SettingsError]:
    """An error for each option, as spelled here, whose value asks for something that none of these uses does."""
    for name, value in given.items():
        effective = _USES.get(name, uses)
        # Spark asks a temporary view's source to read with all of the view's options, those of its INSERTs included.
        passing = (*effective, Use.BATCH_READ) if Use.BATCH_WRITE in effective else effective
        if not set(passing) & set(uses) and value.strip().lower() not in ("", _NOTHING.get(name)):
            yield SettingsError(
                f"the option {name} does nothing in {_listed(uses)}",
                hint=f"leave it out here: it is an option of {_listed(effective)}",
                key=name,
            )


def _listed(uses: tuple[Use, ...]) -> str:
    return " and ".join(use.value for use in uses)
