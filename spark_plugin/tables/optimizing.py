"""An optimize that is being described: nothing is done before it is told to, as in Delta."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NoReturn

from pyspark.sql import Column

from lakelock.checked_calls import checked_calls
from lakelock.errors import InputError
from lakelock.occ.optimize import Optimized
from lakelock.occ.targets import Targets
from lakelock.spark_plugin.arguments import names

_NEXT = "call .execute(), or Delta's .executeCompaction() or .executeZOrderBy(...)"


@dataclass(frozen=True)
class OptimizeSpec:
    """What an optimize is to join, and by which columns it sorts the rows of the joined files."""

    where: str | Column | None = None
    partition: Targets = None
    sort_by: tuple[str, ...] = ()
    small_file_bytes: int | None = None
    target_file_bytes: int | None = None
    tag: str = ""


@dataclass
class _Use:
    """Whether somebody has gone on with a builder, so that it need not warn."""

    used: bool = False


@checked_calls
@dataclass(frozen=True, repr=False)
class OptimizeBuilder:
    """`table.optimize(...)`: joins nothing until `.execute()`. A builder that is dropped before warns.

    >>> table.optimize().where("day < '2026-11-21'").executeCompaction()          # doctest: +SKIP
    """

    spec: OptimizeSpec
    run: Callable[[OptimizeSpec], Optimized]
    _use: _Use = field(default_factory=_Use)

    def where(self, condition: str | Column) -> OptimizeBuilder:
        """Only partitions that satisfy a condition on the partition columns."""
        if self.spec.where is not None:
            raise InputError("this optimize has a condition already", hint="join the two with AND")
        self._use.used = True
        return OptimizeBuilder(replace(self.spec, where=condition), self.run)

    def execute(self) -> Optimized:
        """Join the small files, and say what was joined."""
        self._use.used = True
        return self.run(self.spec)

    def executeCompaction(self) -> Optimized:  # noqa: N802 - Delta's name
        return self.execute()

    def executeZOrderBy(self, *columns: str | Sequence[str]) -> Optimized:  # noqa: N802 - Delta's name
        """Join the small files, and sort the rows of those by these columns, in their order."""
        self._use.used = True
        sort_by = tuple(name for each in columns for name in names(each))
        if not sort_by or not all(sort_by):
            raise InputError(
                f"executeZOrderBy takes names of columns, not {sort_by}", hint='.executeZOrderBy("customer", "day")'
            )
        if self.spec.sort_by:
            raise InputError(f"this optimize sorts by {', '.join(self.spec.sort_by)} already", hint="name the columns once")
        return self.run(replace(self.spec, sort_by=sort_by))

    def __repr__(self) -> str:
        return f"OPTIMIZE: nothing is done yet; next: {_NEXT}"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(f"an optimize that was not executed has no {name!r}; next: {_NEXT}", name=name, obj=self)

    def __del__(self) -> None:
        if not self._use.used:
            warnings.warn(f"table.optimize() was never executed, so no file was joined: {_NEXT}", RuntimeWarning, stacklevel=2)
