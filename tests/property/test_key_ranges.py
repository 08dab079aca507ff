"""A file is left out only if none of the keys can be in it."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakelock.table.base_files import KeyRange, SortedKeys

KEYS = st.text(st.sampled_from("ab\u00e9\ud7ff\ue000\U0001f600"), max_size=3)


@given(st.lists(KEYS, unique=True, max_size=6), st.lists(KEYS, min_size=1, max_size=6))
def test_sorted_keys_meet_a_range_if_one_of_them_may_be_in_it(asked: list[str], stored: list[str]) -> None:
    stated = KeyRange.of(pa.chunked_array([pa.array(stored, pa.string())]))
    keys = pa.array(asked, pa.string())
    meets = SortedKeys(keys).meets(stated)
    assert SortedKeys(keys, ranges=1).meets(stated) == meets
    assert meets or not set(asked) & set(stored)
    assert meets or not (stated.may_hold(keys).any() if asked else False)
