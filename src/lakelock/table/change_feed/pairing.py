"""Rows that one file group lost and another one got: unchanged, or an update, if the key is the same."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakelock.table.change_feed.comparing import CHANGE_TYPE, DELETE, INSERT, POSTIMAGE, PREIMAGE, tell
from lakelock.table.schema import RECORD_KEY


def paired(rows: pa.Table) -> pa.Table:
    """The changed rows of one partition, or of some of its keys, with one change for each key that was once in the table before
    and once after. The rows need `RECORD_KEY` and the columns of `VERSION`.
    """
    kinds = rows.column(CHANGE_TYPE)
    before, after = (rows.filter(pc.equal(kinds, kind)) for kind in (DELETE, INSERT))
    told = tell(before, after, [RECORD_KEY])
    others = rows.filter(pc.invert(pc.is_in(kinds, pa.array([DELETE, INSERT]))))
    parts = [others]
    for side, kind, mask in (
        (before, DELETE, told.deleted), (before, PREIMAGE, told.replaced),
        (after, INSERT, told.inserted), (after, POSTIMAGE, told.replacing),
    ):  # fmt: skip
        chosen = side.take(pa.array(np.flatnonzero(mask)))
        place = chosen.schema.get_field_index(CHANGE_TYPE)
        parts.append(chosen.set_column(place, CHANGE_TYPE, pa.repeat(kind, chosen.num_rows)))
    return pa.concat_tables(parts)
