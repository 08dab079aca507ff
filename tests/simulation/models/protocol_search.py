"""Every state of the protocol's model is visited, and each is held against the invariants of the simulator."""

from __future__ import annotations

from functools import partial

from tests.simulation.models.every_state import visit
from tests.simulation.models.protocol import COLLECTOR, Agent, Model, World


def explore(model: Model, *, most_states: int) -> tuple[int, str | None]:
    """How many states there are, and the first violation that is met; an error if there are more than `most_states`."""
    return visit(model.start(), model.steps, partial(violation, model), most_states=most_states)


def violation(model: Model, world: World) -> str | None:
    """The invariant that this state breaks."""
    if world.published != world.order[: len(world.published)]:
        return "visible out of order"
    if None in world.log[world.boundary :] or any(agent.at == "hole" for agent in world.agents[:2]):
        return "decisions not dense"
    if world.agents[COLLECTOR].at == "covers":
        return "the boundary covers a commit that is not visible"
    if not world.withdrawn.isdisjoint(world.order):
        return "both commit and rollback"
    writers = {agent.who: agent for agent in world.agents[:2]}
    for number, instant in enumerate(world.published):
        if instant not in world.files:
            return "files of a commit deleted"
        if writers[instant].told == "rejected":
            return "told rejected and visible"
        if model.conflicting and number and not writers[instant].seen >= set(world.published[:number]):
            return "lost update"
    if any(agent.told == "committed" and agent.who not in world.published for agent in writers.values()):
        return "told committed and not visible"
    return _left_behind(world) if all(_at_rest(agent, world) for agent in world.agents) else None


def _at_rest(agent: Agent, world: World) -> bool:
    """Whether the agent has come to its end, or finds nothing to do."""
    return agent.at in ("end", "k-list", "k-boundary") or (agent.at == "r-boundary" and not agent.seen)


def _left_behind(world: World) -> str | None:
    """What must not be there once all is quiet. A request that is still under way may never land."""
    visible = set(world.published)
    if world.order != world.published:
        return "decided and never visible"
    if world.pending - visible:
        return "pending for ever"
    if world.files - visible:
        return "files left behind"
    return None
