"""Instants: what happened at one requested time, and the timeline file names that say so (layout 2).

An instant time is the 17 digits `yyyyMMddHHmmssSSS`, so that text order is time order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from enum import IntEnum
from functools import lru_cache

from lakelock.errors import CorruptTableError, InputError
from lakelock.texts import StrEnum

_EPOCH = datetime(1970, 1, 1)
_LAST_MS = 253_402_300_799_999  # 9999-12-31 23:59:59.999
_MS = timedelta(milliseconds=1)


class Action(StrEnum):
    """What an instant does. CLUSTERING, COMPACTION and LOG_COMPACTION complete under another action's name."""

    COMMIT = "commit"
    DELTA_COMMIT = "deltacommit"
    REPLACE_COMMIT = "replacecommit"
    CLUSTERING = "clustering"
    COMPACTION = "compaction"
    LOG_COMPACTION = "logcompaction"
    CLEAN = "clean"
    ROLLBACK = "rollback"
    RESTORE = "restore"
    SAVEPOINT = "savepoint"
    INDEXING = "indexing"
    SCHEMA_COMMIT = "schemacommit"


_COMPLETES_AS: dict[str, Action] = {
    Action.CLUSTERING: Action.REPLACE_COMMIT,
    Action.COMPACTION: Action.COMMIT,
    Action.LOG_COMPACTION: Action.DELTA_COMMIT,
}
WRITES: frozenset[str] = frozenset({Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT})
"""Actions under which data files become visible."""


def completes_as(action: str) -> str:
    """The action in the name of the completed file."""
    return _COMPLETES_AS.get(action, action)


_ACTIONS = {action.value: action for action in Action}
MILLIS_DIGITS, BETWEEN_DIGITS = 17, 6
"""An instant time, and how many digits more one between two of them has: see `metadata_table.own_time`."""
_FILE_NAME = re.compile(
    r"([0-9]{17}(?:[0-9]{6})?|[0-9]{14})(?:_([0-9]{17}|[0-9]{14}))?\.([a-z]+)(?:\.(requested|inflight))?", re.ASCII
).fullmatch


class State(IntEnum):
    """How far an instant has come."""

    REQUESTED = 0
    INFLIGHT = 1
    COMPLETED = 2

    def __str__(self) -> str:
        return self.name.lower()


_STATES = {"requested": State.REQUESTED, "inflight": State.INFLIGHT}


@dataclass(frozen=True, order=True)
class Instant:
    """One action (an `Action`, or its name) at one requested time; `completion` is its completion time once it is completed."""

    requested: str
    action: str
    state: State
    completion: str | None = None

    @property
    def file_name(self) -> str:
        """The timeline file that puts the instant into this state."""
        if self.state is State.COMPLETED:
            return f"{self.requested}_{self.completion}.{self.action}"
        if self.action == Action.COMMIT and self.state is State.INFLIGHT:
            return f"{self.requested}.inflight"
        return f"{self.requested}.{self.action}.{self.state}"

    @property
    def is_completed(self) -> bool:
        return self.state is State.COMPLETED

    @property
    def is_service(self) -> bool:
        """Whether it is completed under another action's name."""
        return self.action in _COMPLETES_AS

    @property
    def is_write(self) -> bool:
        """Whether data files become visible when it completes."""
        return completes_as(self.action) in WRITES

    def __str__(self) -> str:
        return f"{self.action} {self.requested} ({self.state})"


@lru_cache(maxsize=65_536)  # the names of an hour of commits, one after the other
def parse_file_name(name: str) -> Instant | None:
    """The instant that a timeline file stands for, None for a file that is none (Hudi skips those too)."""
    match = _FILE_NAME(name)
    if match is None:
        return None
    requested, completion, word, stage = match.groups()
    if word == "inflight":
        return Instant(requested, Action.COMMIT, State.INFLIGHT) if completion is None and stage is None else None
    action = _ACTIONS.get(word)
    if action is None:
        return None
    if completion is not None:
        done = stage is None and action not in _COMPLETES_AS
        return Instant(requested, action, State.COMPLETED, completion) if done else None
    if stage is None or (action is Action.COMMIT and stage == "inflight"):
        return None
    return Instant(requested, action, _STATES[stage])


