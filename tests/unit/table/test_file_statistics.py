"""What is recorded of a file's columns never excludes a value that is there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakelock.table.commit_metadata import LONGEST_TEXT, ColumnRange, at_least, at_most


@given(st.text(min_size=0, max_size=3 * LONGEST_TEXT))
def test_a_cut_text_still_covers_the_whole_one(text: str) -> None:
    assert at_most(text) <= text and len(at_most(text)) <= LONGEST_TEXT
    above = at_least(text)
    assert above is None or (text <= above and len(above) <= LONGEST_TEXT)


@given(st.text(alphabet="\ud7ff\U0010ffffa", min_size=LONGEST_TEXT, max_size=2 * LONGEST_TEXT))
def test_the_greatest_characters_are_passed_over_and_no_half_of_a_pair_is_made(text: str) -> None:
    above = at_least(text)
    assert above is None or text <= above
    assert above is None or above.encode()


def test_nothing_is_greater_than_the_greatest_characters_alone() -> None:
    assert at_least("\U0010ffff" * (LONGEST_TEXT + 1)) is None
    assert ColumnRange("a" * 40, "b" * 40, 0) == ColumnRange("a" * 32, "b" * 31 + "c", 0)
