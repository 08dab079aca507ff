"""Whether an overwrite through `format("lakelock")` may write rows that were read before others committed.

Spark tells a data source in Python neither the query that it writes nor what that reads, plans the read of a frame or view
once, and may run that plan again at any time. An overwrite by rows of the same table would then undo, without a conflict, what
was committed since the read. After `register(spark)` the driver looks at the plan. Without it, this module keeps notes in the
folder that Spark gives the Python processes of an application on one machine, and removes with it: what the first read of each
table found, and which queries read it there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pyspark import TaskContext

from lakelock.errors import InputError
from lakelock.occ.reading import ReadView

PAGE = 1_000
"""Notes of so many queries lie in one folder, and only the newest two folders stay."""
_OUTERMOST, _EXECUTION, _CALL = "spark.sql.execution.root.id", "spark.sql.execution.id", "callSite.short"
_REGISTER = (
    "call lakelock.spark_plugin.register(spark) once in the driver: then only an overwrite that reads its own table is refused"
)


def note_first_read(uri: str, shown: ReadView | None) -> None:
    """Where Spark plans a read of a table: keep what the first one found; None for one that does not show all rows."""
    notes = _notes(uri)
    if notes is not None:
        _write(notes / "first", _files_of(shown))


def note_query(uri: str) -> None:
    """In a task that reads a table: keep which query it belongs to."""
    notes, query = _notes(uri), _query()
    if notes is None or query is None:
        return
    page = query // PAGE
    if not (notes / str(page)).exists():
        for older in _pages(notes):
            if older < page - 1:
                shutil.rmtree(notes / str(older), ignore_errors=True)
    _write(notes / str(page) / str(query), "")


@dataclass(frozen=True)
class ReadBefore:
    """That the application has read the table before it changed. `planned_in`: the folder of its driver. Picklable."""

    uri: str
    planned_in: str

    @classmethod
    def found(cls, uri: str, shown: ReadView) -> ReadBefore | None:
        """Where Spark plans an overwrite of what is `shown`; None if nothing has changed since the first read, or none was."""
        notes = _notes(uri)
        if notes is None or not (notes / "first").exists() or (notes / "first").read_text() == _files_of(shown):
            return None
        return cls(uri, _folder())

    def refuse_rows_of_it(self) -> None:
        """In a task of the overwrite: `InputError` if its rows may be those of that read.

        Where tasks run in the driver (`local[*]`), the notes tell whether this query has read the table. In a cluster it may
        have, in a task elsewhere. With Spark Connect, which has nothing to register, only a statement is refused then.
        """
        notes, query = _notes(self.uri), _query()
        if notes is not None and query is not None and _folder() == self.planned_in:
            page = query // PAGE
            if (notes / str(page) / str(query)).exists() or max(_pages(notes), default=page) > page + 1:
                raise InputError(
                    "the overwrite reads the table that it replaces, which has changed since this Spark application first read "
                    "it, and Spark may still use the plan of that read",
                    hint="change the rows with table.update or table.merge, or read them in a transaction, which watches what "
                    "it reads: with table.transaction() as tx: rows = tx.read(); tx.delete(); tx.insert(rows.…)",
                )
        elif not _is_frame_of_connect():
            raise InputError(
                "this Spark application has read the table before it last changed, and Spark does not tell a data source "
                "whether an overwrite writes the rows of that read, which would undo what was committed since",
                hint=f"{_REGISTER}; with Spark Connect, "
                'df.write.format("lakelock").mode("overwrite").save(path) writes rows of other tables',
            )


def _folder() -> str:
    return os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]


def _notes(uri: str) -> Path | None:
    folder = _folder()
    return Path(folder, "lakelock-reads", hashlib.sha256(uri.encode()).hexdigest()) if folder else None


def _write(note: Path, text: str) -> None:
    with suppress(FileExistsError):
        note.parent.mkdir(parents=True, exist_ok=True)
        with note.open("x") as file:
            file.write(text)


def _query() -> int | None:
    """The number of the query that this task belongs to; Spark counts those of an application."""
    task = TaskContext.get()
    found = None if task is None else task.getLocalProperty(_OUTERMOST) or task.getLocalProperty(_EXECUTION)
    return int(found) if found else None


def _pages(notes: Path) -> list[int]:
    return [int(each.name) for each in notes.iterdir() if each.name.isdigit()] if notes.exists() else []


def _is_frame_of_connect() -> bool:
    task = TaskContext.get()
    call = (task.getLocalProperty(_CALL) or "") if task is not None else ""
    return call.startswith("Spark Connect") and "sql_command" not in call


def _files_of(shown: ReadView | None) -> str:
    if shown is None:
        return ""
    files = [file.key for file in shown.snapshot.files]
    for each in shown.logged:
        files += [*(() if each.base is None else (each.base.key,)), *(log.key for log in each.logs)]
    return hashlib.sha256("\n".join(sorted(files)).encode()).hexdigest()
