"""Tests of other projects, from the source distribution of the version that is installed here."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

import pytest

_CACHE = Path(sys.prefix) / "lakelock-sources"
_DOWNLOAD_S = 120.0


def source_file(project: str, path: str, folder: Path) -> str:
    """The text of one file of an installed project's sources, downloaded once per virtual environment.

    Skips where no package index can be reached. `folder` is used where the environment is not ours to write to.
    """
    name = f"{project}-{version(project)}"
    archive = _download(project, name, folder)
    with tarfile.open(archive) as sources:
        member = sources.extractfile(f"{name}/{path}")
        assert member is not None, f"{name} has no {path}"
        return member.read().decode()


def _download(project: str, name: str, folder: Path) -> Path:
    try:
        _CACHE.mkdir(exist_ok=True)
        folder = _CACHE
    except OSError:
        pass
    archive = folder / f"{name}.tar.gz"
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            wanted = [f"--no-binary={project}", "--no-deps", "--dest", str(folder), f"{project}=={version(project)}"]
            command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", *wanted]
            try:
                subprocess.run(command, capture_output=True, text=True, timeout=_DOWNLOAD_S, check=True)
            except (subprocess.SubprocessError, OSError) as error:
                said = getattr(error, "stderr", "") or error
                pytest.skip(f"needs the sources of {name} from a package index: {str(said)[-300:]}")
    return archive
