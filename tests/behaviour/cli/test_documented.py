"""Every block of the documents runs: commands here, Python in tests/spark/test_docs_examples.py; what cannot run is `text`."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import tomllib
from tests.api import ArrowEngine, LocalStorage
from tests.behaviour.cli.command_line import run, writer
from tests.behaviour.tables import new_table
from tests.behaviour.test_arrow_engine import rows
from tests.unit.test_docs import PAGES, ROOT, Block, blocks

from lakelock.settings import Settings

RUN_ELSEWHERE = {
    "python": "tests/spark/test_docs_examples.py",
    "mermaid": "a drawing",
    "text": "output, or what only a person runs",
}
STAND_INS = {"FILE": "settings.toml", "redis://locks.example:6379/0": "storage:"}
"""What a reader puts in the place of these, beside PATH and INSTANT."""
ALL = [block for page in [*PAGES, ROOT / "benchmarks" / "README.md"] for block in blocks(page)]


def named(block: Block) -> str:
    return f"{block.page.name}:{block.line}"


def of(*languages: str) -> list[Block]:
    return [block for block in ALL if block.language in languages]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a table `t` of three commits, which has a savepoint, and a file of settings."""
    storage = LocalStorage(str(tmp_path / "t"))
    new_table(storage)
    engine = ArrowEngine(writer(storage))
    for number in range(3):
        engine.insert(rows((f"k{number}", number, "1")))
    (tmp_path / "settings.toml").write_text('[lock]\nprovider = "storage:"\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


# The tutorial is typed as a whole by a test of its own.
SHOWN = [block for block in of("bash", "console") if not named(block).startswith("tutorial.md")]


@pytest.mark.parametrize("block", SHOWN, ids=named)
def test_every_command_that_a_page_shows_runs(block: Block, folder: Path) -> None:
    lines = [line.removeprefix("$ ") for line in block.text.splitlines()]
    commands = [words for line in lines for words in _commands(line) if words]
    assert commands
    for words in commands:
        program, *arguments = words
        if program == "lakelock":
            _run_lakelock(arguments, folder)
        elif program == "make":
            done = subprocess.run(["make", "-n", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
        elif program.endswith("python"):
            module = ROOT / arguments[1].replace(".", "/")
            assert module.with_suffix(".py").is_file() or (module / "__main__.py").is_file()
        else:
            assert program in ("pip", "pytest"), f"nothing here runs {program}"


def _commands(line: str) -> list[list[str]]:
    return [shlex.split(part, comments=True) for part in line.split(" && ")]


def _run_lakelock(arguments: list[str], folder: Path) -> None:
    instant = ArrowEngine(writer(LocalStorage(str(folder / "t")))).coordinator.history(1)[0].instant
    known = {**STAND_INS, "PATH": str(folder / "t"), "INSTANT": instant, "20261121093515485": instant}
    given = [known.get(word, str(folder / "t") if word.startswith("/tmp/") else word) for word in arguments]
    ended = run(*given)
    assert "Usage:" not in ended.err, ended.err
    assert ended.code in (0, 1) or "next: " in ended.err, (given, ended)


@pytest.mark.parametrize("block", of("toml"), ids=named)
def test_every_toml_of_a_page_is_settings_or_a_project(block: Block, tmp_path: Path) -> None:
    if "project" in tomllib.loads(block.text):
        return
    file = tmp_path / "lakelock.toml"
    file.write_text(block.text)
    Settings.resolve({}, file=file)


@pytest.mark.parametrize("block", of("properties"), ids=named)
def test_every_key_of_hudi_that_a_page_shows_is_read_from_a_properties_file(block: Block, tmp_path: Path) -> None:
    assert all(re.fullmatch(r"hoodie\.[\w.]+=\S+", line) for line in block.text.splitlines())
    file = tmp_path / "hudi.properties"
    file.write_text(block.text)
    Settings.resolve({}, file=file)


@pytest.mark.parametrize("block", ALL, ids=named)
def test_every_block_has_a_language_that_some_test_runs(block: Block) -> None:
    assert block.language in {*RUN_ELSEWHERE, "bash", "console", "toml", "properties"}
