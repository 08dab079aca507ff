"""Lock providers: one exclusive lock per table, behind one small contract."""

from lakelock.providers.base import Holder, Lease, LeaseLoss, LockProvider, LockState, Opening, Strength, renewing
from lakelock.providers.polling import Attempt, PollingProvider
from lakelock.providers.registry import open_provider, provider_name, provider_names

__all__ = [
    "Attempt",
    "Holder",
    "Lease",
    "LeaseLoss",
    "LockProvider",
    "LockState",
    "Opening",
    "PollingProvider",
    "Strength",
    "open_provider",
    "provider_name",
    "provider_names",
    "renewing",
]
