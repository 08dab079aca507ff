"""Settings: what a user can tune, where each value came from, and how other engines' keys are read."""

from lakelock.settings.resolver import Settings
from lakelock.settings.sections import (
    SECTIONS,
    CheckpointSettings,
    ConcurrencySettings,
    DecisionSettings,
    HeartbeatSettings,
    ListingSettings,
    LockSettings,
    MissingColumns,
    RetrySettings,
    StatisticsSettings,
    WriteSettings,
    settings_reference,
)

__all__ = [
    "CheckpointSettings",
    "ConcurrencySettings",
    "DecisionSettings",
    "HeartbeatSettings",
    "ListingSettings",
    "LockSettings",
    "MissingColumns",
    "RetrySettings",
    "SECTIONS",
    "Settings",
    "StatisticsSettings",
    "WriteSettings",
    "settings_reference",
]
