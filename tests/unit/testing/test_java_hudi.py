"""The environment of Java Hudi is made once, and where it cannot be made the reason says what is needed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.servers.fetched.java_hudi import environment

from lakelock.testing.service import ServerMissing


def test_an_environment_that_was_made_to_its_end_is_used_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = tmp_path / "calls"
    works = tmp_path / "works"
    works.write_text(
        f'#!/bin/sh\necho "$@" >> {calls}\n[ "$2" != venv ] || {{ mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; }}\n'
    )
    works.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(works))
    for _ in range(2):
        assert environment(tmp_path / "made") == tmp_path / "made" / "bin" / "python"
        made, filled = calls.read_text().splitlines()
        assert "venv" in made and "pip install" in filled and "pyspark==3.5" in filled and "pyarrow" in filled


def test_a_step_that_fails_is_a_missing_server_with_the_last_words_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = tmp_path / "fails"
    fails.write_text("#!/bin/sh\necho no such package >&2\nexit 1\n")
    fails.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fails))
    with pytest.raises(ServerMissing, match=r"^needs pyspark==3\.5.*: no such package$"):
        environment(tmp_path / "made")
