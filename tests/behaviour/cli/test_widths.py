"""What fits on a terminal and in a pipe: instants, tokens and commands are in one piece, whatever the width."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from rich.console import Console
from tests.api import LocalStorage
from tests.behaviour.cli.command_line import left_by_a_dead_writer, on_terminal, run, writer
from tests.behaviour.tables import insert
from tests.sizes import in_ci

from lakelock.cli.output import in_columns

NAME = "a-rather-long-application-name-of-a-nightly-backfill " * 5


def shown(columns: list[str], rows: list[list[object]], width: int, *keep: str) -> list[str]:
    """The lines of these rows on a terminal of that width."""
    console = Console(file=StringIO(), width=width, color_system=None)
    console.print(in_columns(columns, rows, empty="nothing", width=width, keep=keep))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [80, *in_ci(120)])
def test_a_terminal_breaks_no_instant_and_no_command(storage: LocalStorage, path: str, width: int) -> None:
    done = insert(writer(storage, name=NAME), storage, "month=1", "a")
    dead = left_by_a_dead_writer(storage)
    listed = on_terminal("commits", "ls", path, columns=width)
    assert done.instant in listed and "2026" not in re.sub(r"\d{17}|20\d\d-\d\d-\d\d \S+", "", listed)
    assert all(len(line) <= width for line in listed.splitlines() if "pending" not in line)
    assert ({"by", "rows", "retries"} <= set(listed.splitlines()[0].split())) == (width == 120) and "not shown: " in listed
    announced = on_terminal("markers", "ls", path, columns=width)
    assert dead.instant in announced and f"to do it now: lakelock markers reap {path}\n" in announced
    told = on_terminal("commits", "show", path, "yesterday", columns=width)
    assert f"next: lakelock commits ls {path}\n" in told


def test_a_pipe_gets_lines_of_any_length_whole(storage: LocalStorage, path: str) -> None:
    done = insert(writer(storage, name=NAME), storage, "month=1", "a")
    left_by_a_dead_writer(storage)
    assert NAME.strip() in run("commits", "ls", path).out and "not shown" not in run("commits", "ls", path).out
    assert NAME.strip() in run("commits", "show", path, done.instant).out
    file = path + "/no such file" * 30
    assert f"settings file {file}.toml" in run("commits", "ls", path, "-c", f"{file}.toml").err


def test_long_texts_are_broken_between_words_before_a_column_goes() -> None:
    rows: list[list[object]] = [["20261128143508627", "a reason of several words and more", 7]]
    assert shown(["instant", "why", "token"], rows, 40) == [
        "instant            why             token",
        "20261128143508627  a reason of         7",
        "                   several words",
        "                   and more",
    ]


def test_empty_columns_go_first_then_the_last_ones_that_need_not_be_kept() -> None:
    columns, rows = ["instant", "user", "host", "by"], [["20261128143508627", "", "a-host-name", "backfill"]]
    assert shown(columns, rows, 60)[0].split() == columns
    assert shown(columns, rows, 41)[0].split() == ["instant", "host", "by"]
    narrow = shown(columns, rows, 30, "by")
    assert narrow[0].split() == ["instant", "by"] and " ".join(narrow[2:]).startswith("not shown: host; a wider terminal")
    assert shown(columns, rows, 5)[0].split() == ["insta"]
