"""The words of a statement, by sqlglot's tokenizer, and the pieces of its text between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import Dialect, Token
from sqlglot.errors import TokenError

from lakelock.errors import InputError

DIALECT = "databricks"
"""Spark's own SQL, and the few clauses more that only this dialect of sqlglot has."""
_OPENING = {"(": ")", "[": "]", "{": "}", "CASE": "END"}


@dataclass(frozen=True)
class Words:
    """A text and its words, without comments. `depths` says within how many parentheses and CASEs a word is."""

    text: str
    tokens: tuple[Token, ...]
    depths: tuple[int, ...]

    @classmethod
    def of(cls, text: str) -> Words:
        """`InputError` for a text that has no words, such as one with an open quote."""
        try:
            tokens = tuple(Dialect.get_or_raise(DIALECT).tokenize(text))
        except TokenError as error:
            raise InputError(
                f"this is no statement in SQL, a quote or comment is not closed: {shown(text)}",
                hint=r"end each text in quotes; a quote within it is \'",
            ) from error
        return cls(text, tokens, tuple(_depths(_written(text, token) for token in tokens)))

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, at: int) -> str:
        """A word in capitals, with its quotes if it has any; `""` beyond the end."""
        return _written(self.text, self.tokens[at]) if 0 <= at < len(self.tokens) else ""

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
