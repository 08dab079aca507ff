"""Parsing of stored texts: JSON objects of unknown origin, and Java's `Properties`.

`json.loads` alone accepts more than its callers expect: infinities that no int can hold, numbers with a million digits,
brackets nested until the stack overflows. A `JsonObject` gives the expected values, or one `ValueError`. `Properties` are
read and written as Java does.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from lakelock.errors import CorruptTableError

_LARGEST = 2**63


class JsonObject:
    """The fields of one JSON object; every getter raises `ValueError` for a field that is missing or of another type."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.fields = fields

    @classmethod
    def parse(cls, data: bytes | str) -> JsonObject:
        """Parse exactly one JSON object; anything else is a `ValueError`."""
        try:
            found = json.loads(data)
        except RecursionError:
            raise ValueError("nested too deeply") from None
        return cls._of(found, "the text")

    def text(self, name: str, default: str | None = None) -> str:
        value = self._value(name, default)
        if not isinstance(value, str):
            raise ValueError(f"{name} is not a string")
        return value

    def integer(self, name: str, *, at_least: int = -_LARGEST) -> int:
        value = self._value(name)
        if type(value) is not int or not at_least <= value < _LARGEST:
            raise ValueError(f"{name} is not an integer in range")
        return value

    def number(self, name: str) -> float:
        value = self._value(name)
        if type(value) not in (int, float) or not abs(value) < _LARGEST or not math.isfinite(value):
            raise ValueError(f"{name} is not a finite number")
        return float(value)

    def child(self, name: str) -> JsonObject:
        return self._of(self._value(name), name)

    def items(self, name: str) -> list[Any]:
        value = self._value(name)
        if not isinstance(value, list):
            raise ValueError(f"{name} is not a list")
        return value

    def children(self, name: str) -> list[JsonObject]:
        return [self._of(each, name) for each in self.items(name)]

    def get(self, name: str) -> Any:
        """The value as it is; None if it is missing."""
        return self.fields.get(name)

    def _value(self, name: str, default: object = None) -> Any:
        value = self.fields.get(name, default)
        if value is None:
            raise ValueError(f"{name} is missing")
        return value

    @classmethod
    def _of(cls, value: object, name: str) -> JsonObject:
        if not isinstance(value, dict):
            raise ValueError(f"{name} is not an object")
        return cls(value)


_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_ENTRY = re.compile(r"((?:[^\\=: \t\f]|\\.)*)(?:[ \t\f]*[=:]|[ \t\f])?[ \t\f]*(.*)", re.DOTALL).fullmatch
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_NAMED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SPECIAL = re.compile(r"[^\x20-\x7e]|[\\=:#!]")
_NAMES = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}


def parse_java_properties(data: bytes, source: str) -> dict[str, str]:
    """The entries of a properties file; a repeated key keeps its last value. `source` names the file in errors."""
    entries: dict[str, str] = {}
    for line in _logical_lines(data.decode("latin-1")):
        match = _ENTRY(line)
        if match is None:
            raise CorruptTableError(f"{source}: cannot read the line {line[:80]!r}", file=source)
        entries[_unescape(match[1], source)] = _unescape(match[2], source)
    return entries


def format_java_properties(entries: Mapping[str, str], comments: tuple[str, ...]) -> bytes:
    """The file that Java would read as `entries`, in the order given, under comment lines."""
    lines = [f"#{comment}" for comment in comments]
    lines += [f"{_escape(key, key=True)}={_escape(value, key=False)}" for key, value in entries.items()]
    return "".join(f"{line}\n" for line in lines).encode("ascii", "backslashreplace")


def java_date(now_ms: int) -> str:
    """A moment as Java's `Date.toString()` writes it in UTC."""
    at = _utc(now_ms)
    return f"{_DAYS[at.weekday()]} {_MONTHS[at.month - 1]} {at:%d %H:%M:%S} UTC {at:%Y}"


def iso_date(now_ms: int) -> str:
    """A moment as Java's `Instant.toString()` writes it."""
    return f"{_utc(now_ms):%Y-%m-%dT%H:%M:%S}.{now_ms % 1000:03}Z"


def _utc(now_ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=now_ms)


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blank lines; a line that ends in an odd number of backslashes continues on the next."""
    joined: list[str] = []
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(" \t\f")
        if not joined and (not line or line[0] in "#!"):
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            joined.append(line[:-1])
            continue
        yield "".join([*joined, line])
        joined = []
    if any(joined):
        yield "".join(joined)


def _unescape(text: str, source: str) -> str:
    def plain(match: re.Match[str]) -> str:
        escaped = match[1]
        if len(escaped) > 1:
            return chr(int(escaped[1:], 16))
        if escaped == "u":
            raise CorruptTableError(f"{source}: malformed \\u escape in {text[:80]!r}", file=source)
        return _NAMED.get(escaped, escaped)

    if "\\" not in text:
        return text
    found = _ESCAPE.sub(plain, text)
    # Java's escapes are UTF-16 units: put surrogate pairs together.
    return found.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escape(text: str, *, key: bool) -> str:
    def escaped(match: re.Match[str]) -> str:
        character = match[0]
        if character in _NAMES:
            return _NAMES[character]
        if " " < character < "\x7f":
            return "\\" + character
        units = character.encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2))

    found = _SPECIAL.sub(escaped, text)
    if key:
        return found.replace(" ", "\\ ")
    return "\\" + found if found.startswith(" ") else found
