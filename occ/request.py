"""What a write asks of a table, in one value that goes from the call to the commit, and the part of the table it is about.

A target is a partition or a prefix of one: `month=1`, `month=1/day=2`, `{"month": 1}`, or several of these. It must begin
with the table's first partition column, because a lock is on a folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from operator import index
from typing import SupportsIndex

import pyarrow as pa

from lakelock.data_locks.base import TABLE, Resource
from lakelock.errors import InputError, SchemaError
from lakelock.occ.commit_keys import AppTransaction
from lakelock.storage.base import is_text
from lakelock.table.layout import FileGroupId
from lakelock.table.partitions import DEFAULT_PARTITION, partition_path, unescape
from lakelock.table.properties import TableProperties
from lakelock.table.record_keys import key_text
from lakelock.table.snapshot import DataFile, Snapshot
from lakelock.texts import did_you_mean

Target = str | Mapping[str, object]
Targets = Target | Sequence[Target] | None

_QUOTED = re.compile(r"""'[^'\\]*'|"[^"\\]*\"""")
_EQUALS = re.compile(r"""\s*`?(\w+)`?\s*==?\s*(?:'([^'\\]*)'|"([^"\\]*)"|(-?\d+))\s*""")
_COMPLEX = re.compile(r"\b(OR|BETWEEN|CASE|NOT|EXISTS|SELECT)\b|\|\||[()\\/#!]|--", re.IGNORECASE)


def resources_of(targets: Targets, properties: TableProperties) -> tuple[Resource, ...]:
    """The resources that `targets` name, none when it is None; `InputError` for what this table cannot have."""
    if targets is None:
        return ()
    several = [targets] if isinstance(targets, str | Mapping) else list(targets)
    if not several:
        raise InputError("the list of partitions is empty", hint="leave it out when the partitions are not known")
    return tuple(dict.fromkeys(_resource(each, properties) for each in several))


def _resource(target: Target, properties: TableProperties) -> Resource:
    fields = properties.partition_fields
    if isinstance(target, Mapping):
        if not target:
            raise InputError("the mapping of partition columns is empty", hint="leave it out when the partitions are not known")
        return resource_of_values(target, properties)
    text = target.strip().strip("/")
    if not fields:
        raise InputError(f"{target!r} names a partition, but the table has none", hint="leave the partition out")
    if not text or not is_text(text):
        raise InputError(f"{target!r} is not a partition", hint=_example(properties))
    try:
        resource = Resource.of(text)
    except ValueError as error:
        raise InputError(str(error), hint=_example(properties)) from None
    named = [part.partition("=") for part in resource.parts]
    if properties.hive_style or [name for name, *_ in named] == list(fields[: len(named)]):
        if not all(equals for _, equals, _ in named):
            raise InputError(f"{target!r} is not a partition of this table", hint=_example(properties))
        _check_columns([name for name, *_ in named], properties)
        # Both spellings of a value, as it is and as it is escaped in the path, mean the same partition.
        plain = unescape if properties.url_encode else str
        values = {name: plain(value) for name, _, value in named}
        return resource_of_values(
            {name: None if value == DEFAULT_PARTITION else value for name, value in values.items()}, properties
        )
    if len(fields) > 1 and len(resource.parts) > len(fields):
        raise InputError(f"{target!r} is deeper than the table's partitions", hint=_example(properties))
    return resource


def resource_of_values(values: Mapping[str, object], properties: TableProperties) -> Resource:
    """The partition or prefix in which these columns have these values; None is the partition of nulls."""
    fields = properties.partition_fields
    unknown = next((name for name in values if name not in fields), None)
    if unknown is not None:
        raise InputError(f"{unknown!r} is not a partition column{did_you_mean(unknown, fields)}", hint=_example(properties))
    _check_columns(sorted(values, key=fields.index), properties)
    texts = [None if values[name] is None else _text(values[name], name) for name in fields[: len(values)]]
    style = {"hive_style": properties.hive_style, "url_encode": properties.url_encode}
    try:
        return Resource.of(partition_path(texts, fields[: len(values)], **style)) if texts else TABLE
    except SchemaError as error:
        raise InputError(error.message, hint=error.hint) from error


