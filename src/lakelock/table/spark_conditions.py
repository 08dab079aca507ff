"""Conditions of Arrow, rewritten so that floating-point numbers compare as in Spark.

To Spark the two zeros are equal, and NaN is equal to itself and greater than any other number, wherever a number comes from: a
column, a field of a struct, arithmetic, or the values of `isin`. To Arrow NaN is neither equal nor greater, and `isin` tells
the zeros apart. Everything else is left as it is, and so are nulls.

An expression shows its parts only in the form in which it is pickled: a record batch with a column for each literal and set of
options, and with the parts, in the order in which they are written, as metadata of its schema.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

_ENTRY = re.compile(r"^(\w+): '(.*)'$", re.MULTILINE)
_AMONG = ("is_in", "index_in")
# Each comparison is replaced by one that is equal to it, with the sides swapped and the answer inverted where the flags say so.
_AS = {
    "equal": ("equal", False, False), "not_equal": ("equal", False, True),
    "less": ("less", False, False), "greater_equal": ("less", False, True),
    "greater": ("less", True, False), "less_equal": ("less", True, True),
}  # fmt: skip


def as_in_spark(condition: pc.Expression, schema: pa.Schema) -> pc.Expression:
    """The condition on rows of this schema by Spark's rule. `ArrowNotImplementedError` if it names a column by its number."""
    restored, (pickled,) = condition.__reduce__()
    rewritten = _as_in_spark(pickled.to_pybytes(), schema)
    return condition if rewritten is None else restored(pa.py_buffer(rewritten))


@dataclass(frozen=True)
class _Part:
    """A literal, a column or a field inside one (`path`), or a function of parts. `about` holds the literal or the options."""

    function: str = ""
    parts: tuple[_Part, ...] = ()
    path: tuple[str, ...] = ()
    about: pa.Array | None = None


@lru_cache(maxsize=8)
def _as_in_spark(pickled: bytes, schema: pa.Schema) -> bytes | None:
    """The same for a pickled condition; None if it stays as it is."""
    changed = False

    def replacement(part: _Part) -> _Part:
        nonlocal changed
        found = _rewritten(part, schema)
        changed = changed or found is not part
        return found

    whole = _parts(pickled, replacement)
    return _pickled(whole) if changed else None


def _parts(pickled: bytes, replacement: Callable[[_Part], _Part]) -> _Part:
    """The parts of a pickled condition; `replacement` is what takes the place of each function, from its innermost parts on."""
    with pa.ipc.open_file(pickled) as file:
        batch = file.get_batch(0)
    entries = iter(_ENTRY.findall(batch.schema.to_string(show_schema_metadata=True, truncate_metadata=False)))
    done: list[_Part] = []
    begun: list[int] = []
    options: dict[int, pa.Array] = {}
    for kind, value in entries:
        if kind == "literal":
            done.append(_Part(about=batch.column(int(value))))
        elif kind == "field_ref":
            done.append(_Part(path=(value,)))
        elif kind == "nested_field_ref":
            done.append(_Part(path=tuple(next(entries)[1] for _ in range(int(value)))))
        elif kind == "call":
            begun.append(len(done))
        elif kind == "options":
            options[len(begun)] = batch.column(int(value))
        else:
            at = begun.pop()
            done[at:] = [replacement(_Part(value, tuple(done[at:]), about=options.pop(len(begun) + 1, None)))]
    return done[0]


def values_named(condition: pc.Expression) -> dict[str, pa.Array]:
    """The values of each column, where a condition is nothing but `column == value` or `column.isin(values)`, of texts or
    integers, joined by `and`, each column once. Empty for every other condition.
    """
    whole = _parts(condition.__reduce__()[1][0].to_pybytes(), lambda part: part)
    found: dict[str, pa.Array] = {}
    terms = [whole]
    while terms:
        term = terms.pop()
        if term.function in ("and", "and_kleene"):
            terms += term.parts
            continue
        column, values = _named_in(term)
        if values is None or column in found or not (pa.types.is_string(values.type) or pa.types.is_integer(values.type)):
            return {}
        found[column] = values
    return found


def _named_in(term: _Part) -> tuple[str, pa.Array | None]:
    columns = [part.path[0] for part in term.parts if len(part.path) == 1 and not part.function]
    if len(columns) != 1 or term.function not in ("equal", "is_in"):
        return "", None
    if term.function == "equal":
        values = next((part.about for part in term.parts if not part.path and not part.function), None)
    else:
        assert term.about is not None
        names = [field.name for field in term.about.type]
        values = dict(zip(names, term.about.flatten(), strict=True))["value_set"]
        values = values.values if pa.types.is_list(values.type) else None
    return columns[0], None if values is None or values.null_count else values


