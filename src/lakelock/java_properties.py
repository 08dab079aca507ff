"""The text form of Java's `Properties`, read and written as Java does."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, timezone

from lakelock.errors import CorruptTableError

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
