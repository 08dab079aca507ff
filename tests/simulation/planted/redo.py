"""Planted bugs of redos: what makes a redo the same as a fresh run."""

from __future__ import annotations

from tests.simulation.planted.kinds import REDOING
from tests.simulation.planted.planting import Planted

BUGS_OF_REDO = (
    Planted(
        "a redo keeps what collided",
        "a redo copies the file of a file group although others have rewritten the group since",
        "engine.file_tasks:Files.made_from",
        "self.rewritten.get(base.content)",
        "next((stat for stat in self.rewritten.values() if stat.group == base.group), None)",
        among=REDOING,
        seed=11,
    ),
    Planted(
        "a redo keeps keys that came",
        "a redo copies a file of new rows although others have brought or removed one of their keys",
        "engine.file_tasks:Files.made_of",
        "stats if before == keys else None",
        "stats",
        among=REDOING,
        seed=106,
    ),
    Planted(
        "a redo looks up nothing",
        "a redo does not look for its keys in the files that others wrote",
        "engine.batch:AttemptCache.tag",
        "kernels.tag(rows, fresh, storage)",
        "kernels.tag(rows, fresh if '' in self._files else [], storage)",
        among=REDOING,
        seed=106,
    ),
)
