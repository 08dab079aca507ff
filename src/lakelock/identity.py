"""Who is writing: the identity that locks, claims, decisions and errors carry, so that no writer is anonymous."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import PurePath

from lakelock.clock import Runtime, process_identity


@dataclass(frozen=True)
class WriterIdentity:
    """One writer. Its `writer_id` is unique forever; the other fields are for people.

    `writer_id` is random and generated anew in every process (also after a fork), never taken from configuration.
    `application` is the name of the job, chosen by the user or found by `job_name`, and `run` is what finds its run where it
    runs, such as the id of Spark's application in a cluster. `version` is lakelock's, empty for a writer that did not tell.
    """

    writer_id: str
    application: str
    host: str
    pid: int
    user: str
    version: str = ""
    run: str = ""

    @classmethod
    def of_this_process(cls, runtime: Runtime, application: str = "", run: str = "") -> WriterIdentity:
        host, pid, user = process_identity()
        return cls(runtime.uuid(), application or job_name(os.environ, sys.argv), host, pid, user, version(), run)

    def as_dict(self) -> dict[str, str | int]:
        """What a record has of it; a `version` and a `run` that are not known are left out."""
        return {name: getattr(self, name) for name in _FIELDS if name not in ("version", "run") or getattr(self, name)}

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> WriterIdentity:
        """Read what `as_dict` wrote; unknown fields are ignored, missing ones are empty."""
        pid = values.get("pid")
        texts = {name: str(values.get(name, "")) for name in _FIELDS if name != "pid"}
        return cls(**texts, pid=pid if isinstance(pid, int) else 0)

    def __str__(self) -> str:
        return f"{self.application} ({self.user}@{self.host}, pid {self.pid}{', ' + self.run if self.run else ''})"


def job_name(environment: Mapping[str, str], arguments: Sequence[str], spark_name: str = "") -> str:
    """What those who run this process call it: the name of Spark's application, Airflow's task, Databricks' job, or its script.

    `arguments` are those of the process, `spark_name` is that of Spark's application. A name that Spark, a shell or a notebook
    gives to whatever runs there says nothing, and is passed over.
    """
    if spark_name and spark_name not in _OF_ANY_JOB:
        return spark_name
    if "AIRFLOW_CTX_DAG_ID" in environment:
        return ".".join(filter(None, (environment["AIRFLOW_CTX_DAG_ID"], environment.get("AIRFLOW_CTX_TASK_ID", ""))))
    if environment.get("DB_IS_JOB_CLUSTER", "").lower() == "true" and environment.get("DB_CLUSTER_NAME"):
        return environment["DB_CLUSTER_NAME"]
    script = PurePath(arguments[0] if arguments else "")
    if script.name == "ipykernel_launcher.py":
        return PurePath(environment.get("JPY_SESSION_NAME", "")).name or "notebook"
    if script.name == "__main__.py":
        return script.parent.name
    return script.name if script.name not in ("", "-", "-c", "-m") else "python"


_OF_ANY_JOB = frozenset({"pyspark-shell", "PySparkShell", "Databricks Shell", "arrow-spark"})
"""Names of applications that PySpark, its shell, Databricks and Airflow's operator give where the user gave none."""


OTHER_ENGINE = "another Hudi writer"
"""What people read in place of a writer that leaves no name: one of another engine."""


def name_of(writer: WriterIdentity | None) -> str:
    """The writer as people read it, also one that left no identity."""
    return str(writer) if writer else OTHER_ENGINE


_FIELDS = tuple(f.name for f in fields(WriterIdentity))


@cache
def version() -> str:
    """The version that is installed, such as `0.1.0`; `0+unknown` where the package was not installed but copied.

    Reading the metadata of a package is slow, so it is read when it is first asked for.
    """
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("lakelock")
    except PackageNotFoundError:  # imported from a folder or a zip, which has no metadata
        return "0+unknown"
