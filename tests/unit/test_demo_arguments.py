"""What the demo refuses before it starts anything, and where it works."""

from pathlib import Path

import pytest

from lakelock.clock import SystemRuntime
from lakelock.demo.__main__ import USAGE, check_provider, folder, main
from lakelock.demo.flights import DemoError, UsageError


def test_a_provider_that_is_not_there_or_cannot_work_between_processes_is_refused_at_once():
    with pytest.raises(UsageError, match="one process only"):
        check_provider("memory:", SystemRuntime())
    with pytest.raises(UsageError, match="no lock provider 'storrage'"):
        check_provider("storrage:", SystemRuntime())
    check_provider("storage:", SystemRuntime())


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path):
    (tmp_path / "mine").touch()
    with pytest.raises(UsageError, match="not an empty folder"):
        folder(tmp_path)
    new = folder(tmp_path / "a" / "b")
    assert new.is_dir() and folder(new) == new


def test_wrong_arguments_end_with_the_code_for_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "mine").touch()
    assert main(["--path", str(tmp_path)]) == USAGE
    assert main(["--provider", "nope:"]) == USAGE
    assert "available here: storage:" in capsys.readouterr().err


def test_a_size_that_cannot_be_used_is_a_usage_error(capsys: pytest.CaptureFixture[str]):
    assert main(["--size", "much"]) == USAGE
    assert main(["--size", "10"]) == USAGE
    assert "too small" in capsys.readouterr().err


def test_a_usage_error_is_one_of_the_demos_errors():
    assert issubclass(UsageError, DemoError)