def _check_columns(names: Sequence[str], properties: TableProperties) -> None:
    """The names must be the first partition columns, all of them up to the last that is given."""
    fields = properties.partition_fields
    if list(names) != list(fields[: len(names)]):
        unknown = next((name for name in names if name not in fields), None)
        problem = (
            f"{unknown!r} is not a partition column{did_you_mean(unknown, fields)}"
            if unknown is not None
            else f"{', '.join(names)} leaves out a partition column before it: the table is partitioned by {', '.join(fields)}"
        )
        raise InputError(problem, hint=_example(properties))


def _text(value: object, name: str) -> str:
    try:
        found = pa.array([value])
        return str(key_text(pa.chunked_array([found]), name)[0].as_py())
    except (pa.ArrowException, UnicodeError, OverflowError, SchemaError) as error:
        raise InputError(f"{value!r} cannot be the value of the partition column {name}", hint="give a plain value") from error


def _example(properties: TableProperties) -> str:
    fields = properties.partition_fields
    return f"write for example {'/'.join(f'{field}=...' for field in fields)}" if fields else "the table has no partitions"


def files_within(snapshot: Snapshot, targets: Sequence[Resource]) -> tuple[DataFile, ...]:
    """The files of these partitions and prefixes, all files without one. Of other partitions nothing is read."""
    if not targets:
        return snapshot.files
    partitions = [partition for partition in snapshot.partitions if within(partition, targets)]
    return tuple(file for partition in partitions for file in snapshot.in_partition(partition))


def within(partition: str, targets: Iterable[Resource]) -> bool:
    """Whether a partition is one of the targets, or below one."""
    parts = Resource.of(partition).parts
    return any(parts[: len(target.parts)] == target.parts for target in targets)


def ensure_within(partitions: Iterable[str], targets: Sequence[Resource], who: str) -> None:
    """`InputError` if `who` writes into a partition outside the targets; without targets, any partition is allowed."""
    outside = sorted({each for each in partitions if not within(each, targets)}) if targets else []
    if not outside:
        return
    more = f" and {len(outside) - 1} more" if len(outside) > 1 else ""
    raise InputError(
        f"{who} is for {', '.join(map(str, targets[:3]))}, but has rows for {outside[0] or 'the table'}{more}",
        hint="filter the rows by the partition, name every partition that they are for, or leave the partition out",
        outside=outside[:20],
    )


def target_of_condition(condition: str, schema: pa.Schema, properties: TableProperties) -> tuple[Resource, ...]:
    """The prefix outside which no row can satisfy a condition in SQL; none when the text does not say so plainly.

    Plainly is `column = value`, alone or joined by AND, for the first partition columns. Whatever else is in it
    (parentheses, OR, another operator) may only make the answer "the table", which is always right.
    """
    bare = _QUOTED.sub("''", condition)
    if _COMPLEX.search(bare) or bare.count("'") % 2 or '"' in bare:
        return ()
    # Blanked quotes keep an AND within a text from being taken for a word of the condition.
    starts = [0, *(found.end() for found in re.finditer(r"\bAND\b", _blanked(condition), re.IGNORECASE))]
    ends = [*(found.start() for found in re.finditer(r"\bAND\b", _blanked(condition), re.IGNORECASE)), len(condition)]
    terms = [condition[start:end] for start, end in zip(starts, ends, strict=True)]
    return _target_of(terms, schema, properties)


def target_of_expression(expression: str, schema: pa.Schema, properties: TableProperties) -> tuple[Resource, ...]:
    """The same for the text of an Arrow expression, such as `((month == "1") and (v > 3))`."""
    return _target_of(_conjuncts(expression), schema, properties)


def _conjuncts(text: str) -> list[str]:
    """The terms that Arrow joined by `and`: it writes a pair of parentheses around each operation."""
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', lambda found: "_" * len(found[0]), text)
    if not (bare.startswith("(") and bare.endswith(")")):
        return [text]
    depth = 0
    for at, character in enumerate(bare[1:-1], start=1):
        depth += (character == "(") - (character == ")")
        if depth < 0:
            return [text]
        if depth == 0 and bare.startswith(" and ", at):
            return [*_conjuncts(text[1:at]), *_conjuncts(text[at + 5 : -1])]
    return [text[1:-1]]


