"""From the text of a statement to a command about lake tables, or None for a statement that is Spark's alone.

Words are sqlglot's. What surrounds the names of tables is left to whoever runs the statement: `table.sql`, or Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from sqlglot import Token

from lakelock.errors import InputError
from lakelock.spark_plugin.session_sql.altering import alter
from lakelock.spark_plugin.session_sql.commands import (
    By,
    Change,
    Command,
    Describe,
    Moment,
    Optimize,
    Query,
    Relation,
    Restore,
    Unreadable,
    Vacuum,
    is_path,
)
from lakelock.spark_plugin.session_sql.refusals import BEFORE_TABLE, refuse_catalog, refused, unreadable
from lakelock.spark_plugin.statements.operations import Name
from lakelock.spark_plugin.statements.words import Words

_WHOLE = ("VACUUM", "OPTIMIZE", "EXPLAIN", "SHOW")
_READS = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "EXPLAIN", "DESCRIBE", "DESC", "(")
_BEFORE_SOURCES = ("FROM", "JOIN", ",", "TABLE", "USING", "(")
_CHANGES = {"UPDATE": ((),), "DELETE": (("FROM",),), "MERGE": (("INTO",),), "INSERT": (("INTO",), ("OVERWRITE",))}


def command_of(text: str) -> Command | None:
    """The command; `InputError` for one about lake tables that cannot be read, or that nobody could run."""
    words = _words(text)
    first = words[0]
    if first in _CHANGES and (change := _change(words, text)):
        return change
    if first in ("DESCRIBE", "DESC") and words[1] in ("HISTORY", "DETAIL"):
        return _about(words, text, 2, _describe)
    if first in _ABOUT and (first != "ALTER" or words[1] == "TABLE"):
        return _about(words, text, 1 + (words[1] == "TABLE"), _ABOUT[first])
    refuse_catalog(words)
    named = next((at for at in range(1, len(words)) if words[at - 1] in BEFORE_TABLE.get(first, ())), 0)
    if named:
        return Unreadable(_relation(words, text, named)[0], refused(first))
    relations = tuple(_relations(words, text, 0))
    if not relations:
        return None
    if first not in _READS or any(words[at] in _CHANGES and words.depths[at] == 0 for at in range(1, len(words))):
        if any(relation.path for relation in relations):
            raise refused(first)
        return None
    return Query(relations)


def names_in(text: str) -> tuple[Name, ...]:
    """The names that stand where a statement may name what it reads. A column may be among them."""
    words = _words(text)
    places = (at for at in range(len(words)) if words[at - 1] in _BEFORE_SOURCES)
    return tuple(_relation(words, text, at)[0].name for at in places)


def _words(text: str) -> Words:
    words = Words.of(text)
    if words[0] in _WHOLE:
        # sqlglot keeps what follows such a word in one piece, so the word is hidden from it.
        first = words.tokens[0]
        hidden = Words.of(text[: first.start] + "x" * len(words[0]) + text[first.end + 1 :])
        words = Words(text, hidden.tokens, hidden.depths)
    end = len(words)
    while end and words[end - 1] == ";":
        end -= 1
    return Words(text, words.tokens[:end], words.depths[:end])


def _change(words: Words, text: str) -> Change | None:
    at = next((1 + len(after) for after in _CHANGES[words[0]] if all(words[1 + n] == word for n, word in enumerate(after))), 0)
    if not at:
        return None
    at += words[at] == "TABLE"
    target, after = _relation(words, text, at)
    alias = words[0] == "INSERT" or words[after] not in ("SET", "WHERE", "USING", "")
    sources = tuple(relation for relation in _relations(words, text, after) if relation.path)
    return Change(target, alias, sources)


def _about(words: Words, text: str, at: int, read: Callable[[Words, str, Relation, int], Command]) -> Command:
    target, after = _relation(words, text, at)
    try:
        return read(words, text, target, after)
    except InputError as error:
        return Unreadable(target, error)


def _describe(words: Words, text: str, target: Relation, at: int) -> Describe:
    history, limit = words[1] == "HISTORY", None
    if history and words[at] == "LIMIT" and words[at + 1].isdigit():
        limit, at = int(words[at + 1]), at + 2
    _require_end(words, at, f"DESCRIBE {words[1]} the table" + (" LIMIT 10" if history else ""))
    return Describe(target, history, limit)


def _vacuum(words: Words, text: str, target: Relation, at: int) -> Vacuum:
    hours, dry = None, False
    if words[at] == "RETAIN" and words[at + 2] in ("HOURS", "HOUR") and re.fullmatch(r"\d+(\.\d+)?", words[at + 1]):
        hours, at = float(words[at + 1]), at + 3
    if (words[at], words[at + 1]) == ("DRY", "RUN"):
        dry, at = True, at + 2
    _require_end(words, at, "VACUUM the table RETAIN 24 HOURS DRY RUN")
    return Vacuum(target, hours, dry)


def _optimize(words: Words, text: str, target: Relation, at: int) -> Optimize:
    where: str | None = None
    columns: tuple[str, ...] = ()
    zorder = words.find(at, len(words), "ZORDER") if at < len(words) else at
    if words[at] == "WHERE":
        where, at = _piece(words, text, at + 1, zorder), zorder
    if (words[at], words[at + 1]) == ("ZORDER", "BY"):
        start, end = words.group(at + 2) if words[at + 2] == "(" else (at + 2, len(words))
        columns = tuple(_named(words.tokens[part]) for part, stop in words.parts(start, end) if stop == part + 1)
        at = end + (words[at + 2] == "(") if columns else at
    _require_end(words, at, "OPTIMIZE the table WHERE condition ZORDER BY (columns)")
    return Optimize(target, where, columns)


def _restore(words: Words, text: str, target: Relation, at: int) -> Restore:
    at += words[at] == "TO"
    found = _moment(words, text, at)
    if found is None:
        raise unreadable("RESTORE TABLE the table TO VERSION AS OF 'instant', or TO TIMESTAMP AS OF 'time'")
    _require_end(words, found[1], "RESTORE TABLE the table TO TIMESTAMP AS OF (time)")
    return Restore(target, found[0])


_ABOUT: dict[str, Callable[[Words, str, Relation, int], Command]] = {
    "ALTER": alter,
    "VACUUM": _vacuum,
    "OPTIMIZE": _optimize,
    "RESTORE": _restore,
}


def _relation(words: Words, text: str, at: int) -> tuple[Relation, int]:
    """The table whose name begins at a word, and the word after it."""
    start = at
    if not words[at]:
        raise unreadable("the name of a table, or lakelock.`/its/path`")
    while words[at + 1] == "." and words[at + 2]:
        at += 2
    name = tuple(_named(words.tokens[part]) for part in range(start, at + 1, 2))
    return Relation(name, words.tokens[start].start, words.tokens[at].end + 1), at + 1


def _relations(words: Words, text: str, at: int) -> Iterator[Relation]:
    """The paths, and the names with a moment, from a word on."""
    while at < len(words):
        name, after = _relation(words, text, at)
        try:
            moment = None if words[at] in (",", "(", ")") else _moment(words, text, after)
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


def _moment(words: Words, text: str, at: int) -> tuple[Moment, int] | None:
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
    return Moment(kinds[words[at]], _piece(words, text, start, end)), end


def _piece(words: Words, text: str, start: int, stop: int) -> str:
    if not start < stop:
        raise unreadable("a condition after WHERE")
    return text[words.tokens[start].start : words.tokens[stop - 1].end + 1]


def _named(token: Token) -> str:
    return str(token.text)


def _require_end(words: Words, at: int, form: str) -> None:
    if at < len(words):
        raise unreadable(form, words[at])
