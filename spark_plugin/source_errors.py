"""Errors of the data source as their user reads them: the sentence that helps first, and no traceback of lakelock's before it.

A data source runs in Python processes of Spark's, which send an error to the driver as text: by default a traceback, whose
last lines are what happened. Errors of lakelock say what to do, so there the text is the error alone. Other errors keep
theirs.

Each of Spark's Python processes imports this module, so it imports next to nothing itself.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pickle import PickleError
from typing import Any, TypeVar, cast

from lakelock.errors import LakelockError

_OF_SPARK = ("pyspark.daemon", "pyspark.worker", "pyspark.sql.worker.", "pyspark.sql.streaming.")
_HIDES = "SPARK_HIDE_TRACEBACK"
"""Spark looks for it when it has caught an error, in the process that has raised it, which then ends."""

Call = TypeVar("Call", bound=Callable[..., Any])


def plainly(call: Call) -> Call:
    """A function or generator that Spark calls, whose errors of lakelock are reported without a traceback."""

    @wraps(call)
    def generate(*args: Any, **kwargs: Any) -> Iterator[Any]:
        with _without_traceback():
            yield from call(*args, **kwargs)

    @wraps(call)
    def run(*args: Any, **kwargs: Any) -> Any:
        with _without_traceback():
            return call(*args, **kwargs)

    return cast(Call, generate if inspect.isgeneratorfunction(call) else run)


@contextmanager
def _without_traceback() -> Iterator[None]:
    try:
        yield
    except LakelockError as error:
        if any(argument.startswith(_OF_SPARK) for argument in sys.orig_argv):
            os.environ[_HIDES] = "1"
            _survives_pickling(error)
        raise


def _survives_pickling(error: LakelockError) -> None:
    """Spark replaces every error while it pickles by one of its own, except errors of pickle's."""
    kind = type(error)
    if not isinstance(error, PickleError):
        error.__class__ = type(kind.__name__, (kind, PickleError), {"__module__": kind.__module__})
