"""The text format of `java.util.Properties`, as Hudi writes its configuration."""

from __future__ import annotations

import re
from collections.abc import Iterator

_KEY_END = re.compile(r"(?<!\\)(?:\\\\)*([=: \t\f])")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_NAMED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_java_properties(text: str) -> dict[str, str]:
    """Keys and values of a properties file; the last of equal keys wins, as in Java."""
    return dict(_pair(line) for line in _logical_lines(text))


def _logical_lines(text: str) -> Iterator[str]:
    continued = ""
    for line in re.split(r"\r\n|\n|\r", text):
        stripped = line.lstrip(" \t\f")
        if not continued and (not stripped or stripped[0] in "#!"):
            continue
        if (len(stripped) - len(stripped.rstrip("\\"))) % 2:
            continued += stripped[:-1]
            continue
        yield continued + stripped
        continued = ""
    if continued:
        yield continued


def _pair(line: str) -> tuple[str, str]:
    end = _KEY_END.search(line)
    if end is None:
        return _unescaped(line), ""
    key, rest = line[: end.start(1)], line[end.start(1) :].lstrip(" \t\f")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t\f")
    return _unescaped(key), _unescaped(rest)


def _unescaped(text: str) -> str:
    def one(found: re.Match[str]) -> str:
        escape = found[1]
        return chr(int(escape[1:], 16)) if len(escape) == 5 else _NAMED.get(escape, escape)

    return _ESCAPE.sub(one, text)
