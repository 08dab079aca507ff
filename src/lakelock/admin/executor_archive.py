"""An archive of lakelock and of what it needs, for Spark executors whose Python has none of it.

Spark unpacks it for each executor (`spark.archives`), and the executors find it by their `PYTHONPATH`. It has the files that
are installed here, compiled ones included, so the executors' Python must be of the same version, on the same platform.
"""

from __future__ import annotations

import json
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from lakelock.errors import InputError

FOLDER = "lakelock"
"""Where Spark unpacks it, in the executor's working folder."""
ROOTS = ("lakelock", "pandas")
"""Spark hands rows to Python as Arrow only where pandas is."""
_NOT_NEEDED = ("pandas/tests/", "pyarrow/include/", "pyarrow/tests/")
_LEVEL = 3
"""Of compression: a higher one saves a few per cent, and takes three times as long."""


@dataclass(frozen=True)
class ExecutorArchive:
    """What was packed. `packages`: name and version of each. `python`: the version that executors need, such as `3.11`."""

    path: Path
    size_bytes: int
    packages: tuple[str, ...]
    python: str
    platform: str

    @property
    def spark_options(self) -> Mapping[str, str]:
        """The Spark conf that gives it to the executors."""
        return {"spark.archives": f"{self.path}#{FOLDER}", "spark.executorEnv.PYTHONPATH": f"./{FOLDER}"}


def default_name() -> str:
    """Name of the archive, with what it is for: `lakelock-0.1.0-py311-linux-x86_64.tar.gz`."""
    return f"lakelock-{version('lakelock')}-py{''.join(_python().split('.'))}-{sysconfig.get_platform()}.tar.gz"


def write_archive(path: Path) -> ExecutorArchive:
    """Pack lakelock and what it needs into a new file, a gzipped tar. A file is there when it is whole, or not at all.

    `InputError` where a package is not installed as a wheel is, where the file is there already, has another ending than
    `.tar.gz` or `.tgz`, by which Spark unpacks it, or cannot be written.
    """
    path = path.absolute()
    if not path.name.endswith((".tar.gz", ".tgz")):
        raise InputError(f"{path.name} would not be unpacked: the archive is a gzipped tar", hint="name it .tar.gz or .tgz")
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent}", hint="create it, or name a file elsewhere")
    if path.exists():
        raise InputError(f"{path} exists", hint="remove it, or name another file")
    packed = sorted(_needed(ROOTS).items())
    part = path.with_name(f"{path.name}.part")
    try:
        with tarfile.open(part, "w:gz", compresslevel=_LEVEL) as archive:
            for _, package in packed:
                for name, file in sorted(_files(package)):
                    archive.add(file, arcname=name)
        part.replace(path)
        size_bytes = path.stat().st_size
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}", hint="name a file in a folder with room") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
    names = tuple(f"{name} {package.version}" for name, package in packed)
    return ExecutorArchive(path, size_bytes, names, _python(), sysconfig.get_platform())


def _python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _needed(roots: Iterable[str]) -> dict[str, Distribution]:
    """These packages and all that they need here, by name."""
    found: dict[str, Distribution] = {}
    waiting = [Requirement(root) for root in roots]
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        if name in found:
            continue
        found[name] = _installed(name)
        extras = ("", *wanted.extras)
        needs = [Requirement(text) for text in found[name].requires or ()]
        waiting += [each for each in needs if each.marker is None or any(each.marker.evaluate({"extra": e}) for e in extras)]
    return found


def _installed(name: str) -> Distribution:
    try:
        package = distribution(name)
    except PackageNotFoundError as error:
        raise InputError(f"{name} is not installed here", hint="pip install 'lakelock[spark]'") from error
    origin = json.loads(package.read_text("direct_url.json") or "{}")
    if package.files is None or origin.get("dir_info", {}).get("editable"):
        raise InputError(
            f"{name} is not installed as a wheel is, so its files are not known", hint=f"pip install --force-reinstall {name}"
        )
    return package


def _files(package: Distribution) -> Iterator[tuple[str, Path]]:
    """Names in the archive, and the files: all that is imported, no scripts."""
    for file in package.files or ():
        name = file.as_posix()
        if ".." in file.parts or "__pycache__" in file.parts or name.startswith(_NOT_NEEDED):
            continue
        path = Path(str(package.locate_file(file)))
        if path.is_file():
            yield name, path
