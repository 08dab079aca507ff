"""What is imported before it is needed: nothing heavy, counted by modules, so that it is the same on a busy machine."""

from __future__ import annotations

import subprocess
import sys

import pytest

import lakelock
from lakelock import errors

HEAVY = ("boto3", "fastavro", "kazoo", "numpy", "obstore", "pandas", "pyarrow", "pyspark", "redis", "sqlglot", "thrift")
RUN = "import sys; from lakelock.cli.start import run; sys.argv[1:] = {arguments}\ntry: run()\nexcept SystemExit: pass"


def imported_by(code: str) -> set[str]:
    """The modules that a process has after it ran this."""
    shown = f"{code}\nimport sys; print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, timeout=120, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "code",
    [
        "import lakelock",
        "from lakelock import ConflictError, LakelockError, LockTimeout, Settings",
        RUN.format(arguments=["--version"]),
        RUN.format(arguments=["--help"]),
        RUN.format(arguments=[]),
        RUN.format(arguments=["comits"]),
    ],
    ids=["import", "names", "version", "help", "nothing", "unknown command"],
)
def test_neither_arrow_nor_a_driver_is_imported(code: str) -> None:
    assert imported_by(code).isdisjoint(HEAVY)


def test_the_package_alone_imports_no_other_module_of_it() -> None:
    assert {name for name in imported_by("import lakelock") if name.startswith("lakelock")} == {"lakelock"}


def test_the_version_needs_nothing_that_draws_on_terminals() -> None:
    assert imported_by(RUN.format(arguments=["--version"])).isdisjoint({"rich", "typer"})


def test_the_command_of_a_call_is_imported_and_no_other() -> None:
    commands = {name for name in imported_by(RUN.format(arguments=["savepoint", "--help"])) if name.startswith("lakelock.cli.")}
    assert "lakelock.cli.upkeep" in commands
    assert commands.isdisjoint(
        {"lakelock.cli.commits", "lakelock.cli.timeline", "lakelock.cli.doctor", "lakelock.cli.table_setup"}
    )


def test_every_error_is_a_name_of_the_package() -> None:
    ours = {name for name, found in vars(errors).items() if isinstance(found, type) and issubclass(found, errors.LakelockError)}
    assert ours <= set(lakelock.__all__) <= set(dir(lakelock))
    assert [name for name in ours if getattr(lakelock, name) is not getattr(errors, name)] == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(lakelock, "Nothing")
