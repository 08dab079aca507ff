"""Which profiles check a rule, derived from the rules themselves."""

from __future__ import annotations

from lakelock.conflict import ConflictRule
from lakelock.occ.conflicts.rules import PROFILES


def profiles_with(rule: ConflictRule) -> tuple[str, ...]:
    """The names of the profiles that check a rule; empty for a rule that is checked whatever the profile.

    A rule is a function that has the name of its `ConflictRule`, in small letters.
    """
    return tuple(
        name
        for name, profile in PROFILES.items()
        if rule.name.lower() in {function.__name__ for function in (*profile.rules, *profile.read_rules)}
    )
