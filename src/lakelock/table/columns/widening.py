"""Types that columns may grow into: the new one holds every stored value, and all readers show old files in it.

int to long or double, float to double, and decimals to more digits on either side of the point. Parquet readers of Spark 4,
Java Hudi 1.2 and hudi-rs were tried with each (ADR 23). Not long to double, which rounds, and which Spark's reader refuses.
"""

from __future__ import annotations

import pyarrow as pa

_MOST_DIGITS = 38
_WIDER = {pa.int32(): (pa.int64(), pa.float64()), pa.float32(): (pa.float64(),)}
ALLOWED = "int to long or double, float to double, decimals to more digits on both sides of the point"


def widens(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether a column that is not nested may grow from one type into the other."""
    if pa.types.is_decimal128(old) and pa.types.is_decimal128(new):
        return bool(old != new and new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale)
    return new in _WIDER.get(old, ())


def wider(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The least type that both may grow into, or are; None if there is none."""
    if one == other or widens(other, one):
        return one
    if widens(one, other):
        return other
    if pa.types.is_decimal128(one) and pa.types.is_decimal128(other):
        scale = max(one.scale, other.scale)
        precision = max(each.precision - each.scale for each in (one, other)) + scale
        return pa.decimal128(precision, scale) if precision <= _MOST_DIGITS else None
    return None


def keeps_text(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether all values read the same in both types, as record keys and names of partitions spell them."""
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        return bool(old.scale == new.scale)
    return bool(old == new or (pa.types.is_integer(old) and pa.types.is_integer(new)))
