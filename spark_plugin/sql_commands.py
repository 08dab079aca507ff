"""From the text of a session's statement to a command about lake tables, or None for a statement that is Spark's alone.

Of an UPDATE, DELETE, MERGE or INSERT only the names of tables are read here; `sql_changes.py` reads the same words as a whole.
A query is Spark's, around the names of tables. `CALL` names procedures of Hudi, where a `LakeTable` does the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from math import inf

from sqlglot import Token

from lakelock.errors import InputError
from lakelock.spark_plugin.sql_operations import (
    PROCEDURES,
    TABLE_ARGUMENTS,
    Alter,
    By,
    Call,
    Change,
    ColumnChange,
    Command,
    Describe,
    Moment,
    Name,
    Optimize,
    Procedure,
    Query,
    Relation,
    Restore,
    Unreadable,
    Vacuum,
    form_of_call,
    is_path,
)
from lakelock.spark_plugin.sql_refusals import BEFORE_TABLE, refuse_alteration, refuse_catalog, refused_command, unreadable
from lakelock.spark_plugin.sql_words import Unclear, Words
from lakelock.texts import did_you_mean

FORM = (
    "ALTER TABLE the table ADD COLUMNS (name type, …), RENAME COLUMN name TO name, DROP COLUMNS (name, …), or ALTER COLUMN name"
    " and then TYPE type, DROP NOT NULL, FIRST or AFTER name"
)


def alter(words: Words, target: Relation, at: int) -> Alter:
    """The change that begins at a word; `InputError` for any other."""
    verb = words[at]
    refuse_alteration(words, at)
    column = at + 1 + (words[at + 1] in ("COLUMN", "COLUMNS"))
    try:
        if verb == "ADD":
            return Alter(target, ColumnChange.ADD, tuple(_defined(words, *_list_range(words, column))))
        if verb == "DROP" and column > at + 1:
            names = (_name(words, *part) for part in words.parts(*_list_range(words, column)))
            return Alter(target, ColumnChange.DROP, tuple((name, "") for name in names))
        if verb == "RENAME" and column > at + 1:
            to = words.find(column, len(words), "TO")
            return Alter(target, ColumnChange.RENAME, ((_name(words, column, to), _name(words, to + 1, len(words))),))
        if verb in ("ALTER", "CHANGE"):
            return _changed(words, target, column)
    except Unclear:
        pass
    raise unreadable(FORM, verb)


def _changed(words: Words, target: Relation, start: int) -> Alter:
    """What `ALTER COLUMN` says after it."""
    end = next(iter(words.every(start, len(words), "TYPE", "FIRST", "AFTER", "DROP")), len(words))
    name = _name(words, start, end)
    if words[end] == "TYPE":
        return Alter(target, ColumnChange.WIDEN, ((name, words.piece(end + 1, len(words))),))
    if words[end] == "AFTER":
        return Alter(target, ColumnChange.PLACE, ((name, _name(words, end + 1, len(words))),))
    if words[end] == "FIRST" and end + 1 == len(words):
        return Alter(target, ColumnChange.PLACE, ((name, ""),))
    if tuple(words[at] for at in range(end, len(words))) == ("DROP", "NOT", "NULL"):
        return Alter(target, ColumnChange.RELAX, ((name, ""),))
    raise Unclear(end)


def _list_range(words: Words, at: int) -> tuple[int, int]:
    """The range of a list, with parentheses around it or without."""
    if words[at] != "(":
        return at, len(words)
    start, end = words.group(at)
    if end + 1 < len(words):
        raise Unclear(end + 1)
    return start, end


def _definitions(words: Words, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """The ranges between commas, except those within the angle brackets of a type."""
    begin = start
    for _, last in words.parts(start, stop):
        text = words.piece(begin, last)
        if text.count("<") == text.count(">"):
            yield begin, last
            begin = last + 1
    if begin <= stop - 1:
        raise Unclear(begin)


def _defined(words: Words, start: int, stop: int) -> Iterator[tuple[str, str]]:
    """Names and types; what may follow a type (COMMENT, FIRST, NOT NULL, DEFAULT) is Unclear, for it would have no effect."""
    for first, last in _definitions(words, start, stop):
        after = first + 1
        while words[after] == "." and after + 1 < last:
            after += 2
        if next(iter(words.every(after, last, "COMMENT", "FIRST", "AFTER", "NOT", "DEFAULT")), None) is not None:
            raise Unclear(after)
        yield _name(words, first, after), words.piece(after, last)


def _name(words: Words, start: int, stop: int) -> str:
    """A name of words and points only."""
    if not start < stop or any(words[at] != "." for at in range(start + 1, stop, 2)) or (stop - start) % 2 == 0:
        raise Unclear(start)
    return ".".join(unquoted(words.piece(at, at + 1)) for at in range(start, stop, 2))


def unquoted(name: str) -> str:
    """A name without the quotes around it."""
    return name[1:-1].replace("``", "`") if name.startswith("`") and name.endswith("`") and len(name) > 1 else name


_READS = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "EXPLAIN", "DESCRIBE", "DESC", "(")
_BEFORE_SOURCES = ("FROM", "JOIN", ",", "TABLE", "USING", "(")
_CHANGES = {"UPDATE": ((),), "DELETE": (("FROM",),), "MERGE": (("INTO",),), "INSERT": (("INTO",), ("OVERWRITE",))}


def command_of(statement: str | Words) -> Command | None:
    """The command; `InputError` for one about lake tables that cannot be read, or that neither `sql` nor Spark could run."""
    words = Words.of(statement)
    first = words[0]
    if first in _CHANGES and (change := _change(words)):
        return change
    if first == "CALL":
        procedure = procedure_of(words)
        return None if procedure is None else Call(Relation(procedure.table, 0, 0), procedure)
    if first in ("DESCRIBE", "DESC") and words[1] in ("HISTORY", "DETAIL"):
        return _about(words, 2, _describe)
    if first in _ABOUT and (first != "ALTER" or words[1] == "TABLE"):
        return _about(words, 1 + (words[1] == "TABLE"), _ABOUT[first])
    refuse_catalog(words)
    named = next((at for at in range(1, len(words)) if words[at - 1] in BEFORE_TABLE.get(first, ())), 0)
    if named:
        return Unreadable(_relation(words, named)[0], refused_command(first))
    relations = tuple(_relations(words, 0))
    if not relations:
        return None
    if first not in _READS or any(words[at] in _CHANGES and words.depths[at] == 0 for at in range(1, len(words))):
        if any(relation.path for relation in relations):
            raise refused_command(first)
        return None
    return Query(relations)


_NUMBERS = ("limit", "hours_retained")
_ELSEWHERE = {
    "rollback_to_instant": "table.restore(as_of) makes the table what it was; show_commits lists the instants",
    "show_clustering": "show_commits: a clustering is a commit with the operation CLUSTER",
    "show_rollbacks": "`lakelock conflicts ls PATH` lists what was rejected",
    "show_commit_files": "`lakelock commits show PATH INSTANT`",
    "stats_file_sizes": "table.detail(), or DESCRIBE DETAIL",
}


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
        raise InputError(f"sql() cannot read this call of {name}", hint=form_of_call(name)) from None
    if found and not found[0][0]:
        found[0] = (TABLE_ARGUMENTS[0], found[0][1])
    known = (*TABLE_ARGUMENTS, *PROCEDURES[name])
    for named, value in found:
        if named not in known:
            guess = did_you_mean(named, known) if named else ""
            raise InputError(f"{name} has no argument {named or value!r}{guess}", hint=form_of_call(name))
    given = {named: _fitting(name, named, value) for named, value in found}
    if not set(given) & set(TABLE_ARGUMENTS):
        raise InputError(f"{name} was called without a table", hint=form_of_call(name))
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
        raise InputError(f"{call} takes a text in quotes as {name}, not {value!r}", hint=form_of_call(call))
    with suppress(ValueError):
        number = float(value)
        if 0 <= number < inf and (name != "limit" or number.is_integer()):
            return number
    raise InputError(f"{call} takes a number as {name}, not {value!r}", hint=form_of_call(call))


def names_in(words: Words) -> tuple[Name, ...]:
    """The names that stand where a statement may name what it reads. A column may be among them."""
    places = (at for at in range(len(words)) if words[at - 1] in _BEFORE_SOURCES)
    return tuple(_relation(words, at)[0].name for at in places)


def _change(words: Words) -> Change | None:
    at = next((1 + len(after) for after in _CHANGES[words[0]] if all(words[1 + n] == word for n, word in enumerate(after))), 0)
    if not at:
        return None
    at += words[at] == "TABLE"
    target, after = _relation(words, at)
    return Change(target, tuple(relation for relation in _relations(words, after) if relation.path))


def _about(words: Words, at: int, read: Callable[[Words, Relation, int], Command]) -> Command:
    target, after = _relation(words, at)
    try:
        return read(words, target, after)
    except InputError as error:
        return Unreadable(target, error)


def _describe(words: Words, target: Relation, at: int) -> Describe:
    history, limit = words[1] == "HISTORY", None
    if history and words[at] == "LIMIT" and words[at + 1].isdigit():
        limit, at = int(words[at + 1]), at + 2
    _require_end(words, at, f"DESCRIBE {words[1]} the table" + (" LIMIT 10" if history else ""))
    return Describe(target, history, limit)


def _vacuum(words: Words, target: Relation, at: int) -> Vacuum:
    hours, dry = None, False
    if words[at] == "RETAIN" and words[at + 2] in ("HOURS", "HOUR") and re.fullmatch(r"\d+(\.\d+)?", words[at + 1]):
        hours, at = float(words[at + 1]), at + 3
    if (words[at], words[at + 1]) == ("DRY", "RUN"):
        dry, at = True, at + 2
    _require_end(words, at, "VACUUM the table RETAIN 24 HOURS DRY RUN")
    return Vacuum(target, hours, dry)


def _optimize(words: Words, target: Relation, at: int) -> Optimize:
    where: str | None = None
    columns: tuple[str, ...] = ()
    zorder = words.find(at, len(words), "ZORDER") if at < len(words) else at
    if words[at] == "WHERE":
        where, at = _piece(words, at + 1, zorder), zorder
    if (words[at], words[at + 1]) == ("ZORDER", "BY"):
        start, end = words.group(at + 2) if words[at + 2] == "(" else (at + 2, len(words))
        columns = tuple(_named(words.tokens[part]) for part, stop in words.parts(start, end) if stop == part + 1)
        at = end + (words[at + 2] == "(") if columns else at
    _require_end(words, at, "OPTIMIZE the table WHERE condition ZORDER BY (columns)")
    return Optimize(target, where, columns)


def _restore(words: Words, target: Relation, at: int) -> Restore:
    at += words[at] == "TO"
    found = _moment(words, at)
    if found is None:
        raise unreadable("RESTORE TABLE the table TO VERSION AS OF 'instant', or TO TIMESTAMP AS OF 'time'")
    _require_end(words, found[1], "RESTORE TABLE the table TO TIMESTAMP AS OF (time)")
    return Restore(target, found[0])


_ABOUT: dict[str, Callable[[Words, Relation, int], Command]] = {
    "ALTER": alter,
    "VACUUM": _vacuum,
    "OPTIMIZE": _optimize,
    "RESTORE": _restore,
}


def _relation(words: Words, at: int) -> tuple[Relation, int]:
    """The table whose name begins at a word, and the word after it."""
    start = at
    if not words[at]:
        raise unreadable("the name of a table, or lakelock.`/its/path`")
    while words[at + 1] == "." and words[at + 2]:
        at += 2
    name = tuple(_named(words.tokens[part]) for part in range(start, at + 1, 2))
    return Relation(name, words.tokens[start].start, words.tokens[at].end + 1), at + 1


def _relations(words: Words, at: int) -> Iterator[Relation]:
    """The paths, and the names with a moment, from a word on."""
    while at < len(words):
        name, after = _relation(words, at)
        try:
            moment = None if words[at] in (",", "(", ")") else _moment(words, after)
        except InputError:
            if is_path(name.name):
                raise
            moment = None
        if moment is not None and (is_path(name.name) or words[at - 1] in ("FROM", "JOIN", ",", "TABLE", "USING")):
            yield Relation(name.name, name.start, words.tokens[moment[1] - 1].end + 1, moment[0])
            after = moment[1]
        elif is_path(name.name):
            yield name
        at = after


def _moment(words: Words, at: int) -> tuple[Moment, int] | None:
    """The moment that begins at a word, and the word after it."""
    kinds = {"TIMESTAMP": By.TIME, "SYSTEM_TIME": By.TIME, "VERSION": By.INSTANT, "SYSTEM_VERSION": By.INSTANT}
    at += words[at] == "FOR"
    if words[at] not in kinds or (words[at + 1], words[at + 2]) != ("AS", "OF"):
        return None
    start = at + 3
    if words[start] == "(":
        end = words.group(start)[1] + 1
    else:
        end = start + 1
        if words[end] == "(":
            end = words.group(end)[1] + 1
    if not words[start] or words[end] in ("+", "-", "*", "/", "||"):
        raise InputError(f"the statement's {words[at]} AS OF has no plain value", hint="put parentheses around the expression")
    return Moment(kinds[words[at]], _piece(words, start, end)), end


def _piece(words: Words, start: int, stop: int) -> str:
    if not start < stop:
        raise unreadable("a condition after WHERE")
    return words.piece(start, stop)


def _named(token: Token) -> str:
    return str(token.text)


def _require_end(words: Words, at: int, form: str) -> None:
    if at < len(words):
        raise unreadable(form, words[at])
