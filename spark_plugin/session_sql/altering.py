"""The part of `ALTER TABLE` after the table's name: what becomes of which columns."""

from __future__ import annotations

from collections.abc import Iterator

from lakelock.spark_plugin.session_sql.commands import Alter, ColumnChange, Relation
from lakelock.spark_plugin.session_sql.refusals import refuse_alteration, unreadable
from lakelock.spark_plugin.statements.words import Unclear, Words

FORM = (
    "ALTER TABLE the table ADD COLUMNS (name type, …), RENAME COLUMN name TO name, DROP COLUMNS (name, …), or ALTER COLUMN name"
    " and then TYPE type, DROP NOT NULL, FIRST or AFTER name"
)


def alter(words: Words, text: str, target: Relation, at: int) -> Alter:
    """The change that begins at a word; `InputError` for any other."""
    verb = words[at]
    refuse_alteration(words, at)
    column = at + 1 + (words[at + 1] in ("COLUMN", "COLUMNS"))
    try:
        if verb == "ADD":
            return Alter(target, ColumnChange.ADD, tuple(_defined(words, *_listed(words, column))))
        if verb == "DROP" and column > at + 1:
            names = (_name(words, *part) for part in words.parts(*_listed(words, column)))
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


def _listed(words: Words, at: int) -> tuple[int, int]:
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
    """Names and types; what may follow a type (COMMENT, FIRST, NOT NULL, DEFAULT) is Unclear, for nobody would heed it."""
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
    return ".".join(plain(words.piece(at, at + 1)) for at in range(start, stop, 2))


def plain(name: str) -> str:
    """A name without the quotes around it."""
    return name[1:-1].replace("``", "`") if name.startswith("`") and name.endswith("`") and len(name) > 1 else name
