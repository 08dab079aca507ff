"""Markers such as `:price` in a statement, and the values that stand for them: replaced in the text, before it is read.

Spark 4.1 binds markers in the same way. Here it makes every piece of the statement complete, whoever reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lakelock.errors import InputError
from lakelock.spark_plugin.statements.words import Words
from lakelock.texts import nearest


def marked(text: str) -> tuple[str, ...]:
    """The names of the markers in a statement."""
    return tuple(dict.fromkeys(name for _, _, name in _markers(text)))


def filled_in(text: str, values: Mapping[str, str]) -> str:
    """The statement with a literal in SQL for every marker; `InputError` for a marker without one."""
    pieces, end = [], 0
    for start, stop, name in _markers(text):
        if name not in values:
            raise InputError(f"the statement has no value for :{name}", hint=_hint(name, values))
        pieces += [text[end:start], values[name]]
        end = stop
    return "".join([*pieces, text[end:]])


def _hint(name: str, values: Mapping[str, str]) -> str:
    near = nearest(name, values)
    return f"did you mean {near!r}? Names are case-sensitive" if near else f'pass args={{"{name}": ...}}'


def _markers(text: str) -> Iterator[tuple[int, int, str]]:
    """Where each marker begins and ends, and its name. A colon right after a name or a value leads into JSON: `data:price`."""
    tokens = Words.of(text).tokens
    for at, token in enumerate(tokens[:-1]):
        start, after = token.start, tokens[at + 1]
        if text[start : token.end + 1] != ":" or after.start != start + 1:
            continue
        before, name = text[:start][-1:], text[after.start : after.end + 1]
        if name.isidentifier() and not (before.isalnum() or (before and before in "_)]`\"'")):
            yield start, after.end + 1, name
