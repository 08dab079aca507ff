"""Planted bugs of a timeline that is followed (ADR 41). No writer of the simulator takes a time older than what it sees."""

from __future__ import annotations

from tests.simulation.planted.planting import Planted

_NAMES = "table.timeline:FollowedTimeline._names_now"
_COMPARED = "if list(map(_key, files[:moved])) != list(map(_key, known.settled)):"

UNSEEN = Planted(
    "an old name that is new", "what appears before the border is not looked for", _NAMES, _COMPARED,
    "if not set(map(_key, files[:moved])) >= set(map(_key, known.settled)):",
)  # fmt: skip
STILL_SHOWN = Planted(
    "an old name that is gone", "what goes before the border is still shown", _NAMES, _COMPARED,
    "if not set(map(_key, files[:moved])) <= set(map(_key, known.settled)):",
)  # fmt: skip
UNHEARD = Planted(
    "a notice of an old name",
    "what a disk tells of names before the border is not heeded",
    "table.timeline:FollowedTimeline._changed",
    "if found is None or any(key < known.border for key in found):",
    "if found is None:",
)
PASSED = Planted(
    "a border past what is pending",
    "the border moves past an instant that is pending",
    "table.timeline:FollowedTimeline._border",
    "min([border, *pending])",
    "border",
)
