"""JSON objects from bytes that anybody may have written: the expected values, or one `ValueError`.

`json.loads` alone accepts more than its callers expect: infinities that no int can hold, numbers with a million digits,
brackets nested until the stack overflows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

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
