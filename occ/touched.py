"""What an open transaction has said so far that it reads and writes."""

from __future__ import annotations

from collections.abc import Iterable

from lakelock.conflict import Party
from lakelock.data_locks import Resource
from lakelock.errors import TransactionStateError
from lakelock.occ.baseline import Baseline
from lakelock.occ.conflicts.footprint import Footprint
from lakelock.occ.conflicts.reads import Read
from lakelock.occ.early.announced import AnnouncedGroups
from lakelock.occ.locking.targets import ensure_within
from lakelock.occ.records.commit_keys import AppTransaction
from lakelock.table.instants import Action
from lakelock.table.properties import TableProperties


class Touched:
    """Grows as the transaction goes on; belongs to it. Not for several threads at once."""

    def __init__(self, baseline: Baseline, party: Party, application: AppTransaction | None) -> None:
        self._baseline, self._party, self._application = baseline, party, application
        self._overwritten: set[str] = set()
        self._places: set[str] = set()
        self.reads: list[Read] = []
        self.announced = AnnouncedGroups()
        self.targets: tuple[Resource, ...] = ()
        """The partitions and prefixes to which it keeps; none: anywhere."""

    def ensure_within(self, partitions: Iterable[str]) -> None:
        """Raise `InputError` for a partition outside the targets."""
        ensure_within(partitions, self.targets, f"{self._party.operation} {self._party.instant}")

    def write_to(self, partitions: Iterable[str]) -> None:
        """Note that these partitions are written to; `InputError` for one outside the targets."""
        partitions = tuple(partitions)
        self.ensure_within(partitions)
        self._places.update(partitions)

    @property
    def written(self) -> frozenset[str]:
        """The partitions that it is known to write to."""
        return frozenset(self._places)

    def overwrite(self, partitions: Iterable[str]) -> None:
        """Note that these partitions are replaced; needs a transaction begun as an overwrite."""
        partitions = tuple(partitions)
        self.write_to(partitions)
        if self._baseline.action != Action.REPLACE_COMMIT.value:
            raise TransactionStateError(
                f"{self._party.operation} {self._party.instant} cannot overwrite partitions",
                hint="begin the transaction as an overwrite",
            )
        self._overwritten.update(partitions)

    def places(self, known: Iterable[str]) -> frozenset[str] | None:
        """The partitions that it writes to, and those of the `known` ones that it reads; None if it reads new ones, too."""
        new = _a_new_partition(self._baseline.properties)
        if any(read.concerns(new) for read in self.reads):
            return None
        return frozenset({*self._places, *(each for each in known if any(read.concerns(each) for read in self.reads))})

    @property
    def footprint(self) -> Footprint:
        """What is known so far of what the transaction touches."""
        return Footprint(
            party=self._party,
            rewritten=self.announced.rewritten,
            new_buckets=self.announced.new_buckets,
            overwritten_partitions=frozenset(self._overwritten),
            reads=tuple(self.reads),
            application=self._application,
        )


def _a_new_partition(properties: TableProperties) -> str:
    """The path of a partition that nobody has written to yet, of a value that no condition names."""
    return "/".join(f"{field}=*" if properties.hive_style else "*" for field in properties.partition_fields)
