"""Tables and writers of any name are shown where standard output, or the locale, knows fewer characters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.api import LocalStorage
from tests.behaviour.cli.command_line import writer
from tests.behaviour.tables import insert, new_table
from tests.sizes import in_ci


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    made = LocalStorage(tmp_path / "größe 漢字")
    new_table(made)
    insert(writer(made, name="größe 漢字"), made, "month=1", "a")
    return made


def output(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LC_", "LANG"))}
    command = [sys.executable, "-m", "lakelock.cli", *arguments]
    return subprocess.run(command, env={**kept, **environment}, capture_output=True, check=False)


def test_json_is_ascii_where_the_stream_is_and_says_the_same(storage: LocalStorage, path: str) -> None:
    done = output("commits", "ls", path, "--json", PYTHONUTF8="1", PYTHONIOENCODING="ascii")
    assert done.stdout.isascii() and json.loads(done.stdout)["table"] == storage.uri
    failed = output("commits", "ls", f"{path}/no", "--json", PYTHONUTF8="1", PYTHONIOENCODING="ascii")
    assert failed.stderr.isascii() and f"{storage.uri}/no" in json.loads(failed.stderr)["error"]["message"]


@pytest.mark.parametrize("command", ["commits ls", *in_ci("history")])
def test_text_has_escapes_where_the_stream_has_no_such_character(storage: LocalStorage, path: str, command: str) -> None:
    name, *rest = command.split(" ")
    done = output(name, *rest, path, PYTHONUTF8="1", PYTHONIOENCODING="latin-1")
    assert (done.returncode, done.stderr) == (0, b"")
    assert "größe \\u6f22\\u5b57" in done.stdout.decode("latin-1")


def test_a_name_that_the_locale_does_not_know_is_blamed_on_the_locale(path: str) -> None:
    done = output("commits", "ls", path, LC_ALL="C", PYTHONUTF8="0")
    assert done.returncode == 2
    assert b"its locale has ascii" in done.stderr and b"LC_ALL=C.UTF-8" in done.stderr and b"rename" not in done.stderr
