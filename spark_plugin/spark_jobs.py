"""The Spark jobs of one write: named in the Spark UI, cancelled together, failing with one readable error.

Job tags rather than job groups: a streaming query keeps its own group, so that stopping the query still stops our jobs.
"""

from __future__ import annotations

import base64
import pickle
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from lakelock.clock import Runtime
from lakelock.errors import LakelockError, WriteFailed
from lakelock.events import Progress, Tasks
from lakelock.spark_plugin.spark_session import why_gone


def tasks_of(context: SparkContext, tag: str) -> Tasks | None:
    """The newest running stage of the jobs with a tag; None if none is running, or this Spark does not tell (before 4.0)."""
    inside: Any = context._jsc
    with suppress(Py4JError, OSError, AttributeError):
        tracker, status = context.statusTracker(), inside.sc().statusTracker()
        jobs = [tracker.getJobInfo(job) for job in status.getJobIdsForTag(tag)]
        stages = {stage for job in jobs if job is not None for stage in job.stageIds}
        for stage in sorted(stages, reverse=True):
            found = tracker.getStageInfo(stage)
            if found is not None and found.numActiveTasks:
                return Tasks(stage, found.numCompletedTasks, found.numTasks)
    return None


WATCH_INTERVAL_S = 0.5
_TYPED = re.compile(r"\[lakelock-error ([A-Za-z0-9+/=]+)\]")
_MISSING = re.compile(r"No module named '([\w.]+)'")
_SHIPPED = {"lakelock", "pyarrow", "numpy", "obstore", "fastavro"}
_CAUSE = re.compile(r"^(?:: |Caused by: )?(?:[\w.]+\.)?(\w*(?:Error|Exception)\b.*)$", re.MULTILINE)
_DESCRIPTION, _INTERRUPT = "spark.job.description", "spark.job.interruptOnCancel"


@contextmanager
def job_group(
    spark: SparkSession, description: str, runtime: Runtime, check: Callable[[], None], progress: Progress | None = None
) -> Iterator[None]:
    """Run Spark jobs as one cancellable group. `check` is called repeatedly; an error that it raises cancels them at once.
    `progress` gets as often how far they are.

    Raises the error of `check`, the typed error of a task, or `WriteFailed` with the cause in one line. Where Spark
    itself is gone, Spark's own error passes: only the owner of the transaction can say what became of it.
    """
    context = spark.sparkContext
    tag = f"lakelock-{runtime.uuid()}"
    before = {name: context.getLocalProperty(name) for name in (_DESCRIPTION, _INTERRUPT)}
    context.addJobTag(tag)
    context.setJobDescription(f"lakelock: {description}")
    context.setInterruptOnCancel(True)
    causes: list[LakelockError] = []

    def watch() -> None:
        try:
            check()
        except LakelockError as error:
            causes.append(error)
            with _ignoring_spark():
                context.cancelJobsWithTag(tag)
        if progress is not None:
            progress.tasks(tasks_of(context, tag))

    watcher = runtime.every(WATCH_INTERVAL_S, watch, name="job-watch")
    try:
        yield
    except LakelockError:
        raise
    except Exception as error:
        if causes:
            raise causes[0] from error
        if why_gone(spark):
            raise
        raise readable(error) from error
    except BaseException:
        with _ignoring_spark():
            context.cancelJobsWithTag(tag)
        raise
    finally:
        watcher.stop()
        with _ignoring_spark():
            context.removeJobTag(tag)
            for name, value in before.items():
                context.setLocalProperty(name, value)  # type: ignore[arg-type]
    if causes:
        raise causes[0]


def _ignoring_spark() -> AbstractContextManager[None]:
    """For clean-up, which must not hide the error that is being raised when Spark is gone."""
    return suppress(Py4JError, OSError, AttributeError)


def in_task_text(error: LakelockError) -> str:
    """The error in a form that survives inside the text of a Spark exception."""
    return f"{error.message} [lakelock-error {base64.b64encode(pickle.dumps(error)).decode()}]"


def readable(error: Exception) -> Exception:
    """What to raise for an exception that Spark raised: the task's own lakelock error, or one line instead of a JVM trace."""
    from pyspark.errors import AnalysisException, ParseException

    text = str(error)
    if typed := _TYPED.search(text):
        found = pickle.loads(base64.b64decode(typed[1]))
        if isinstance(found, LakelockError):
            return found
    if (missing := _MISSING.search(text)) and missing[1].partition(".")[0] in _SHIPPED:
        return WriteFailed(
            f"the Spark executors cannot import {missing[1]!r}",
            hint="with a local master, activate this environment, or set "
            f"PYSPARK_PYTHON={shlex.quote(sys.executable)} before Spark starts. "
            "On a cluster run `lakelock package`: it packs lakelock, and prints the Spark conf that gives it to executors. Or "
            "install it for the Python of every worker",
            module=missing[1],
        )
    if isinstance(error, (AnalysisException, ParseException)) and "PYTHON" not in text[:40]:
        return error
    causes = [
        line for line in _CAUSE.findall(text) if not line.startswith(("Py4JJavaError", "SparkException", "PythonException"))
    ]
    first = causes[0] if causes else next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return WriteFailed(
        f"a Spark job of this write failed: {first.strip()[:500]}",
        hint="the whole Spark error is the cause of this one (error.__cause__); correct it and run the write again",
    )
