"""What a statement of a session asks for, where it may concern a lake table. Pieces are the user's own text."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from lakelock.errors import InputError
from lakelock.spark_plugin.statements.operations import Name


class By(Enum):
    """How a statement names a moment."""

    TIME = "TIMESTAMP"
    INSTANT = "VERSION"


@dataclass(frozen=True)
class Moment:
    """`TIMESTAMP AS OF value` or `VERSION AS OF value`; the value is a piece of SQL."""

    by: By
    value: str


@dataclass(frozen=True)
class Relation:
    """A table as a statement names it, in the characters from `start` to `stop` of its text, with the moment if it has one."""

    name: Name
    start: int
    stop: int
    moment: Moment | None = None

    @property
    def path(self) -> str | None:
        """The path of lakelock.`path`; None for a name."""
        return self.name[1] if is_path(self.name) else None


def is_path(name: Name) -> bool:
    """Whether a name is a path: lakelock.`/lake/goods`."""
    return len(name) == 2 and name[0].lower() == "lakelock" and "/" in name[1]


@dataclass(frozen=True)
class Describe:
    """`DESCRIBE HISTORY target LIMIT n`, or `DESCRIBE DETAIL target`."""

    target: Relation
    history: bool
    limit: int | None = None


@dataclass(frozen=True)
class Vacuum:
    """`VACUUM target RETAIN n HOURS DRY RUN`."""

    target: Relation
    keep_hours: float | None = None
    dry_run: bool = False


@dataclass(frozen=True)
class Optimize:
    """`OPTIMIZE target WHERE condition ZORDER BY (columns)`."""

    target: Relation
    where: str | None = None
    sort_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Restore:
    """`RESTORE TABLE target TO moment`."""

    target: Relation
    moment: Moment


class ColumnChange(Enum):
    """What becomes of columns, and what the second part of each pair is then."""

    ADD = "types of new columns"
    DROP = "empty"
    RENAME = "new names"
    WIDEN = "wider types"
    RELAX = "empty, for columns that may be null from now on"
    PLACE = "the columns before them; none: they come first"


@dataclass(frozen=True)
class Alter:
    """`ALTER TABLE target ADD COLUMNS (...)` and the like."""

    target: Relation
    change: ColumnChange
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Change:
    """`UPDATE`, `DELETE`, `MERGE` or `INSERT`. `alias_follows`: the statement gives the target an alias, or may not."""

    target: Relation
    alias_follows: bool
    sources: tuple[Relation, ...] = ()


@dataclass(frozen=True)
class Query:
    """A statement that reads the relations, which name paths or moments."""

    relations: tuple[Relation, ...]


@dataclass(frozen=True)
class Unreadable:
    """A statement that is wrong if its target is a lake table; otherwise it is Spark's."""

    target: Relation
    error: InputError


Command = Unreadable | Describe | Vacuum | Optimize | Restore | Alter | Change | Query
