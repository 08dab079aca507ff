"""A condition that rows must satisfy before they are written: Spark evaluates it, and the task that gets the row checks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lakelock.errors import SchemaError

FITS = "_lakelock_fits"
"""A boolean column that says whether the row may be written at all; the writer leaves it out."""


def fitting(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch, unless a row of it must not be written: `SchemaError` with that row."""
    index = batch.schema.get_field_index(FITS)
    if index < 0:
        return batch
    misfits = np.flatnonzero(~np.asarray(batch.column(index).fill_null(False)))
    if len(misfits):
        shown = {name: value for name, value in batch.slice(int(misfits[0]), 1).to_pylist()[0].items() if name != FITS}
        raise SchemaError(
            f"a row to write does not satisfy the condition of the overwrite: {shown}",
            hint="filter the rows by the same condition, or widen it",
        )
    return batch
