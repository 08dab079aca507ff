"""When Spark goes away during a write, the user learns what became of the transaction, not only that a connection broke.

Storage and locks are reached without the JVM, so this process can roll its transaction back after Spark has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from lakelock.errors import LakelockError, SparkGone
from lakelock.occ.ending import TransactionState
from lakelock.occ.transaction import Transaction
from lakelock.texts import command

P = ParamSpec("P")
T = TypeVar("T")
Self = TypeVar("Self")


def why_gone(spark: SparkSession) -> str:
    """Why this session can no longer run anything; `""` if it can. One call into the JVM."""
    try:
        context = spark.sparkContext._jsc
        stopped = context is None or context.sc().isStopped()
    except (Py4JError, OSError):
        return "Spark's JVM does not answer: it has ended or was killed"
    except AttributeError:  # stopped by another thread just now
        stopped = True
    return "the Spark session was stopped" if stopped else ""


def require_running(spark: SparkSession) -> None:
    """Raise `SparkGone` if nothing can run in this session."""
    if problem := why_gone(spark):
        raise _gone(problem)


def needs_spark(method: Callable[Concatenate[Self, P], T]) -> Callable[Concatenate[Self, P], T]:
    """A method that fails with `SparkGone`, rather than a broken connection, when Spark goes away during the call.

    For methods of objects that keep their session in `_spark`.
    """

    @wraps(method)
    def call(self: Any, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(self, *args, **kwargs)
        except LakelockError:
            raise
        except Exception as error:
            if problem := why_gone(self._spark):
                raise _gone(problem) from error
            raise

    return cast(Callable[Concatenate[Self, P], T], call)


@contextmanager
def outcome_told(spark: SparkSession, tx: Transaction, path: str) -> Iterator[None]:
    """End the transaction if Spark goes away in the block, or the user interrupts it, and say what became of it.

    Raises `SparkGone`, or the user's own `KeyboardInterrupt` with a note.
    """
    try:
        yield
    except BaseException as error:
        if gone := ended_by(error, spark, tx, path):
            raise gone from error
        raise


def ended_by(error: BaseException, spark: SparkSession, tx: Transaction, path: str) -> SparkGone | None:
    """The error to raise instead of one that Spark's end caused; the transaction has then ended.

    An interruption also ends the transaction, and gets a note that says what became of it.
    """
    if isinstance(error, LakelockError):
        return None
    if not isinstance(error, Exception):
        tx.abort(type(error).__name__)
        _note(error, f"lakelock: {outcome_of(tx, path)}")
        return None
    problem = why_gone(spark)
    if not problem:
        return None
    tx.abort(problem)
    return _gone(f"{problem}; {outcome_of(tx, path)}", instant=tx.instant, outcome=tx.state.value)


def outcome_of(tx: Transaction, path: str) -> str:
    """What became of a transaction that has ended, as a sentence."""
    name = f"{tx.operation} {tx.instant}"
    if tx.state is TransactionState.COMMITTED:
        return f"{name} is committed"
    if tx.state is TransactionState.REJECTED:
        return f"{name} was rolled back, nothing of it is in the table"
    look = command("commits", "show", path, tx.instant)
    return f"whether {name} is committed is not known yet, nothing was cleaned up: {look}"


def _gone(message: str, **details: object) -> SparkGone:
    return SparkGone(
        message,
        hint="start a new Spark session (if the JVM died, in a new Python process), open the table in it, "
        "and run the operation again",
        **details,
    )


def _note(error: BaseException, text: str) -> None:
    if hasattr(error, "add_note"):
        error.add_note(text)
    elif not error.args:  # Python 3.10 has no notes
        error.args = (text,)
