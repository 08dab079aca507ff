"""What a condition on a column says about a partition column that is computed from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lakelock.table.pruning.predicates import And, BeginsWith, Comparison, Not, Operator, Or, Predicate
from lakelock.table.transforms import Kind, Transform

_IMPLIED: Mapping[Operator, Operator] = {"=": "=", "<": "<=", "<=": "<=", ">": ">=", ">=": ">="}


def sharpened(predicate: Predicate, transforms: Sequence[Transform]) -> Predicate:
    """The same condition, which also says what it implies of the computed columns.

    Each part `p` becomes `p and q` where `p` implies `q` and both are null for the same rows, so the answers stay the same,
    also within a NOT.
    """
    if not transforms:
        return predicate
    if isinstance(predicate, Not):
        return Not(sharpened(predicate.part, transforms))
    if isinstance(predicate, And | Or):
        return type(predicate)(tuple(sharpened(part, transforms) for part in predicate.parts))
    implied = tuple(_implied(predicate, transforms))
    return And((predicate, *implied)) if implied else predicate


def _implied(predicate: Predicate, transforms: Sequence[Transform]) -> Iterable[Predicate]:
    for transform in transforms:
        # IS NULL implies nothing: rows may bring the computed column without the one that it is computed from.
        if isinstance(predicate, Comparison) and predicate.column == transform.source:
            value = transform.of_value(predicate.value)
            if value is not None and (predicate.op == "=" or transform.kind is not Kind.BUCKET):
                yield Comparison(transform.name, _IMPLIED[predicate.op], value)
        elif isinstance(predicate, BeginsWith) and predicate.column == transform.source and transform.kind is Kind.TRUNCATE:
            short = predicate.prefix[: transform.number]
            whole = len(predicate.prefix) >= transform.number
            yield Comparison(transform.name, "=", short) if whole else BeginsWith(transform.name, short)
