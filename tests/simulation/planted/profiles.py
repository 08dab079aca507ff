"""Planted bugs of the rules that other profiles have."""

from __future__ import annotations

from tests.simulation.planted.kinds import DELTA
from tests.simulation.planted.planting import Planted

BUGS_OF_PROFILES = (
    Planted(
        "delta's append rule",
        "in the profile delta files that may hold rows which were read may be added by others",
        "occ.conflicts.delta_rules:append",
        "    if _is_passed_over(other, isolation):",
        "    if True:",
        among=DELTA,
        seed=120,
    ),
    Planted(
        "delta's weaker level",
        "in the profile delta blind appends are passed over at the level Serializable, too",
        "occ.conflicts.delta_rules:_is_passed_over",
        "isolation.level is Level.WRITE_SERIALIZABLE and ",
        "",
        among=DELTA,
        seed=709,
    ),
    Planted(
        "delta's overwrites",
        "in the profile delta an overwrite and a write into the same partition do not conflict",
        "occ.conflicts.delta_rules:partition_overwrite",
        "None if _is_passed_over(other, isolation) else any_write_into_overwritten(mine, other, isolation)",
        "None",
        among=DELTA,
        seed=1081,
    ),
)
