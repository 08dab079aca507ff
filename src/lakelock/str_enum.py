"""Enumerations of words that are written to storage, events and messages as they are."""

from __future__ import annotations

from enum import Enum


class StrEnum(str, Enum):
    """An enumeration whose members are their texts. The standard library has it from Python 3.11 on."""

    def __str__(self) -> str:
        return str(self.value)
