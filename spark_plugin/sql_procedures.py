"""The procedures of Hudi that `CALL` names, where a `LakeTable` does the same, and what each takes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import inf

from lakelock.errors import InputError
from lakelock.spark_plugin.sql_words import Unclear, Words
from lakelock.texts import did_you_mean

_TABLE = ("table", "path")
PROCEDURES: Mapping[str, tuple[str, ...]] = {
    "show_commits": ("limit",),
    "run_clustering": ("predicate", "order"),
    "run_compaction": ("op",),
    "run_clean": ("hours_retained",),
    "create_savepoint": ("commit_time", "name"),
    "delete_savepoint": ("instant_time", "name"),
    "show_savepoints": (),
    "rollback_to_savepoint": ("instant_time",),
}
"""The procedures, and the arguments of each besides `table` and `path`."""
_NUMBERS = ("limit", "hours_retained")
_ELSEWHERE = {
    "rollback_to_instant": "table.restore(as_of) makes the table what it was; show_commits lists the instants",
    "show_clustering": "show_commits: a clustering is a commit with the operation CLUSTER",
    "show_rollbacks": "`lakelock conflicts ls PATH` lists what was rejected",
    "show_commit_files": "`lakelock commits show PATH INSTANT`",
    "stats_file_sizes": "table.detail(), or DESCRIBE DETAIL",
}


@dataclass(frozen=True)
class Procedure:
    """`CALL name(table => 'a view', ...)`: the table is named by a view, or by its path."""

    name: str
    arguments: Mapping[str, str | float]

    @property
    def table(self) -> tuple[str, ...]:
        """What the table is called, as a statement would name it."""
        path = self.arguments.get("path")
        return ("lakelock", str(path)) if path is not None else tuple(str(self.arguments["table"]).split("."))

    def required(self, *names: str) -> str:
        """The first of these arguments that it has; `InputError` if it has none."""
        found = next((str(self.arguments[name]) for name in names if name in self.arguments), "")
        if not found:
            raise InputError(f"{self.name} was called without {names[-1]}", hint=_form(self.name))
        return found


def procedure_of(words: Words) -> Procedure | None:
    """The procedure that a CALL names, None for one that Hudi does not have.

    `InputError` for one without a counterpart, and for arguments that it does not take.
    """
    opening = next((at for at in range(1, len(words)) if words[at] == "("), 0)
    name = words[opening - 1].lower().strip("`") if opening > 1 else ""
    if name in _ELSEWHERE:
        raise InputError(f"there is no procedure {name} here", hint=_ELSEWHERE[name])
    if name not in PROCEDURES:
        return None
    try:
        start, stop = words.group(opening)
        found = [_argument(words, *part) for part in words.parts(start, stop)] if start < stop else []
    except (Unclear, ValueError):
        raise InputError(f"sql() cannot read this call of {name}", hint=_form(name)) from None
    if found and not found[0][0]:
        found[0] = (_TABLE[0], found[0][1])
    known = (*_TABLE, *PROCEDURES[name])
    for named, value in found:
        if named not in known:
            guess = did_you_mean(named, known) if named else ""
            raise InputError(f"{name} has no argument {named or value!r}{guess}", hint=_form(name))
    given = {named: _fitting(name, named, value) for named, value in found}
    if not set(given) & set(_TABLE):
        raise InputError(f"{name} was called without a table", hint=_form(name))
    return Procedure(name, given)


def _argument(words: Words, first: int, last: int) -> tuple[str, str | float]:
    """One `name => value`; an empty name for a value alone."""
    arrow = words.find(first, last, "=>")
    value = words.piece(arrow + 1 if arrow < last else first, last)
    name = words.piece(first, arrow).lower().strip("`") if arrow < last else ""
    if value[:1] in ("'", '"') and value[-1:] == value[:1] and len(value) > 1:
        return name, value[1:-1]
    return name, float(value)


def _fitting(call: str, name: str, value: str | float) -> str | float:
    """The value of an argument; `InputError` for one of another kind, and for an empty text."""
    if name not in _NUMBERS:
        if isinstance(value, str) and value.strip():
            return value
        raise InputError(f"{call} takes a text in quotes as {name}, not {value!r}", hint=_form(call))
    with suppress(ValueError):
        number = float(value)
        if 0 <= number < inf and (name != "limit" or number.is_integer()):
            return number
    raise InputError(f"{call} takes a number as {name}, not {value!r}", hint=_form(call))


def _form(name: str) -> str:
    more = "".join(f", {each} => …" for each in PROCEDURES[name])
    return f"CALL {name}(table => 'a view of the table'{more}), or path => '/lake/table' instead of table"
