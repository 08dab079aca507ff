"""The lock file reads back as written, and nobody who renews is ever judged dead."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.api import WriterIdentity

from lakelock.errors import CorruptTableError
from lakelock.providers.base import DRIFT_MARGIN_S
from lakelock.providers.storage import LockFile, Sighting, age_s
from lakelock.storage import Stored

NUMBERS = st.integers(min_value=1, max_value=2**53)
WRITERS = st.builds(
    WriterIdentity, st.uuids().map(str), st.text(max_size=8), st.text(max_size=8), st.integers(0, 9**6), st.text()
)
FILES = st.one_of(
    st.builds(LockFile, st.booleans(), st.integers(0, 2**53), st.uuids().map(str)),
    st.builds(LockFile, st.booleans(), st.integers(0, 2**53), st.uuids().map(str), NUMBERS, NUMBERS, NUMBERS, WRITERS),
)


@given(FILES)
def test_a_lock_file_reads_back_as_written_with_hudis_fields_first(file: LockFile) -> None:
    data = file.to_bytes()
    assert LockFile.from_bytes(data) == file
    assert list(json.loads(data))[:3] == ["expired", "validUntil", "owner"]


@given(
    st.one_of(
        st.binary(max_size=40),
        st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists).map(json.dumps).map(str.encode),
    )
)
def test_anything_else_is_corrupt_and_never_free(data: bytes) -> None:
    with pytest.raises(CorruptTableError, match="locks break"):
        LockFile.from_bytes(data)


@given(
    lease_s=st.floats(1, 3600),
    modified_ms=st.integers(0, 2**42),
    older_by_s=st.none() | st.floats(0, 10**6),
    watched_s=st.floats(0, 5000),
)
def test_a_version_watched_for_less_than_a_renewal_is_never_over_and_one_watched_for_a_lease_is(
    lease_s: float, modified_ms: int, older_by_s: float | None, watched_s: float
) -> None:
    file = LockFile(False, modified_ms, "owner", 1, 1000, round(lease_s * 1000))
    seen = Sighting(Stored(file.to_bytes(), "v1", modified_ms), file, 100.0, older_by_s)
    over = seen.is_over(100.0 + watched_s)
    if watched_s < seen.lease_s / 3 + DRIFT_MARGIN_S - 0.001:
        assert not over
    elif watched_s > seen.lease_s + DRIFT_MARGIN_S + 0.001:
        assert over
    elif older_by_s is None:
        assert not over or watched_s >= seen.lease_s + DRIFT_MARGIN_S - 0.001


@given(st.integers(0, 2**42), st.integers(0, 10**7))
def test_an_age_is_never_overstated_by_a_clock_of_whole_seconds(written_ms: int, later_ms: int) -> None:
    shown, now = written_ms // 1000 * 1000, (written_ms + later_ms) // 1000 * 1000
    assert age_s(shown, now) <= later_ms / 1000
