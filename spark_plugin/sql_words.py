"""The words of a statement, by sqlglot's tokenizer, the pieces of its text between them, and values for its markers.

`table.sql` and the session's `sql` read the same words. Both cut names, conditions and values out of the text by them.

Markers such as `:price` are replaced in the text, before it is read, by literals of Spark's SQL. Spark 4.1 binds markers in
the same way. Here it makes every piece of the statement complete for any reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from sqlglot import Dialect, Token
from sqlglot.errors import TokenError

from lakelock.errors import InputError
from lakelock.texts import nearest

DIALECT = "databricks"
"""Spark's own SQL, and the few clauses more that only this dialect of sqlglot has."""
_WHOLE = ("VACUUM", "OPTIMIZE", "EXPLAIN", "SHOW", "CALL")
"""sqlglot keeps what follows such a word in one piece, unless the word is hidden from it."""
_OPENING = {"(": ")", "[": "]", "{": "}", "CASE": "END"}


@dataclass(frozen=True)
class Words:
    """A text and its words, without comments and without semicolons at the end.

    `depths` says within how many parentheses and CASEs a word is.
    """

    text: str
    tokens: tuple[Token, ...]
    depths: tuple[int, ...]

    @classmethod
    def of(cls, text: str | Words) -> Words:
        """The words of a text; `InputError` for a text that has none, such as one with an open quote."""
        if isinstance(text, Words):
            return text
        try:
            tokens = tuple(Dialect.get_or_raise(DIALECT).tokenize(text))
        except TokenError as error:
            raise InputError(
                f"this is no statement in SQL, a quote or comment is not closed: {shown(text)}",
                hint=r"end each text in quotes; a quote within it is \'",
            ) from error
        first = _written(text, tokens[0]) if tokens else ""
        if first in _WHOLE:
            hidden = cls.of(text[: tokens[0].start] + "x" * len(first) + text[tokens[0].end + 1 :])
            return cls(text, hidden.tokens, hidden.depths)
        while tokens and _written(text, tokens[-1]) == ";":
            tokens = tokens[:-1]
        return cls(text, tokens, tuple(_depths(_written(text, token) for token in tokens)))

    def replaced(self, pieces: Iterable[tuple[int, int, str]]) -> str:
        """The text with another text in place of each of these ranges of its characters."""
        text = self.text
        for start, stop, other in sorted(pieces, reverse=True):
            text = text[:start] + other + text[stop:]
        return text

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, at: int) -> str:
        """A word in capitals, with its quotes if it has any; `""` beyond the end."""
        return _written(self.text, self.tokens[at]) if 0 <= at < len(self.tokens) else ""

    def __contains__(self, word: object) -> bool:
        """Whether it has this word, in capitals."""
        return any(self[at] == word for at in range(len(self)))

    def every(self, start: int, stop: int, *words: str) -> Iterator[int]:
        """Where these words are, before `stop`, as deep as the word at `start`."""
        return (at for at in range(start, stop) if self.depths[at] == self.depths[start] and self[at] in words)

    def find(self, start: int, stop: int, *words: str) -> int:
        """Where the first of these words is; `stop` if there is none."""
        return next(self.every(start, stop, *words), stop)

    def group(self, at: int) -> tuple[int, int]:
        """The range of the words within the parentheses that open at `at`."""
        if self[at] != "(":
            raise Unclear(at)
        end = self.find(at, len(self), ")")
        if end == len(self):
            raise Unclear(at)
        return at + 1, end

    def parts(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The ranges between commas, the last of which is empty after a comma at the end."""
        while True:
            comma = self.find(start, stop, ",")
            yield start, comma
            if comma == stop:
                return
            start = comma + 1

    def piece(self, start: int, stop: int) -> str:
        """The text of a range of words."""
        if not start < stop <= len(self):
            raise Unclear(start)
        return self.text[self.tokens[start].start : self.tokens[stop - 1].end + 1]


class Unclear(Exception):
    """The pieces of a statement are not where the parser found them."""


def shown(text: str, most: int = 200) -> str:
    """A text for an error, in one line."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def _written(text: str, token: Token) -> str:
    return " ".join(text[token.start : token.end + 1].upper().split())


def _depths(words: Iterator[str]) -> Iterator[int]:
    closing: list[str] = []
    before = ""
    for word in words:
        if closing and word == closing[-1] and before != ".":
            closing.pop()
        elif word in (")", "]", "}") and word in closing:
            while closing.pop() != word:  # a CASE without END
                pass
        yield len(closing)
        if word in _OPENING and before != ".":
            closing.append(_OPENING[word])
        before = word


def marked(text: str) -> tuple[str, ...]:
    """The names of the markers in a statement."""
    return tuple(dict.fromkeys(name for _, _, name in _markers(Words.of(text))))


def filled_in(statement: str | Words, values: Mapping[str, str]) -> str:
    """The statement with a literal in SQL for every marker; `InputError` for a marker without one."""
    words = Words.of(statement)
    found = list(_markers(words))
    for _, _, name in found:
        if name not in values:
            raise InputError(f"the statement has no value for :{name}", hint=_hint(name, values))
    return words.replaced((start, stop, values[name]) for start, stop, name in found)


def _hint(name: str, values: Mapping[str, str]) -> str:
    near = nearest(name, values)
    return f"did you mean {near!r}? Names are case-sensitive" if near else f'pass args={{"{name}": ...}}'


def _markers(words: Words) -> Iterator[tuple[int, int, str]]:
    """Where each marker begins and ends, and its name. A colon right after a name or a value leads into JSON: `data:price`."""
    text, tokens = words.text, words.tokens
    for at, token in enumerate(tokens[:-1]):
        start, after = token.start, tokens[at + 1]
        if text[start : token.end + 1] != ":" or after.start != start + 1:
            continue
        before, name = text[:start][-1:], text[after.start : after.end + 1]
        if name.isidentifier() and not (before.isalnum() or (before and before in "_)]`\"'")):
            yield start, after.end + 1, name


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def literals_of(spark: SparkSession, args: object) -> dict[str, str]:
    """Each value as SQL, which Spark reads as exactly the value that `F.lit` makes of it; `InputError` for other values."""
    if not isinstance(args, Mapping) or not all(isinstance(name, str) for name in args):
        raise InputError(f"args is {shown(repr(args))}", hint='use a mapping of names to values, such as {"price": 5}')
    return {name: _literal(spark, name, value) for name, value in args.items()}


def _literal(spark: SparkSession, name: str, value: object) -> str:
    try:
        wanted = _analysed(spark, F.lit(value))
        text = _text(wanted)
        if text and _analysed(spark, F.expr(text)).equals(wanted):
            return text
    except (PySparkException, Py4JError, AttributeError, TypeError, ValueError, OverflowError) as error:
        raise _unusable(name, value) from error
    raise _unusable(name, value)


def _analysed(spark: SparkSession, column: Any) -> Any:
    plan: Any = spark.range(0).select(column.alias("value"))._jdf.queryExecution().analyzed()
    return plan.projectList().head().child()


def _text(literal: Any) -> str:
    if literal.nodeName() != "Literal":
        return ""
    if literal.dataType().simpleString() == "timestamp" and literal.value() is not None:
        # Spark would write the local time, which names two moments where a clock is set back.
        moment = _EPOCH + timedelta(microseconds=literal.value())
        return f"TIMESTAMP_LTZ '{moment.isoformat(' ')}'"
    text = str(literal.sql())
    # `a -:x` must not become a comment.
    return f"({text})" if text.startswith("-") else text


def _unusable(name: str, value: object) -> InputError:
    return InputError(
        f"args: :{name} is {shown(repr(value))}, which no literal in SQL is exactly",
        hint="use a number, text, bytes, bool, date, datetime or None, or write an expression into the statement",
    )
