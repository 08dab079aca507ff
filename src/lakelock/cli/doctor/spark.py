"""What `lakelock doctor` says about Spark on this machine, without starting it: version, pandas, workers, connector, Java.

Spark's own settings (`spark.jars`, `--packages`) are not known here; they may bring what is missing, so it is only a warning.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from lakelock.cli.doctor.context import Check, DoctorContext
from lakelock.storage.hadoop import connector, release

OLDEST_PYSPARK, OLDEST_WITH_DATA_SOURCES = (3, 5), (4, 0)
OLDEST_PANDAS, NEWEST_PANDAS = (2, 2), 2
_INSTALL = "pip install 'lakelock[spark]'"
_HADOOP = "hadoop-client-api-"
_PYTHON_WITHIN_S = 20.0


def check_spark(context: DoctorContext) -> Iterator[Check]:
    """Whether Spark can write this table from here; not checked where PySpark is not installed."""
    pyspark = _installed("pyspark")
    if pyspark is None:
        yield Check("spark", "ok", "PySpark is not installed here: jobs that write run elsewhere")
        return
    yield judge_pyspark(pyspark)
    yield judge_pandas(_installed("pandas"))
    yield from judge_workers_python(os.environ.get("PYSPARK_PYTHON", "python3"))
    java = shutil.which("java", path=_java_path())
    if java is None:
        yield Check(
            "spark", "warning", "no Java was found: Spark cannot start here", "install Java 17 or newer, or set JAVA_HOME"
        )
    yield from judge_connector(context.storage.uri.partition(":")[0], _jars())
    for name, error in broken_neighbours():
        hint = f"Spark then registers no Python data source at all, lakelock's included: repair or remove {name}"
        yield Check("spark", "warning", f"{name} cannot be imported: {error}", hint)


def judge_pyspark(found: str) -> Check:
    if release(found) < OLDEST_PYSPARK:
        return Check("spark", "failed", f"PySpark {found} is too old: lakelock needs 3.5 or newer", _INSTALL)
    if release(found) < OLDEST_WITH_DATA_SOURCES:
        return Check("spark", "ok", f'PySpark {found}: LakeTable works with it, format("lakelock") needs 4.0 or newer')
    return Check("spark", "ok", f"PySpark {found}")


def judge_pandas(found: str | None) -> Check:
    """Spark hands rows to Python as Arrow only where pandas is installed."""
    if found is None:
        return Check("spark", "failed", "pandas is not installed: Spark then hands no rows to Python as Arrow", _INSTALL)
    if release(found) < OLDEST_PANDAS:
        return Check("spark", "failed", f"pandas {found} is too old for Spark: it needs 2.2 or newer", _INSTALL)
    if release(found)[0] > NEWEST_PANDAS:
        said = f"pandas {found}: PySpark is made for pandas 2 and warns of this one on every call"
        return Check("spark", "warning", said, _INSTALL)
    return Check("spark", "ok", f"pandas {found}")


def judge_workers_python(name: str) -> Iterator[Check]:
    """Whether the Python that Spark's workers would run on this machine has lakelock."""
    found = shutil.which(name) or name
    if os.path.dirname(found) == os.path.dirname(sys.executable):
        return
    try:
        done = subprocess.run([found, "-c", "import lakelock, pyarrow"], capture_output=True, timeout=_PYTHON_WITHIN_S)
        works = done.returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        works = False
    if not works:
        said = f"Spark's workers would run {found} on this machine, which cannot import lakelock"
        export = f"export PYSPARK_PYTHON={shlex.quote(sys.executable)}"
        yield Check("spark", "warning", said, f"activate the environment, or {export}")


def judge_connector(scheme: str, jars: Sequence[str] | None) -> Iterator[Check]:
    """Whether Spark's own jars hold the Hadoop connector for tables of that scheme; with None, the jars are unknown."""
    hadoop = next((name[len(_HADOOP) : -len(".jar")] for name in jars or () if name.startswith(_HADOOP)), "")
    needed = connector(scheme, hadoop, jars or ())
    if needed is None:
        return
    if jars is None:
        missing = f"the Spark that belongs to this PySpark was not found, so {needed.jar} cannot be looked for"
        yield Check("spark", "warning", missing)
    elif needed.is_among(jars):
        yield Check("spark", "ok", f"{needed.jar} is among Spark's jars")
    else:
        yield Check(
            "spark",
            "warning",
            f"{needed.jar} is not among Spark's jars; unless the session brings it, Spark cannot read {scheme}:// tables",
            f'set spark.jars.packages to "{needed.coordinates}" in the session, or add the jar to spark.jars',
        )


def broken_neighbours() -> list[tuple[str, str]]:
    """Installed `pyspark_*` modules that fail to import: one is enough to switch off all automatic registration."""
    broken = []
    for module in pkgutil.iter_modules():
        if module.name.startswith("pyspark_"):
            try:
                importlib.import_module(module.name)
            except Exception as error:  # noqa: BLE001 Spark fails on whatever it raises
                broken.append((module.name, f"{type(error).__name__}: {error}"))
    return broken


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _java_path() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return os.path.join(home, "bin") if home else None


def _jars() -> list[str] | None:
    """The names of Spark's jars: of SPARK_HOME, otherwise of the installed PySpark; nothing of PySpark is imported."""
    home = os.environ.get("SPARK_HOME")
    if home is None:
        spec = find_spec("pyspark")
        home = os.path.dirname(spec.origin) if spec is not None and spec.origin else ""
    try:
        return sorted(path.name for path in (Path(home) / "jars").glob("*.jar")) or None
    except OSError:
        return None
