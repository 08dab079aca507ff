"""Settings: what a user can tune, where each value came from, and how other engines' keys are read."""

from lakelock.settings.optimize import OptimizeSettings
from lakelock.settings.resolver import Settings
from lakelock.settings.sections import (
    SECTIONS,
    ConcurrencySettings,
    DecisionSettings,
    HeartbeatSettings,
    ListingSettings,
    LockSettings,
    MissingColumns,
    RetrySettings,
    WriteSettings,
    settings_reference,
)
from lakelock.settings.upkeep import ArchiveSettings, CleanSettings, UpkeepSettings

__all__ = [
    "ArchiveSettings",
    "CleanSettings",
    "ConcurrencySettings",
    "DecisionSettings",
    "HeartbeatSettings",
    "ListingSettings",
    "LockSettings",
    "MissingColumns",
    "OptimizeSettings",
    "RetrySettings",
    "SECTIONS",
    "Settings",
    "UpkeepSettings",
    "WriteSettings",
    "settings_reference",
]
