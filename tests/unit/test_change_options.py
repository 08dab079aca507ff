"""How the options about changes are spelled, in `format("lakelock")`."""

from __future__ import annotations

import pytest

from lakelock.errors import SettingsError
from lakelock.spark_plugin.source_options import LATEST, ChangeOptions


@pytest.mark.parametrize("text", [" latest ", "LATEST", "Latest"])
def test_the_newest_state_is_meant_in_any_case_and_with_spaces_around_it(text: str) -> None:
    assert ChangeOptions.of({"since": text}).since == LATEST


def test_spaces_around_a_moment_and_a_number_do_not_count() -> None:
    given = ChangeOptions.of({"since": " 2026-11-20 ", "until": "2026-11-21\n", "max_files_per_trigger": " 3 "})
    assert (given.since, given.until, given.most_files) == ("2026-11-20", "2026-11-21", 3)
    assert ChangeOptions.of({"since": " ", "until": ""}) == ChangeOptions()


@pytest.mark.parametrize("text", ["²", "٣", "0", "-1", "1.5", ""])
def test_what_is_no_number_of_files_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="the option max_files_per_trigger is") as told:
        ChangeOptions.of({"max_files_per_trigger": text})
    assert "whole number" in told.value.hint
