"""What takes part in one search of the model, and which rules are kept."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tests.simulation.models.multi_table.world import Transaction


@dataclass(frozen=True)
class Rules:
    """The rules of docs/adr/0021, in the order of its steps: the writer, whoever meets a prepare, collectors, readers."""

    begin_everywhere_first: bool = True
    """All instants exist before the first prepare."""
    first_below_prepare: bool = True
    """A prepare at the head stays in the window of whoever begins."""
    own_instant_pending: bool = True
    """Nobody decides for an instant that another engine has rolled back."""
    heed_own_rollback: bool = True
    finish_prepared_head: bool = True
    """A prepare at the head is settled before the next number is taken."""
    publish_before_next: bool = True
    timeline_after_outcome: bool = True
    window_by_timeline: bool = True
    """A prepare in the window counts if the timeline shows its commit."""
    boundary_after_prepare: bool = True
    outcome_after_last_prepare: bool = True
    reads_after_prepares: bool = True
    """Tables that are only read are looked at after the last prepare."""
    ask_in_read_tables: bool = True
    heed_decided_head_of_read_table: bool = True
    outcome_if_absent: bool = True
    outcome_again: bool = True
    """An outcome without a reply is put again."""
    publish_after_outcome: bool = True
    home_after_committed: bool = True
    home_after_aborted: bool = True
    others_when_home_is_gone: bool = True
    every_table_before_told: bool = True
    outcome_deleted_last: bool = True
    abort_by_outcome: bool = True
    """Whoever takes an owner for dead says so by the outcome's name."""
    reaper_asks_outcome: bool = True
    reaper_timeline_after_outcome: bool = True
    outcome_kept_while_pending: bool = True
    outcome_kept_for_other_tables: bool = True
    reader_asks_outcomes: bool = True
    reader_asks_before_second_look: bool = True
    reader_looks_twice: bool = True
    reader_timeline_after_outcome: bool = True
    strict_reader_settles: bool = True


@dataclass(frozen=True)
class Case:
    """Transactions and agents, by their names: `writer0 reaper0A decisionsA outcomes0 reader foreign0A`.

    `numbers`: how many decisions a log has room for. `lost`: whose replies may get lost (`prepare`, `outcome`, `abort`),
    `losses` of them in all. `begun`, `prepared`: transactions that have come so far already. `disjoint`: none collides with
    another. `strict`: the reader settles what is undecided. Another engine whose name ends in `!` respects the table's lock.
    """

    transactions: tuple[Transaction, ...]
    agents: str
    numbers: int = 3
    lost: str = ""
    losses: int = 1
    begun: tuple[int, ...] = ()
    prepared: tuple[int, ...] = ()
    disjoint: bool = False
    strict: bool = False
    rules: Rules = Rules()

    @cached_property
    def tables(self) -> int:
        return 1 + max(max(each.tables) for each in self.transactions)

    @cached_property
    def may_lose(self) -> frozenset[str]:
        return frozenset(self.lost.split())

    @cached_property
    def whole_beside_others(self) -> bool:
        """Whether other engines respect the lock, so that they tear nothing."""
        return all(name.endswith("!") for name in self.agents.split() if name.startswith("foreign"))
