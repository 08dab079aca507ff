"""Lock providers: one exclusive lock per table, behind one small contract."""

from lakelock.providers.base import Holder, Lease, LeaseLoss, LockProvider, LockState, Opening, Strength
from lakelock.providers.heartbeat import renewing
from lakelock.providers.registry import open_provider, provider_name, provider_names

__all__ = [
    "Holder",
    "Lease",
    "LeaseLoss",
    "LockProvider",
    "LockState",
    "Opening",
    "Strength",
    "open_provider",
    "provider_name",
    "provider_names",
    "renewing",
]
