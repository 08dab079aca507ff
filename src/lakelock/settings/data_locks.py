"""Data locks: how long a writer waits for them, and when it takes fewer but larger ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lakelock.errors import SettingsError
from lakelock.settings.fields import Section, setting


@dataclass(frozen=True)
class DataLockSettings(Section):
    """Shared and exclusive locks on partitions, held for a whole write, with `concurrency.mode = "PESSIMISTIC"`."""

    section: ClassVar[str] = "data_locks"
    attempts: int = setting(
        600,
        "How many times a request is tried before LockTimeout; 1 means it is granted or refused at once",
        at_least=1,
        at_most=1_000_000,
    )
    sleep_s: float = setting(
        1.0, "Pause between two attempts; a service that notifies ends it early", unit="s", at_least=0.01, at_most=3_600
    )
    lease_s: float = setting(
        60.0,
        "A holder that is silent for this long may be replaced; at least three times renew_s",
        unit="s",
        at_least=1,
        at_most=3_600,
    )
    renew_s: float = setting(20.0, "How often a holder renews its lease", unit="s", at_least=0.1, at_most=1_200)
    escalate_above: int = setting(
        2_000,
        "A request for more partitions than this takes one exclusive lock on what they have in common instead",
        unit="partitions",
        at_least=1,
        at_most=100_000,
    )

    @property
    def wait_s(self) -> float:
        """How long a request waits in total."""
        return (self.attempts - 1) * self.sleep_s

    def check_together(self) -> None:
        if self.lease_s < 3 * self.renew_s:
            raise SettingsError(
                f"data_locks.lease_s ({self.lease_s:g} s) must be at least three times data_locks.renew_s ({self.renew_s:g} s)",
                hint=f"set data_locks.renew_s to {self.lease_s / 3:.3g} or less, or data_locks.lease_s to {3 * self.renew_s:g}",
                key="data_locks.lease_s",
            )
