"""Settings: what a user can tune, where each value came from, and how other engines' keys are read."""

from lakelock.settings.catalog import CatalogSettings
from lakelock.settings.optimize import OptimizeSettings
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
    TransactionSettings,
    WriteSettings,
    settings_reference,
)
from lakelock.settings.upkeep import ArchiveSettings, CleanSettings, UpkeepSettings

__all__ = [
    "SECTIONS",
    "ArchiveSettings",
    "CatalogSettings",
    "CheckpointSettings",
    "CleanSettings",
    "ConcurrencySettings",
    "DecisionSettings",
    "HeartbeatSettings",
    "ListingSettings",
    "LockSettings",
    "MissingColumns",
    "OptimizeSettings",
    "RetrySettings",
    "Settings",
    "StatisticsSettings",
    "TransactionSettings",
    "UpkeepSettings",
    "WriteSettings",
    "settings_reference",
]
