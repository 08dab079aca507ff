"""The part of a table that people ask about, from text: a partition, a condition, or everything."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from lakelock.data_locks.base import Resource
from lakelock.errors import InputError
from lakelock.occ.locking.targets import resources_of, target_of_condition, within
from lakelock.table.properties import TableProperties
from lakelock.texts import did_you_mean

_PATH = re.compile(r"""\w+\s*=\s*[^\s'"<>=!(),;/]+(/\w+=[^\s'"<>=!(),;/]+)*""")
_BARE = re.compile(r"""[^\s'"<>=!(),;]+""")
_QUOTED = re.compile(r"""'[^']*'|"[^"]*"|`[^`]*[^\w`][^`]*`""")
_COMPARED = re.compile(r"(?<![\w.:`])`?([A-Za-z_]\w*)`?\s*(?:=|<|>|!=|\b(?:NOT|IN|IS|LIKE|RLIKE|BETWEEN)\b)", re.IGNORECASE)
_OPERATOR = r"(?:<=>|[<>!=]=|<>|[=<>+/%-]|\b(?:AND|OR|NOT|IN|IS|LIKE|RLIKE|BETWEEN)\b)"
_CUT_OFF = re.compile(rf"({_OPERATOR})\s*(?:$|\)|\b(?:AND|OR)\b)", re.IGNORECASE)
_WITHOUT_START = re.compile(r"(?:^|\(|\b(?:AND|OR)\b)\s*([<>!=]+|\b(?:AND|OR|IN|IS|LIKE|RLIKE|BETWEEN)\b)", re.IGNORECASE)
_UNITS = ("year", "month", "week", "day", "hour", "minute", "second")
_WORDS = frozenset(
    (*_UNITS, *(f"{unit}s" for unit in _UNITS), "and", "or", "not", "in", "is", "like", "rlike", "between", "null", "true",
     "false", "case", "when", "then", "else", "end", "exists", "current_date", "current_timestamp")
)  # fmt: skip
"""What may stand before an operator and is no column."""
_NEW = "*"
"""Stands for the value of a partition that nobody has written to yet."""


@dataclass(frozen=True)
class Scope:
    """The part of a table that an operation is about: everywhere without `targets`. `condition` is empty for all rows there.

    `fields` are the table's partition columns.
    """

    targets: tuple[Resource, ...] = ()
    condition: str = ""
    fields: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str, schema: pa.Schema, properties: TableProperties) -> Scope:
        """What a partition such as `month=1/day=2`, or a condition in SQL, chooses; `InputError` for a column that is unknown.

        A condition that fixes no partition in plain words may be about any.
        """
        fields = tuple(properties.partition_fields)
        if not text:
            return cls(fields=fields)
        column = text.partition("=")[0].strip()
        is_column = schema.get_field_index(column) >= 0
        if (_PATH.fullmatch(text) and (column in fields or not is_column)) or (_BARE.fullmatch(text) and not is_column):
            return cls(resources_of(re.sub(r"\s*=\s*", "=", text), properties), fields=fields)
        _ensure_whole(text)
        _ensure_known(text, schema)
        targets = target_of_condition(text, schema, properties)
        terms = len(re.split(r"\bAND\b", text, flags=re.IGNORECASE))
        return cls(targets, "" if targets and len(targets[0].parts) == terms else text, fields)

    def has(self, partition: str) -> bool:
        return not self.targets or within(partition, self.targets)

    @property
    def is_exact(self) -> bool:
        """Whether it is all rows of partitions that are each named, or of a table that has none."""
        depth = len(self.fields)
        named = bool(self.targets) or not depth
        return named and not self.condition and all(len(target.parts) == depth for target in self.targets)

    @property
    def named(self) -> frozenset[str]:
        """The partitions that it names."""
        return frozenset(target.path for target in self.targets if len(target.parts) == len(self.fields))

    def partitions(self, known: Iterable[str]) -> frozenset[str]:
        """Those of the known partitions that are in it, those that it names, and one that stands for any new one in it."""
        if not self.fields:
            return frozenset({""})
        prefixes = self.targets or (Resource(),)
        new = ("/".join((*prefix.parts, *self._new_below(prefix))) for prefix in prefixes)
        return self.named.union(filter(self.has, known), new)

    def _new_below(self, prefix: Resource) -> Iterable[str]:
        return (f"{field}={_NEW}" for field in self.fields[len(prefix.parts) :])


def _ensure_whole(condition: str) -> None:
    """`InputError` for half a condition, as far as the text shows it plainly: quotes may be escaped by backslashes."""
    if "\\" in condition:
        return
    bare = _QUOTED.sub("''", condition)
    cut_off, without_start = _CUT_OFF.search(bare), _WITHOUT_START.search(bare)
    if cut_off is not None:
        problem = f"nothing follows its {cut_off[1]}"
    elif without_start is not None:
        problem = f"nothing stands before its {without_start[1]}"
    elif bare.count("(") != bare.count(")"):
        problem = "a parenthesis is missing"
    elif bare.count("'") % 2 or bare.count('"') % 2:
        problem = "a quote is missing"
    else:
        return
    raise InputError(
        f"{condition!r} is not a whole condition: {problem}", hint='write it as in SQL, such as "DELETE amount > 5"'
    )


def _ensure_known(condition: str, schema: pa.Schema) -> None:
    """`InputError` for a comparison of a column that the table does not have, as far as the text shows it plainly."""
    known = {name.lower() for name in schema.names}
    for name in _COMPARED.findall(_QUOTED.sub("''", condition)):
        if name.lower() not in known and name.lower() not in _WORDS:
            guess = did_you_mean(name, schema.names)
            raise InputError(f"{name!r} is not a column of the table{guess}", hint=f"it has {', '.join(schema.names)}")
