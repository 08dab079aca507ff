"""What the checks of `lakelock doctor` examine, and how they answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from lakelock.cli.arguments import APPLICATION, Next
from lakelock.clock import Runtime
from lakelock.errors import LakelockError
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.foreign.undone import Undone, unrepaired
from lakelock.settings import Settings
from lakelock.settings.resolver import Resolved
from lakelock.storage import Storage
from lakelock.storage.location import StorageLocation
from lakelock.table.io import TableIO
from lakelock.table.layout_one import shown_as_layout_two
from lakelock.table.properties import read_properties

Status = Literal["ok", "warning", "failed"]


@dataclass(frozen=True)
class Check:
    """What one check found, and what to do about it."""

    name: str
    status: Status
    found: str
    hint: str = ""


@dataclass(frozen=True)
class DoctorContext:
    """What the checks examine."""

    path: str
    resolved: Resolved
    storage: Storage
    runtime: Runtime
    config: Path | None = None
    overrides: Sequence[str] | None = None

    def next(self, name: str, *rest: object) -> str:
        """The command to print as the next step, on this table and with the settings of this call."""
        return Next(self.path, self.config, self.overrides).command(name, *rest)

    @cached_property
    def shown(self) -> Storage:
        """The storage as readers of today's layout see it."""
        try:
            return shown_as_layout_two(self.storage, read_properties(self.storage))
        except LakelockError:  # the check of the table says so
            return self.storage

    def io(self, storage: Storage) -> TableIO:
        """Several requests at a time on this storage, by the settings."""
        return TableIO(storage, self.runtime, self.settings.listing.parallel_requests)

    @cached_property
    def undone(self) -> list[Undone]:
        """Commits of which another engine's rollback has removed files, and which no repair has taken out; reads only."""
        settings = replace(self.settings, concurrency=replace(self.settings.concurrency, mode="SINGLE_WRITER"))
        location = StorageLocation(self.storage.uri, settings.storage)
        with Coordinator.open(location, settings, application=APPLICATION, runtime=self.runtime, storage=self.storage) as found:
            return unrepaired(found.table, found.table.timeline())

    @property
    def settings(self) -> Settings:
        return self.resolved.settings
