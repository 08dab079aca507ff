"""How the command line ends before a command begins: a wrong call, and Ctrl-C while it loads."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.api import LocalStorage
from tests.behaviour.cli.command_line import run
from tests.behaviour.tables import new_table

from lakelock.cli.output import Exit

INTERRUPTED_WHILE_LOADING = """
import os, signal, sys

class Interrupted:
    def find_spec(self, name, *_):
        if name == "lakelock.cli.main":
            os.kill(os.getpid(), signal.SIGINT)

# A shell lets the jobs that it starts in the background ignore the signal.
signal.signal(signal.SIGINT, signal.default_int_handler)
from lakelock.cli.start import run
sys.meta_path.insert(0, Interrupted())
run()
"""


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (["commits", "ls", "t", "-n", "0"], "--limit"),
        (["commits", "ls", "t", "--limt", "3"], "No such option: --limt"),
        (["commits", "ls"], "Missing argument 'PATH'"),
        (["commits", "lss", "t"], "No such command 'lss'"),
        (["comits"], "No such command 'comits'"),
        (["comits"], "Did you mean `lakelock commits`?"),
        (["vacuum", "t"], "Did you mean `lakelock clean`?"),
        (["profile", "t", "--require", "delt"], "'delt' is not one of"),
    ],
)
def test_a_wrong_call_is_told_as_json_where_it_asks_for_json(call: list[str], says: str) -> None:
    ended = run(*call, "--json")
    error = json.loads(ended.err)["error"]
    assert (ended.code, ended.out, error["code"]) == (Exit.USAGE, "", "input")
    assert says in error["message"] and error["hint"].endswith(" --help")
    in_words = run(*call)
    assert in_words.code == Exit.USAGE and "Usage: " in in_words.err


def test_ctrl_c_while_the_modules_load_ends_without_a_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED_WHILE_LOADING], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (["restore", "PATH", "--as-of", ""], "--as-of"),
        (["optimize", "PATH", "--partition", " "], "--partition"),
        (["optimize", "PATH", "--partition="], "--partition"),
        (["locks", "explain", "", "PATH"], "an argument"),
    ],
)
def test_an_empty_text_is_refused_and_not_taken_for_an_argument_that_was_left_out(call: list[str], named: str) -> None:
    ended = run(*call)
    assert ended.code == Exit.USAGE and f"{named} is an empty text" in " ".join(ended.err.split())
    assert json.loads(run(*call, "--json").err)["error"]["code"] == "input"


@pytest.mark.parametrize(("to", "more"), [("&-", []), ("/dev/full", ["--json"])])
def test_the_exit_code_tells_what_an_error_is_where_it_cannot_be_printed(tmp_path: Path, to: str, more: list[str]) -> None:
    done = in_a_shell(f"2>{to}", "commits", "show", str(tmp_path), "no instant", *more)
    assert (done.returncode, done.stdout) == (Exit.USAGE, "")


def test_a_command_whose_standard_output_is_closed_does_its_work_without_a_word(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "t")
    new_table(storage)
    done = in_a_shell(">&-", "profile", storage.root, "--require", "delta")
    assert (done.returncode, done.stderr) == (Exit.OK, "")
    assert run("profile", storage.root, "--json").json["required"] == "delta"


@pytest.mark.parametrize("json_option", [[], ["--json"]])
def test_a_full_disk_below_standard_output_is_an_error_and_no_traceback(tmp_path: Path, json_option: list[str]) -> None:
    storage = LocalStorage(tmp_path / "t")
    new_table(storage)
    done = in_a_shell(">/dev/full", "history", storage.root, *json_option)
    assert done.returncode == Exit.ERROR and "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
    assert "the output cannot be written: No space left on device" in done.stderr


def in_a_shell(redirection: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = f"{shlex.join([sys.executable, '-m', 'lakelock.cli', *arguments])} {redirection}"
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
