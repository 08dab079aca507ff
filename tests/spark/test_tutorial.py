"""A reader of the tutorial who types every block, in the order of the page, sees what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from code import InteractiveConsole
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(python|bash|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def typed(block: str) -> str:
    """What the second terminal says to a block of commands."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    shell = ["bash", "-euo", "pipefail", "-c", block]
    done = subprocess.run(shell, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Prompt(InteractiveConsole):
    """Python's prompt, where a blank line ends a function. An error ends the test."""

    def type(self, block: str) -> None:
        for line in [*block.splitlines(), ""]:
            self.push(line)

    def showtraceback(self) -> None:
        raise AssertionError(sys.exc_info()[1]) from sys.exc_info()[1]

    def showsyntaxerror(self, filename: str | None = None, **_: object) -> None:
        raise AssertionError(sys.exc_info()[1]) from sys.exc_info()[1]


def test_every_block_of_the_tutorial_runs_and_says_what_the_page_says(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    prompt = Prompt()
    said: list[str] = []
    try:
        for language, block in BLOCK.findall(PAGE.read_text()):
            here = block.replace("/tmp/tutorial", str(tmp_path))
            if language == "python":
                prompt.type(here)
                said.append(capfd.readouterr().out)
            elif language == "bash" and "pip install" not in here:
                said.append(typed(here))
            elif language == "text":
                shown, seen = shape(here), shape(said[-1])
                assert [line[: len(begins)] for begins, line in zip(shown, seen, strict=True)] == shown
    finally:
        for query in spark.streams.active:
            query.stop()
    assert len(said) > 12
    assert (tmp_path / "timeline.html").stat().st_size > 1000


def shape(text: str) -> list[str]:
    """What is the same in every run: each line without its numbers, up to the first `…`."""
    return [re.sub(r"[\d.]+", "#", line.split("…")[0]).strip() for line in text.strip().splitlines()]
