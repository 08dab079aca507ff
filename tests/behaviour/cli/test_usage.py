"""How the command line ends before a command begins: a wrong call, and Ctrl-C while it loads."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tests.behaviour.cli.command_line import run

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
