"""Structured Streaming: micro-batches are numbered, which makes replaying one harmless."""

from __future__ import annotations

from pyspark.sql import DataFrame

from lakelock.errors import InputError
from lakelock.occ.commit_keys import AppTransaction

QUERY_ID = "sql.streaming.queryId"


def micro_batch(df: DataFrame, batch_id: int) -> AppTransaction:
    """The application transaction of a micro-batch: the query's id, which its checkpoint keeps, and the batch's number."""
    query = df.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    if not query:
        raise InputError(
            "this is not running inside foreachBatch: Spark does not say which streaming query this is",
            hint="use it as df.writeStream.foreachBatch(table.upsert_batch); elsewhere call table.upsert(df)",
        )
    return application_of(query, batch_id)


def application_of(query: str, batch_id: int) -> AppTransaction:
    return AppTransaction(f"spark-stream:{query}", batch_id)
