"""Planted bugs of the rules that other profiles have."""

from __future__ import annotations

from tests.simulation.planted.kinds import DELTA
from tests.simulation.planted.planting import Planted

BUGS_OF_PROFILES = (
    Planted(
        "delta's append rule",
        "in the profile delta files that may hold rows which were read may be added by others",
        "occ.rules:delta_append",
        "    if _is_passed_over(other, isolation):",
        "    if True:",
        among=DELTA,
        seed=120,
    ),
    Planted(
        "delta's weaker level",
        "in the profile delta blind appends are passed over at the level Serializable, too",
        "occ.rules:_is_passed_over",
        "isolation.level is Level.WRITE_SERIALIZABLE and ",
        "",
        among=DELTA,
        seed=709,
    ),
    Planted(
        "delta's overwrites",
        "in the profile delta an overwrite and a write into the same partition do not conflict",
        "occ.rules:delta_partition_overwrite",
        "None if _is_passed_over(other, isolation) else partition_overwrite(mine, other, isolation)",
        "None",
        among=DELTA,
        seed=895,
    ),
    Planted(
        "a read of no partition",
        "a read by a condition concerns none of the partitions that may have such rows",
        "engine.arrow:RowsRead.concerns",
        "return self._concerns[partition]",
        "return False",
        seed=6,
    ),
)

UNREAD_BUCKETS = Planted(
    "buckets that nobody has read",
    "in a table with buckets an upsert records no read, and may leave file groups as they are",
    "engine.small_writes:upserted",
    "if not by_rows:",
    "if False:",
)
"""Not among the others: their tables have no ordering column, so an upsert rewrites whatever it looks into."""

ROWS_OF_NOBODY = Planted(
    "a file without rows is read",
    "in the profile delta a file whose last row was deleted may hold rows that were read",
    "occ.rules:_with_rows",
    "known.rows != 0",
    "True",
)
"""Not among the others: it changes what a conflict is called, and not whether there is one."""

ON_THE_BASELINE = Planted(
    "a write on the baseline",
    "a write of a transaction rewrites what the table had, not what the write before it has written",
    "occ.begin:OwnWrites.over",
    "return snapshot.with_files(rows) if rows else snapshot",
    "return snapshot",
)
"""Not among the others: transactions there write once."""
