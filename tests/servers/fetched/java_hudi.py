"""Java Hudi in Spark 3.5: a virtual environment of its own next to that of the tests, and the bundle from Maven Central.

Two versions of PySpark cannot be installed together, so Java Hudi runs in another process of another environment, which is
made on first use and kept. It also has what lakelock needs, but for lakelock itself, which its users put in `PYTHONPATH`.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass
from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path

from tests.given_servers import ServerMissing
from tests.servers.fetched.hudi_jars import HUDI_SPARK
from tests.servers.jvm import java

PYTHON = "LAKELOCK_TEST_SPARK35_PYTHON"
"""Environment variable: the Python of an environment with PySpark 3.5, to use instead of one of our own."""

PYSPARK = "pyspark==3.5.9"
_EXTRAS = ("spark", "sql", "zookeeper")
_TESTS = ("hypothesis", "pytest", "pytest-timeout", "pytest-xdist")
FOLDER = Path(sys.prefix) / "lakelock-servers" / "spark35"
_WITHIN_S = 600.0


@dataclass(frozen=True)
class JavaHudi:
    """The Python to run PySpark 3.5 with, and the jars for `spark.jars`, Hudi's first."""

    python: Path
    jars: tuple[Path, ...]

    def command(self, program: Path, *arguments: str) -> list[str]:
        return [str(self.python), str(program), ",".join(map(str, self.jars)), *arguments]


def java_hudi(folder: Path = FOLDER) -> JavaHudi:
    """Java Hudi, ready to run; `ServerMissing` where it cannot be installed. The first time it takes a minute to download."""
    java()
    given = os.environ.get(PYTHON)
    python = Path(given) if given else environment(folder, _packages())
    return JavaHudi(python, tuple(HUDI_SPARK.fetch().glob("*.jar")))


def environment(folder: Path, packages: list[str]) -> Path:
    """The Python of an environment with these packages in `folder`, made if it is not there. The first is why."""
    python, complete = folder / "bin" / "python", folder / "complete"
    if _holds(complete, packages):
        return python
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with folder.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _holds(complete, packages):
                shutil.rmtree(folder, ignore_errors=True)
                _run(packages[0], [sys.executable, "-m", "venv", "--without-pip", str(folder)])
                pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-input", "--no-compile"]
                _run(packages[0], [*pip, *packages])
                complete.write_text("\n".join(packages))
    except OSError as error:
        raise ServerMissing(f"needs {packages[0]} in {folder}, which cannot be made: {error}") from error
    return python


def lakelock_for(folder: Path) -> Path:
    """A folder for `PYTHONPATH` with lakelock as it is installed here, and nothing else of this environment."""
    for package in ("lakelock", "pyspark_lakelock"):
        spec = find_spec(package)
        assert spec is not None and spec.submodule_search_locations
        (folder / package).symlink_to(next(iter(spec.submodule_search_locations)))
    return folder


def _packages() -> list[str]:
    """PySpark 3.5, what lakelock and its extras for Spark need besides, and what its tests need."""
    return [PYSPARK, *_TESTS, *needed_by_lakelock(_EXTRAS)]


def needed_by_lakelock(extras: Collection[str] = ()) -> list[str]:
    """What lakelock asks for, and these extras of it besides PySpark."""
    needed = []
    for requirement in requires("lakelock") or []:
        package, _, condition = requirement.partition(";")
        extra = condition.partition("extra == ")[2].strip(" \"'()")
        if (not extra or extra in extras) and not package.startswith(("lakelock", "pyspark")):
            needed.append(package.strip() if extra else requirement)
    return needed


def _holds(complete: Path, packages: list[str]) -> bool:
    return complete.exists() and complete.read_text() == "\n".join(packages)


def _run(wanted: str, command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_WITHIN_S, stdin=subprocess.DEVNULL)
    except subprocess.CalledProcessError as error:
        last = (error.stderr or error.stdout or "").strip()[-300:]
        raise ServerMissing(_missing(wanted, last)) from error
    except subprocess.TimeoutExpired as error:
        raise ServerMissing(_missing(wanted, f"not installed within {_WITHIN_S:.0f} s")) from error


def _missing(wanted: str, why: str) -> str:
    return f"needs {wanted}{f', or its Python in {PYTHON}' if wanted == PYSPARK else ''}: {why}"