def _rewritten(part: _Part, schema: pa.Schema) -> _Part:
    """A function of parts that are rewritten already."""
    if part.function in _AMONG and pa.types.is_floating(_type_of(part.parts[0], schema)):
        return _rewritten_in(part, _type_of(part.parts[0], schema))
    if part.function not in _AS or not any(pa.types.is_floating(_type_of(side, schema)) for side in part.parts):
        return part
    function, swapped, inverted = _AS[part.function]
    one, other = reversed(part.parts) if swapped else part.parts
    may, other_may = _may_be_nan(one, schema), _may_be_nan(other, schema)
    differs = may and other_may if function == "equal" else other_may or (may and inverted)
    if any(_is_null_itself(side) for side in part.parts) or not (differs or _is_nan_itself(one)):
        return part
    nan, other_nan = _is_nan(one), _is_nan(other)
    found = _Part(function, (one, other))
    for side, across in ((one, other_nan), (other, nan)):
        if _is_nan_itself(side):
            found = _both(across, _not(across))  # false, or null: Arrow's own answer
    more = _both(nan if function == "equal" else _not(nan), other_nan)
    found = _Part("or_kleene", (found, more))
    return _not(found) if inverted else found


def _rewritten_in(part: _Part, kind: pa.DataType) -> _Part:
    """Whether a number is among others, or where: of -0.0 addition makes 0.0."""
    assert part.about is not None
    zero = _Part(about=pa.array([0], kind))
    names = [field.name for field in part.about.type]
    columns = dict(zip(names, part.about.flatten(), strict=True))
    values = columns["value_set"].values if pa.types.is_list(columns["value_set"].type) else None
    if values is not None and pa.types.is_floating(values.type):
        positive = pc.add(values, pa.scalar(0, values.type))
        columns["value_set"] = pa.ListArray.from_arrays(columns["value_set"].offsets, positive)
    about = pa.StructArray.from_arrays([*columns.values()], names)
    return _Part(part.function, (_Part("add", (part.parts[0], zero)),), about=about)


def _is_nan(part: _Part) -> _Part:
    if not part.function and not part.path:
        return _Part(about=pa.array([_is_nan_itself(part)]))
    return _Part("is_nan", (part,))


def _is_nan_itself(part: _Part) -> bool:
    value = None if part.about is None or part.function else part.about[0].as_py()
    return isinstance(value, float) and math.isnan(value)


def _is_null_itself(part: _Part) -> bool:
    return part.about is not None and not part.function and not part.about[0].is_valid


def _may_be_nan(part: _Part, schema: pa.Schema) -> bool:
    literal = not part.function and not part.path
    return _is_nan_itself(part) if literal else bool(pa.types.is_floating(_type_of(part, schema)))


def _both(one: _Part, other: _Part) -> _Part:
    return _Part("and_kleene", (one, other))


def _not(part: _Part) -> _Part:
    return _Part("invert", (part,))


def _type_of(part: _Part, schema: pa.Schema) -> pa.DataType:
    if not part.function and not part.path:
        assert part.about is not None
        return part.about.type
    if part.path:
        kind: pa.DataType = pa.struct(list(schema))
        for name in part.path:
            kind = kind.field(name).type
        return kind
    from pyarrow import acero  # which may import pandas

    restored, _ = pc.scalar(True).__reduce__()
    project = acero.ProjectNodeOptions([restored(pa.py_buffer(_pickled(part)))])
    rows = acero.TableSourceNodeOptions(schema.empty_table())
    plan = [acero.Declaration("table_source", rows), acero.Declaration("project", project)]
    return acero.Declaration.from_sequence(plan).to_table().schema.types[0]


def _pickled(whole: _Part) -> bytes:
    """As Arrow writes it."""
    columns: list[pa.Array] = []
    entries: list[tuple[str, str]] = []
    left: list[_Part | tuple[str, str]] = [whole]
    while left:
        part = left.pop()
        if isinstance(part, tuple):
            entries.append(part)
            continue
        if part.path:
            entries += [("nested_field_ref", str(len(part.path)))] if len(part.path) > 1 else []
            entries += [("field_ref", name) for name in part.path]
        if part.about is not None:
            entry = "options" if part.function else "literal", str(len(columns))
            columns.append(part.about)
            if not part.function:
                entries.append(entry)
        if part.function:
            entries.append(("call", part.function))
            left.append(("end", part.function))
            left += [entry] if part.about is not None else []
            left += reversed(part.parts)
    columns = columns or [pa.nulls(1)]
    schema = pa.schema([pa.field("", column.type) for column in columns], pa.KeyValueMetadata(entries))
    batch = pa.record_batch(columns, schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as file:
        file.write_batch(batch)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]
