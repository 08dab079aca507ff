"""`lakelock package`: lakelock for Spark executors that do not have it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from lakelock.admin.executor_archive import ExecutorArchive, default_name, write_archive
from lakelock.cli.arguments import JsonOption
from lakelock.cli.output import Output, reporting
from lakelock.texts import counted


def package(
    file: Annotated[
        Path | None,
        typer.Argument(help="The archive to write; default: a name with the version, in this folder.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Pack lakelock and what it needs into an archive for Spark executors."""
    with reporting(as_json) as out:
        made = write_archive(file or Path(default_name()))
        values = {
            "file": str(made.path), "size_bytes": made.size_bytes, "python": made.python, "platform": made.platform,
            "packages": made.packages, "spark": dict(made.spark_options),
        }  # fmt: skip
        out.show(values, lambda o: _print(o, made))


def _print(out: Output, made: ExecutorArchive) -> None:
    what = f"{made.size_bytes / 1_000_000:.0f} MB, {counted(len(made.packages), 'package')}"
    out.line(f"{made.path}: {what}, for Python {made.python} on {made.platform}")
    out.line("Give it to the executors by the Spark conf:")
    for name, value in made.spark_options.items():
        out.line("  " + shlex.join(["--conf", f"{name}={value}"]))
