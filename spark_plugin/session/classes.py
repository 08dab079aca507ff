"""Classes of Spark's JVM, by their full names."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

PYTHON_UTILS = "org.apache.spark.api.python.PythonUtils"


def java_class(spark: SparkSession, name: str) -> Any:
    """A class of the JVM; where it has none of this name, something that cannot be called (`TypeError`).

    In `spark._jvm.org.apache.spark` the JVM searches all of Spark's jars at each dot for a class of that name, and for a name
    without dots it searches them again and again.
    """
    return getattr(spark._jvm, name)


def scala_object(spark: SparkSession, name: str) -> Any:
    """A Scala object by its name; where there is none, something that cannot be called."""
    return getattr(java_class(spark, f"{name}$"), "MODULE$")
