"""Streams whose batches carry a name (`txn_app_id`) instead of the query's id: no query passes over the batches of another.

Spark numbers the batches of each checkpoint from 0. Two queries under one name count alike, whatever their rows are.
"""

from __future__ import annotations

from lakelock.errors import InputError
from lakelock.occ.commit_keys import QUERY, AppTransaction
from lakelock.occ.coordinator import Coordinator
from lakelock.table.archive import extra_of_write


def ensure_own_batch(table: Coordinator, applied: str, application: AppTransaction, query: str) -> None:
    """`InputError` if the commit with the instant `applied` is by another query than the one whose batch would be passed over.

    A commit that does not say which query it is by, as those of earlier versions, counts as its own.
    """
    other = extra_of_write(table.table.storage, table.table.timeline(), applied).get(QUERY, query)
    if other != query:
        raise InputError(
            f"batch {application.version} of {application.app_id} is not passed over: the commit {applied} has applied it for "
            f"the query {other}, and this is the query {query}, with a checkpoint of its own, whose rows may be others",
            hint="give each query a txn_app_id of its own, or none; after a lost checkpoint a new one. Only if this "
            'query tells the same batches from the first on: .option("txn_replay", "true") passes over those that are applied',
            instant=applied,
        )
