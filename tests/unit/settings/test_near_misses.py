"""The name that a misspelt one is nearest to."""

from __future__ import annotations

from lakelock.texts import column_hint, did_you_mean, nearest


def test_a_misspelt_name_is_found_in_any_case() -> None:
    assert nearest("PRISE", ["note", "Price"]) == "Price"
    assert did_you_mean("prise", ["note", "Price"]) == '; did you mean "Price"?'
    assert column_hint("prise", ["note", "Price"]) == "did you mean 'Price'?"


def test_a_name_that_is_near_to_none_gets_no_guess() -> None:
    assert nearest("colour", ["note", "Price"]) is None
    assert did_you_mean("colour", ["note", "Price"]) == ""
    assert column_hint("colour", ["note", "Price"]) == "columns: note, Price"
