"""Fields by name, as Spark finds columns: exactly as a name is spelled, else in whatever case.

No table has two columns whose names differ in case only, so a name never means two of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa


class Fields:
    """The fields of a schema or a struct, to be asked by name."""

    def __init__(self, fields: Iterable[pa.Field]) -> None:
        self._fields = list(fields)
        self._exact: dict[str, int] = {}
        self._any: dict[str, int] = {}
        for index, field in enumerate(self._fields):
            self._exact.setdefault(field.name, index)
            self._any.setdefault(field.name.lower(), index)

    @property
    def names(self) -> list[str]:
        return [field.name for field in self._fields]

    def index(self, name: str) -> int:
        """The place of the field that `name` means, -1 if there is none."""
        return self._exact.get(name, self._any.get(name.lower(), -1))

    def find(self, name: str) -> pa.Field | None:
        """The field that `name` means."""
        index = self.index(name)
        return None if index < 0 else self._fields[index]

    def others(self, names: Iterable[str]) -> list[pa.Field]:
        """The fields that none of these names means, in their order."""
        meant = {self.index(name) for name in names}
        return [field for index, field in enumerate(self._fields) if index not in meant]


def spelled(name: str, names: Sequence[str]) -> str | None:
    """The one of `names` that `name` means, None if it means none."""
    index = Fields(pa.field(each, pa.null()) for each in names).index(name)
    return None if index < 0 else names[index]
