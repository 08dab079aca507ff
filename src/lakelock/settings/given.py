"""What a settings file gives: raw values by key, before a setting parses them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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
