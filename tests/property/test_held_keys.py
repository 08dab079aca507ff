"""What is known of which files hold which keys, against a plain dictionary."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakelock.table.key_search import LocatedKeys

KEYS = st.sampled_from([f"k{number}" for number in range(12)] + ["", "ü", "k1 "])


@given(st.dictionaries(st.integers(0, 9), st.sets(KEYS)), st.lists(KEYS, unique=True), st.lists(KEYS))
def test_each_row_is_tagged_with_every_file_that_holds_its_key(
    stored: dict[int, set[str]], looked_up: list[str], incoming: list[str]
) -> None:
    stored = {number: keys & set(looked_up) for number, keys in stored.items()}
    found = []
    for number, keys in stored.items():
        positions = np.array([at for at, key in enumerate(looked_up) if key in keys], np.int64)
        found.append((number, positions, 100 * number + positions))
    held = LocatedKeys.of(pa.array(looked_up, pa.string()), found)
    positions, files, places, missing = held.tagged(pa.array(incoming, pa.string()))
    expected = sorted((at, number) for at, key in enumerate(incoming) for number, keys in stored.items() if key in keys)
    assert sorted(zip(positions.tolist(), files.tolist(), strict=True)) == expected
    assert places.tolist() == [
        100 * number + looked_up.index(incoming[at]) for at, number in zip(positions, files, strict=True)
    ]
    assert missing.tolist() == [at for at, key in enumerate(incoming) if not any(key in keys for keys in stored.values())]
    assert files.dtype == np.int32
