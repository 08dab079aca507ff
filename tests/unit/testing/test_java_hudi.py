"""The environment of Java Hudi is made once, and where it cannot be made the reason says what is needed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lakelock.testing.servers.java_hudi import environment
from lakelock.testing.servers.service import ServerMissing


def test_an_environment_that_was_made_to_its_end_is_used_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "complete").touch()
    assert environment(tmp_path) == tmp_path / "bin" / "python"


def test_a_step_that_fails_is_a_missing_server_with_the_last_words_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = tmp_path / "fails"
    fails.write_text("#!/bin/sh\necho no such package >&2\nexit 1\n")
    fails.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fails))
    with pytest.raises(ServerMissing, match=r"^needs pyspark==3\.5.*: no such package$"):
        environment(tmp_path / "made")
