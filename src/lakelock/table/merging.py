"""Which of two versions of a row wins, by a table's properties: Hudi's merge modes, and its payload classes before 1.0."""

from __future__ import annotations

BY_EVENT_TIME = "EVENT_TIME_ORDERING"
"""The greater ordering value wins."""

BY_COMMIT_TIME = "COMMIT_TIME_ORDERING"
"""The later commit wins."""

CUSTOM = "CUSTOM"
"""A class of the user's decides, or one of Hudi's that lakelock does not know."""

KNOWN = frozenset({BY_EVENT_TIME, BY_COMMIT_TIME})
"""The modes by which lakelock merges as Hudi does."""

MODE = "hoodie.record.merge.mode"
PAYLOAD = "hoodie.compaction.payload.class"
STRATEGY = "hoodie.record.merge.strategy.id"

_WRITTEN = {
    BY_EVENT_TIME: ("org.apache.hudi.common.model.DefaultHoodieRecordPayload", "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"),
    BY_COMMIT_TIME: ("org.apache.hudi.common.model.OverwriteWithLatestAvroPayload", "ce9acb64-bde0-424c-9b91-f6ebba25356d"),
}
"""How version 8 says it besides the mode: the payload class, and the id of Hudi's merger."""

_MEANT = {
    **{payload: mode for mode, (payload, _) in _WRITTEN.items()},
    "org.apache.hudi.common.model.EventTimeAvroPayload": BY_EVENT_TIME,
}
"""What a payload class means where no mode is written: in tables that Hudi before 1.0 made."""


def stated_merging(*, ordered: bool, with_payload: bool) -> dict[str, str]:
    """The entries of a new table that has an ordering column or not; version 8 names the payload class, too."""
    mode = BY_EVENT_TIME if ordered else BY_COMMIT_TIME
    payload, strategy = _WRITTEN[mode]
    return {MODE: mode, PAYLOAD: payload, STRATEGY: strategy} if with_payload else {MODE: mode}


def merge_mode(stated: str, payload: str, *, ordered: bool) -> str:
    """The merge mode of a table: as it is stated, or inferred as Hudi does; an empty text is a missing entry."""
    if stated:
        return stated.upper()
    if payload:
        return _MEANT.get(payload, CUSTOM)
    return BY_EVENT_TIME if ordered else BY_COMMIT_TIME
