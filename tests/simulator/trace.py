"""What one run did, for pictures and for checks of the whole run."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from tests.api import Event
from tests.simulator.operations import State


class Answer(str, Enum):
    """What an actor was told about an operation."""

    COMMITTED = "committed"
    REJECTED = "rejected"
    UNKNOWN = "unknown"
    DIED = "died"
    DONE = "done"


@dataclass(frozen=True)
class Answered:
    """One answer (or the death of its actor), with the times of the request and of the answer."""

    operation: int
    actor: str
    answer: Answer
    instant: str
    began_s: float
    ended_s: float
    detail: str = ""


@dataclass
class Trace:
    """What one run did, for pictures and for checks of the whole run."""

    answered: list[Answered] = field(default_factory=list)
    events: list[tuple[float, str, Event]] = field(default_factory=list)
    reads: dict[int, State] = field(default_factory=dict)
    begun: int = 0
    rejected: set[str] = field(default_factory=set)
    """Instants that an event reported."""
    alerts: list[str] = field(default_factory=list)
