"""Moments that a read names: none that is still to come, and no range that ends before it begins."""

from __future__ import annotations

from lakelock.errors import InputError
from lakelock.occ.open_table import OpenTable
from lakelock.table.instants import time_of

AHEAD_MS = 60_000
"""How far the clock that somebody read may be ahead of this machine's."""


def ensure_come(table: OpenTable, zone: str, moment: str, name: str) -> str:
    """The instant time `moment`, in the table's `zone`; `InputError` if it has not come. `name` is what the caller calls it.

    A commit of a machine whose clock is ahead has come: what is not later than the newest instant of the timeline passes.
    """
    if time_of(moment, zone).timestamp() * 1_000 > table.runtime.now_ms() + AHEAD_MS:
        newest = max((instant.completion or instant.requested for instant in table.timeline().instants), default="")
        if moment > newest:
            raise InputError(
                f"{name} is {moment}, which is still to come: what {table.storage.uri} will be then, nobody knows",
                hint="name a moment that has come, or leave it out for the newest state; a time without a zone is in UTC, and "
                "table.history() lists the instants",
            )
    return moment


def ensure_in_order(since: str, until: str | None) -> None:
    """`InputError` if a range of positions ends before it begins."""
    if until is not None and until < since:
        raise InputError(
            f"until ({until}) is before since ({since}), so nothing can lie between them",
            hint="exchange them; a range begins after since, and until is included",
        )
