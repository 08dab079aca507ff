"""What the checks of `lakelock doctor` examine, and how they answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lakelock.clock import Runtime
from lakelock.settings import Settings
from lakelock.settings.resolver import Resolved
from lakelock.storage import Storage

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

    @property
    def settings(self) -> Settings:
        return self.resolved.settings
