"""Hive's keys for locks in our terms: a session's settings may be given to lakelock as they are."""

from __future__ import annotations

import re

_UNITS_S = {
    "": 1.0, "d": 86_400.0, "day": 86_400.0, "h": 3_600.0, "hour": 3_600.0, "m": 60.0, "min": 60.0, "minute": 60.0,
    "s": 1.0, "sec": 1.0, "second": 1.0, "ms": 1e-3, "msec": 1e-3, "us": 1e-6, "usec": 1e-6, "ns": 1e-9, "nsec": 1e-9,
}  # fmt: skip
_TIME = re.compile(r"(\d+)\s*([a-z]*)")
_NO_THRESHOLD = 100_000

SUPPORT_CONCURRENCY = "hive.support.concurrency"
HIVE_KEYS = {
    SUPPORT_CONCURRENCY: "concurrency.mode",
    "hive.lock.numretries": "data_locks.attempts",
    "hive.lock.sleep.between.retries": "data_locks.sleep_s",
    "hive.locks.partition.threshold": "data_locks.escalate_above",
}
"""Hive's key and the setting that it means."""


def from_hive(key: str, value: object) -> tuple[str, object] | None:
    """The setting and its value for one of `HIVE_KEYS`, None where Hive's value changes nothing here.

    A value that cannot be understood is passed on; the parser of the setting then names it and its origin.
    """
    ours, text = HIVE_KEYS[key], str(value).strip().lower()
    if key == SUPPORT_CONCURRENCY:
        if text in ("false", "no", "off", "0"):
            return ours, "SINGLE_WRITER"
        # lakelock always locks; concurrency.mode says how.
        return None if text in ("true", "yes", "on", "1") else (ours, value)
    if key == "hive.lock.sleep.between.retries":
        return ours, _seconds(text, value)
    if key == "hive.locks.partition.threshold" and re.fullmatch(r"-\d+|0|", text):
        return ours, _NO_THRESHOLD
    return ours, value


def _seconds(text: str, value: object) -> object:
    """Hive counts this one in seconds unless a unit follows: `60`, `60s`, `60000ms`."""
    found = _TIME.fullmatch(text)
    unit_s = _UNITS_S.get(found[2], _UNITS_S.get(found[2].removesuffix("s"))) if found else None
    return int(found[1]) * unit_s if found and unit_s else value
