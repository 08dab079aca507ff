"""An open transaction on its way from one process of a job to another."""

from __future__ import annotations

from dataclasses import dataclass

from lakelock.markers.heartbeat import HeartbeatRecord
from lakelock.occ.baseline import Baseline
from lakelock.occ.records.commit_keys import AppTransaction
from lakelock.table.schema import TableSchema


@dataclass(frozen=True)
class Detached:
    """What the other process needs to go on with it; small and picklable."""

    baseline: Baseline
    schema: TableSchema
    heartbeat: HeartbeatRecord
    application: AppTransaction | None = None
    tag: str = ""
