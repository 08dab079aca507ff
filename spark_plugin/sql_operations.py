"""What a statement in SQL asks for: a change of one table, or a command of a session that may concern a lake table.

Names, conditions, values and sources are pieces of the user's own text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from lakelock.errors import InputError
from lakelock.spark_plugin.merge_builder import Then, When
from lakelock.spark_plugin.spark_session import quoted

Name = tuple[str, ...]
"""A name by its parts, without quotes: `("lake", "goods")`."""


@dataclass(frozen=True)
class Target:
    """The table that a statement names, and its alias there, `""` if it has none."""

    name: Name
    alias: str = ""

    @property
    def qualifier(self) -> str:
        """What stands before the table's columns: `qualifier.column`."""
        return self.alias or self.name[-1]


@dataclass(frozen=True)
class Assignment:
    """A column as the statement names it, and the text of its new value."""

    column: Name
    value: str


@dataclass(frozen=True)
class Update:
    """`UPDATE target SET … WHERE …`; without a condition every row changes. `reads`: the relations of its subqueries."""

    target: Target
    assignments: tuple[Assignment, ...]
    where: str | None = None
    reads: tuple[Name, ...] = ()


@dataclass(frozen=True)
class Delete:
    """`DELETE FROM target WHERE …`; without a condition every row goes. `reads`: the relations of its subqueries."""

    target: Target
    where: str | None = None
    reads: tuple[Name, ...] = ()


@dataclass(frozen=True)
class Insert:
    """`INSERT INTO target …`: the rows of `query`, by position into `columns` (None: all of the table), or by name.

    With `overwrite` they replace what is there, with `replace_where` the rows that satisfy it. `partition` has the columns of
    `PARTITION (…)`, with the text of a value for each that the query lacks. `reads` are the relations that the query names.
    """

    target: Target
    query: str
    columns: tuple[Name, ...] | None = None
    by_name: bool = False
    overwrite: bool = False
    replace_where: str | None = None
    partition: tuple[tuple[Name, str | None], ...] = ()
    reads: tuple[Name, ...] = ()


@dataclass(frozen=True)
class MergeClause:
    """One `WHEN … THEN …`. `assignments` of an update or insert; None stands for `*`, and for a delete."""

    when: When
    then: Then
    condition: str | None = None
    assignments: tuple[Assignment, ...] | None = None


@dataclass(frozen=True)
class Merge:
    """`MERGE INTO target USING source ON …`. `source` is what stands after USING, with the alias."""

    target: Target
    source: str
    source_alias: str
    on: str
    clauses: tuple[MergeClause, ...]
    reads: tuple[Name, ...] = ()


Statement = Update | Delete | Insert | Merge


def text_of(statement: Statement) -> str:
    """The statement put together again from its parts, with parentheses around each condition and value.

    A parser that reads it and the user's statement alike has proved that the pieces were cut where they end.
    """
    return " ".join(_parts_of_text(statement))


def _parts_of_text(statement: Statement) -> Iterator[str]:
    into = quoted(*statement.target.name)
    named = f"{into} AS {quoted(statement.target.alias)}" if statement.target.alias else into
    match statement:
        case Update():
            yield f"UPDATE {named} SET {_assigned(statement.assignments)}"
            yield from _condition("WHERE", statement.where)
        case Delete():
            yield f"DELETE FROM {named}"
            yield from _condition("WHERE", statement.where)
        case Insert():
            yield f"INSERT {'OVERWRITE TABLE' if statement.overwrite else 'INTO'} {into}"
            if statement.partition:
                # Spark takes nothing but a literal here, without parentheses.
                fixed = (quoted(*name) + ("" if value is None else f" = {value}") for name, value in statement.partition)
                yield f"PARTITION {_group(fixed)}"
            if statement.columns is not None:
                yield _group(quoted(*name) for name in statement.columns)
            if statement.by_name:
                yield "BY NAME"
            yield from _condition("REPLACE WHERE", statement.replace_where)
            yield statement.query
        case Merge():
            yield f"MERGE INTO {named} USING {statement.source}\n"
            yield from _condition("ON", statement.on)
            for clause in statement.clauses:
                yield _KINDS[clause.when]
                yield from _condition("AND", clause.condition)
                yield from _action(clause)


_KINDS = {
    When.MATCHED: "WHEN MATCHED",
    When.NOT_MATCHED: "WHEN NOT MATCHED",
    When.NOT_MATCHED_BY_SOURCE: "WHEN NOT MATCHED BY SOURCE",
}


def _action(clause: MergeClause) -> Iterator[str]:
    assignments = clause.assignments
    if clause.then is Then.DELETE:
        yield "THEN DELETE"
    elif clause.then is Then.UPDATE:
        yield f"THEN UPDATE SET {'*' if assignments is None else _assigned(assignments)}"
    elif assignments is None:
        yield "THEN INSERT *"
    else:
        yield f"THEN INSERT {_group(quoted(*each.column) for each in assignments)}"
        yield f"VALUES {_group(_enclosed(each.value) for each in assignments)}"


def _condition(before: str, text: str | None) -> Iterator[str]:
    if text is not None:
        yield f"{before} {_enclosed(text)}"


def _assigned(assignments: Sequence[Assignment]) -> str:
    return ", ".join(f"{quoted(*each.column)} = {_enclosed(each.value)}" for each in assignments)


def _group(parts: Iterable[str]) -> str:
    return f"({', '.join(parts)})"


def _enclosed(text: str) -> str:
    # The piece may end within a comment to the end of the line.
    return f"({text}\n)"


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


TABLE_ARGUMENTS = ("table", "path")
PROCEDURES: Mapping[str, tuple[str, ...]] = {
    "show_commits": ("limit",),
    "run_clustering": ("predicate", "order"),
    "run_compaction": ("op",),
    "run_clean": ("hours_retained",),
    "create_savepoint": ("commit_time", "name"),
    "delete_savepoint": ("instant_time", "name"),
    "show_savepoints": (),
    "rollback_to_savepoint": ("instant_time",),
}
"""The procedures, and the arguments of each besides `table` and `path`."""


def form_of_call(name: str) -> str:
    """How a procedure is called, for an error."""
    more = "".join(f", {each} => …" for each in PROCEDURES[name])
    return f"CALL {name}(table => 'a view of the table'{more}), or path => '/lake/table' instead of table"


@dataclass(frozen=True)
class Procedure:
    """`CALL name(table => 'a view', ...)`: the table is named by a view, or by its path."""

    name: str
    arguments: Mapping[str, str | float]

    @property
    def table(self) -> tuple[str, ...]:
        """What the table is called, as a statement would name it."""
        path = self.arguments.get("path")
        return ("lakelock", str(path)) if path is not None else tuple(str(self.arguments["table"]).split("."))

    def required(self, *names: str) -> str:
        """The first of these arguments that it has; `InputError` if it has none."""
        found = next((str(self.arguments[name]) for name in names if name in self.arguments), "")
        if not found:
            raise InputError(f"{self.name} was called without {names[-1]}", hint=form_of_call(self.name))
        return found


@dataclass(frozen=True)
class Call:
    """`CALL` of a procedure of Hudi's that has a counterpart here."""

    target: Relation
    procedure: Procedure


@dataclass(frozen=True)
class Change:
    """`UPDATE`, `DELETE`, `MERGE` or `INSERT`; `sources` are the paths that it reads."""

    target: Relation
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


OfOneTable = Unreadable | Describe | Vacuum | Optimize | Restore | Alter | Call | Change
Command = OfOneTable | Query