def is_instant_time(text: str) -> bool:
    """Whether the text has the form of an instant time, also the old one without milliseconds."""
    return len(text) in (14, 17) and text.isascii() and text.isdigit()


def format_instant(ms: int) -> str:
    """The instant time of a moment, given as milliseconds since 1970 UTC."""
    if not 0 <= ms <= _LAST_MS:
        raise ValueError(f"{ms} ms since 1970 is not an instant time: it must lie between the years 1970 and 9999")
    at = _EPOCH + timedelta(milliseconds=ms)
    # Half the time that strftime takes, for every instant is made here.
    return f"{at.year:04}{at.month:02}{at.day:02}{at.hour:02}{at.minute:02}{at.second:02}{at.microsecond // 1000:03}"


def parse_instant(text: str) -> int:
    """Milliseconds since 1970 UTC of an instant time.

    One without milliseconds counts as the last of its second, one between two milliseconds as the first of them.
    """
    text = text[:MILLIS_DIGITS] if len(text) == MILLIS_DIGITS + BETWEEN_DIGITS else text
    try:
        if not is_instant_time(text):
            raise ValueError
        at = datetime(
            int(text[:4]), int(text[4:6]), int(text[6:8]), int(text[8:10]), int(text[10:12]), int(text[12:14]),
            int(text[14:17] or "999") * 1000,
        )  # fmt: skip
    except ValueError:
        raise CorruptTableError(
            f"{text!r} is not an instant time", hint="instant times are yyyyMMddHHmmssSSS, such as 20261121092737397"
        ) from None
    return (at - _EPOCH) // _MS


def time_of(instant: str, zone: str) -> datetime:
    """The moment that an instant time means in the table's zone: UTC, or LOCAL, this machine's own."""
    at = _EPOCH + timedelta(milliseconds=parse_instant(instant))
    return at.replace(tzinfo=timezone.utc) if zone == "UTC" else at.astimezone()


def later_than(now_ms: int, newest: str | None) -> str:
    """The first instant time that is neither before now nor at or before `newest`: the clock never has to be waited for."""
    now = format_instant(now_ms)
    if not newest or now > newest:
        return now
    after_ms = parse_instant(newest) + 1
    if after_ms > _LAST_MS:
        raise CorruptTableError(f"the timeline has reached {newest}; there is no later instant time")
    return format_instant(max(now_ms, after_ms))


_SPOKEN = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[ T]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,6}))?)?)?\s*(Z|[+-][0-9]{2}:?[0-9]{2})?"
).fullmatch


def has_zone(text: str) -> bool:
    """Whether the text is a date and time that says its offset from UTC."""
    match = _SPOKEN(text.strip())
    return match is not None and match[8] is not None


def time_text(moment: str | datetime) -> str:
    """A point in time as text; a time without a zone is UTC."""
    if isinstance(moment, str):
        return moment
    aware = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
    return aware.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")


def as_of_time(text: str, zone: str = "UTC") -> str:
    """The instant time that a person means: an instant time, or a date and time (UTC unless it carries an offset).

    A time is given in the table's `zone`: UTC, or LOCAL, this machine's own.
    """
    text = text.strip()
    hint = "use an instant time such as 20261121092737397, or a time in UTC such as 2026-11-21 09:27 or 2026-11-21T09:27:37.397"
    match = _SPOKEN(text)
    try:
        if is_instant_time(text):
            return format_instant(parse_instant(text))
        if match is None:
            raise ValueError
        numbers = [int(part or 0) for part in match.groups()[:6]]
        micros = int((match[7] or "").ljust(6, "0"))
        at = datetime(numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], micros)
        offset = match[8]
        if offset and offset != "Z":
            at = datetime.strptime(f"{at.isoformat()} {offset}", f"%Y-%m-%dT%H:%M:%S{'.%f' if micros else ''} %z")
            at = at.astimezone(timezone.utc).replace(tzinfo=None)
        if zone != "UTC":
            at = at.replace(tzinfo=timezone.utc).astimezone().replace(tzinfo=None)
        return format_instant((at - _EPOCH) // _MS)
    except (ValueError, OverflowError, CorruptTableError):
        raise InputError(f"{text!r} is neither an instant time nor a date and time", hint=hint) from None