def _target_of(terms: Iterable[str], schema: pa.Schema, properties: TableProperties) -> tuple[Resource, ...]:
    """The prefix that those terms fix which are plain equalities; the others only narrow it further."""
    values: dict[str, object] = {}
    by_lower = {name.lower(): name for name in properties.partition_fields}
    for term in terms:
        found = _EQUALS.fullmatch(term)
        name = by_lower.get(found[1].lower()) if found else None
        if found is None or name is None:
            continue
        value = _literal(found, schema.field(name).type) if schema.get_field_index(name) >= 0 else None
        if value is None or values.get(name, value) != value:
            return ()
        values[name] = value
    known: dict[str, object] = {}
    for field in properties.partition_fields:
        if field not in values:
            break
        known[field] = values[field]
    try:
        return (resource_of_values(known, properties),) if known else ()
    except InputError:
        return ()


def _blanked(condition: str) -> str:
    return _QUOTED.sub(lambda found: "'" + " " * (len(found[0]) - 2) + "'", condition)


def _literal(found: re.Match[str], kind: pa.DataType) -> object:
    """The value as it is in the partition's path; None where the types differ, for SQL then compares in its own way."""
    text = next((each for each in found.groups()[1:3] if each is not None), None)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return text
    if pa.types.is_integer(kind) and text is None:
        return int(found[4])
    return None


@dataclass(frozen=True)
class WriteRequest:
    """One write of a table. `operation` is Hudi's name for it (INSERT, UPSERT, DELETE, INSERT_OVERWRITE, …).

    `partition` names what may be written: anything else is an `InputError` at the commit. In PESSIMISTIC mode it is locked for
    all attempts together; where it is not named, what is `likely`, else the table. `tag` is kept in the commit. The write of an
    `application` is applied once by its version. `overwrites` lets it replace whole partitions (default: by the operation's
    name).

    `redoes`: an attempt reuses what it can of the one that `tx.redo` names, up to `RetrySettings.redo_attempts` times.
    `records_lock`: False for a job that knows its settings only once its tasks run. As the table's first writer it then neither
    records its lock nor removes anything under it, and calls `ensure_same_provider` before it commits.
    `new_group`: a file group that is sure to get its first file; that file is announced at the beginning, at no extra wait.
    `called`: the name of the call for a terminal, if that is not the operation.
    """

    operation: str
    partition: Targets = None
    tag: str = ""
    application: AppTransaction | None = None
    likely: tuple[Resource, ...] = ()
    overwrites: bool | None = None
    redoes: bool = False
    records_lock: bool = True
    new_group: FileGroupId | None = None
    called: str = ""

    @classmethod
    def of(cls, request: WriteRequest | str) -> WriteRequest:
        """The request; the mere name of an operation is one that asks for nothing else."""
        return cls(request) if isinstance(request, str) else request


class Every(Enum):
    """What a call is about that names no rows. It is not None, so that a variable that is None by mistake deletes nothing."""

    ROW = "every row"


def numbered(txn_app_id: object, txn_version: object) -> AppTransaction | None:
    """The application's own number of a write, None if it has none; `InputError` unless both parts are given and valid."""
    if txn_app_id is None and txn_version is None:
        return None
    if txn_app_id is None or txn_version is None:
        given, missing = ("txn_version", "txn_app_id") if txn_app_id is None else ("txn_app_id", "txn_version")
        hint = 'name both, such as txn_app_id="nightly-load", txn_version=7, or neither'
        raise InputError(f"{given} is given without {missing}: only both together make a write apply once", hint=hint)
    if not isinstance(txn_app_id, str) or not txn_app_id:
        raise InputError(f"txn_app_id is {txn_app_id!r}", hint="use a text that names the job, the same in every run")
    if isinstance(txn_version, bool) or not isinstance(txn_version, SupportsIndex) or not -(2**63) < index(txn_version) < 2**63:
        hint = "use a whole number that grows from write to write and is the same when a write is run again"
        raise InputError(f"txn_version is {txn_version!r}, not a whole number of 64 bits", hint=hint)
    return AppTransaction(txn_app_id, index(txn_version))


def names(columns: str | Sequence[str]) -> tuple[str, ...]:
    """Columns given as one name or several."""
    return (columns,) if isinstance(columns, str) else tuple(columns)


def key_of(columns: str | Sequence[str] | None) -> tuple[str, ...]:
    """The key columns of a new table, none for None; `InputError` for an empty list, since a key cannot be added later."""
    found = () if columns is None else names(columns)
    if columns is not None and not found:
        raise InputError(
            "key is an empty list", hint="name the columns that identify a row, or leave key out for a table without"
        )
    return found
