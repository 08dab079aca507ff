"""Planted bugs of reservations: what lets their holder win, and keeps everybody from waiting in a circle or for the dead."""

from __future__ import annotations

from tests.simulation.planted.kinds import RESERVING
from tests.simulation.planted.planting import Planted

BUGS_OF_RESERVATIONS = (
    Planted(
        "commits ignore reservations",
        "a commit does not wait for a reservation of the partitions that it writes to",
        "occ.commit:Commit._under_lock",
        "if may_wait and reservation is not None:",
        "if False:",
        within=50,
        among=RESERVING,
        seed=6,
    ),
    Planted(
        "reserved without the lock",
        "the holder does not let whoever has the lock finish before its next attempt begins",
        "occ.claims:reserve",
        "with table.locked(operation=operation):",
        "if True:",
        within=300,
        among=RESERVING,
        seed=558,
    ),
    Planted(
        "the dead keep their reservations",
        "a reservation does not end with its heartbeat",
        "occ.claims:is_over",
        "return is_too_old(mine.modified_ms - beat.modified_ms, limit_s(table, beat))",
        "return False",
        within=50,
        among=RESERVING,
        seed=121,
    ),
    Planted(
        "younger reservations",
        "whoever has a reservation waits for younger ones, too",
        "occ.log:in_the_way",
        "return None\n        if reservation.id in ended",
        "continue\n        if reservation.id in ended",
        within=50,
        among=RESERVING,
        seed=6,
    ),
    Planted(
        "claims before a reservation",
        "a transaction with claims waits for the reservation whose holder waits for these claims",
        "occ.log:in_the_way",
        " or instant in reservation.before",
        "",
        within=50,
        among=RESERVING,
        seed=1892,
    ),
    Planted(
        "out of turn",
        "the holder does not wait for older reservations",
        "occ.claims:Turn.wait",
        "for older in self.ahead:",
        "for older in ():",
        within=50,
        among=RESERVING,
        seed=29,
    ),
    Planted(
        "claims that were there",
        "the holder does not wait for claims that were there before its reservation",
        "occ.claims:Turn.wait",
        "for claimant in self.at_work:",
        "for claimant in ():",
        within=50,
        among=RESERVING,
        seed=558,
    ),
    Planted(
        "set aside and waited for",
        "the holder waits for the end of a transaction that was set aside, which waits for the holder",
        "occ.claims:Claimant.is_over",
        "if held is None or held.instant != self.claim.instant:",
        "if False:",
        within=100,
        among=RESERVING,
        seed=1892,
    ),
    Planted(
        "claims after a reservation",
        "the holder gives way to claims that came after its reservation",
        "occ.claims:OthersReservations.overrules",
        "return own is not None and",
        "return False and",
        within=50,
        among=RESERVING,
        seed=6,
    ),
    Planted(
        "a queue that is collected",
        "whoever raises the boundary forgets the reservations",
        "occ.log:DecisionLog.raise_boundary",
        "replace(found, number=to)",
        "replace(found, number=to, reservations=())",
        within=50,
        among=RESERVING,
        seed=29,
    ),
)

OVERRULED = Planted(
    "an overruled claim hides a commit",
    "a write that has reserved does not look at what was committed in a group that a later writer has claimed",
    "occ.claims:claim",
    "union(each.group for each in overruled)",
    "union(())",
)
"""Not among the others: a commit and a later claim of one group have to come between two requests of whoever has reserved."""

ON_THEIR_WAY = Planted(
    "claims on their way",
    "the holder does not wait for transactions whose claims in its partitions are not made yet",
    "occ.claims:_at_work",
    '.rpartition("/")[0], *claim.places}',
    '.rpartition("/")[0]}',
)
"""So with this: a reservation has to be made while the claims of one transaction are."""

ADDITIONS = Planted(
    "additions on their way",
    "claims do not tell the partitions that get new file groups, so the holder of a reservation does not wait for these",
    "engine.batch:Batch.claim",
    "self.tx.writes_to(new_in)",
    "pass",
)
"""So with this: the reservation has to be made between the other claims of a write and its new files."""
