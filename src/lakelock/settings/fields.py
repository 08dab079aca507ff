"""One setting as data: its key, type, default, unit, bounds and meaning, all declared on the dataclass field.

The same declaration parses text, checks values, explains them and documents them, so these can never disagree.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, field, fields
from functools import cache
from typing import Any, ClassVar, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

from lakelock.errors import SettingsError
from lakelock.texts import did_you_mean

T = TypeVar("T")

LOCK_OPTIONS = "lock.options."
"""What follows is an option of the lock service's driver, by its own name."""

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


@dataclass(frozen=True)
class SettingRow:
    """What is known about one setting. `kind` is bool, int, float or str; `choices` is empty where anything goes."""

    key: str
    kind: type
    default: object
    doc: str
    unit: str = ""
    at_least: float | None = None
    at_most: float | None = None
    choices: tuple[str, ...] = ()
    secret: bool = False
    constant: bool = False

    @property
    def type_name(self) -> str:
        """The type for a person: `one of "a", "b"`, `true or false`, `whole number` ..."""
        if self.choices:
            return "one of " + ", ".join(f'"{choice}"' for choice in self.choices)
        return {bool: "true or false", int: "whole number", float: "number"}.get(self.kind, "text")

    @property
    def bounds(self) -> str:
        """The allowed range for a person, or an empty string."""
        low, high = (None if end is None else self._shown(end) for end in (self.at_least, self.at_most))
        if low and high:
            return f"{low} to {high}"
        return f"at least {low}" if low else f"at most {high}" if high else ""

    def _shown(self, end: float) -> str:
        number = f"{int(end):,}" if float(end).is_integer() else f"{end:g}"
        return f"{number} {self.unit}".rstrip()


def setting(
    default: T,
    doc: str,
    *,
    unit: str = "",
    at_least: float | None = None,
    at_most: float | None = None,
    secret: bool = False,
    in_repr: bool = True,
) -> T:
    """Declare a field of a settings section."""
    metadata = {"doc": doc, "unit": unit, "at_least": at_least, "at_most": at_most, "secret": secret}
    return field(default=default, metadata=metadata, repr=in_repr)


def constant(default: T, doc: str, *, at_least: float | None = None, at_most: float | None = None) -> T:
    """Declare a field that only programs give to a section: no other value than the default has ever helped a user."""
    metadata = {"doc": doc, "at_least": at_least, "at_most": at_most, "constant": True}
    return field(default=default, metadata=metadata, repr=False)


class Section:
    """Base of the sections: a frozen dataclass of settings and constants; building one checks the bounds."""

    section: ClassVar[str]

    def __post_init__(self) -> None:
        for row in self.declared():
            name = row.key.removeprefix(f"{self.section}.")
            object.__setattr__(self, name, parse(row, getattr(self, name)))
        self.check_together()

    @classmethod
    @cache  # the hints are compiled from text, and each table that is opened builds all sections
    def declared(cls) -> tuple[SettingRow, ...]:
        """The settings and the constants, in the order in which they are declared."""
        hints = get_type_hints(cls)
        return tuple(_row(cls.section, one, hints[one.name]) for one in fields(cast("Any", cls)) if one.metadata)

    def check_together(self) -> None:
        """Raise `SettingsError` where values that are fine alone contradict each other."""

    def refuse_unused(self, names: Iterable[str], why: str, *, instead: str, key: str) -> None:
        """`SettingsError` about `key` if one of these settings is given, `why` it does nothing, and what to do `instead`."""
        refuse_given((f"{self.section}.{name}" for name in names if getattr(self, name)), why, instead=instead, key=key)


def refuse_given(given: Iterable[str], why: str, *, instead: str, key: str) -> None:
    """`SettingsError` about `key` if there is one of these settings, `why` it does nothing, and what to do `instead`."""
    found = next(iter(given), None)
    if found is not None:
        raise SettingsError(f"{found} is set, but {why}", hint=f"{instead}, or leave {found} out", key=key)


def section_rows(section: type[Section]) -> tuple[SettingRow, ...]:
    """The settings of one section, in the order in which they are declared."""
    return tuple(row for row in section.declared() if not row.constant)


def _row(section: str, one: Field[Any], hint: object) -> SettingRow:
    choices = get_args(hint) if get_origin(hint) is Literal else ()
    kind = str if choices else cast("type", hint)
    return SettingRow(key=f"{section}.{one.name}", kind=kind, default=one.default, choices=choices, **one.metadata)


def parse(row: SettingRow, raw: object, where: str = "") -> object:
    """The value of a setting from text or from a plain value, within its bounds, or `SettingsError`.

    `where` says for the message where the value was given.
    """
    value = _converted(row, raw, where)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        too_low = row.at_least is not None and value < row.at_least
        too_high = row.at_most is not None and value > row.at_most
        if too_low or too_high or not math.isfinite(value):
            raise _bad(row, raw, where, f"must be {'from ' * (' to ' in row.bounds)}{row.bounds or 'finite'}")
    return value


def _converted(row: SettingRow, raw: object, where: str) -> object:
    text = raw.strip() if isinstance(raw, str) else None
    if row.choices:
        return _choice(row, raw, where)
    if row.kind is bool:
        if isinstance(raw, bool):
            return raw
        if text is not None and text.lower() in _TRUE + _FALSE:
            return text.lower() in _TRUE
    elif row.kind is str:
        if isinstance(raw, str):
            return raw if row.secret else raw.strip()  # white space around a password may be part of it
    elif text is not None or (isinstance(raw, (int, float)) and not isinstance(raw, bool)):
        try:
            number = float(text) if text is not None else float(cast("float", raw))
            if row.kind is float:
                return number
            if number.is_integer():
                return int(number)
        except (ValueError, OverflowError):
            pass
    article = "a " if "number" in row.type_name else ""
    raise _bad(row, raw, where, f"must be {article}{row.type_name}")


def _choice(row: SettingRow, raw: object, where: str) -> str:
    text = str(raw).strip().lower() if isinstance(raw, str) else ""
    for choice in row.choices:
        if choice.lower() == text:
            return choice
    raise _bad(row, raw, where, f"must be {row.type_name}", suggestion=did_you_mean(text, row.choices))


def _bad(row: SettingRow, raw: object, where: str, rule: str, suggestion: str = "") -> SettingsError:
    shown = "***" if row.secret else repr(raw)
    example = f"the default is {row.default!r}: {row.doc[:1].lower()}{row.doc[1:]}"
    named = f"{row.key} ({where})" if where else row.key
    return SettingsError(f"{named} is {shown} but {rule}{suggestion}", hint=example, key=row.key)


@dataclass(frozen=True)
class Refused:
    """A value that is understood but cannot be used; an error only if nothing stronger replaces it."""

    why: str
    hint: str


@dataclass(frozen=True)
class FileSettings:
    """What a file says: value and the key as it stands in the file, by our key; and remarks on what was left out."""

    path: str
    values: Mapping[str, tuple[object, str]]
    warnings: tuple[str, ...] = ()
