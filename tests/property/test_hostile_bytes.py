"""Values that came out of a parser, and names: of the kind that was asked for, or refused; never a path out of the table."""

from __future__ import annotations

import contextlib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lakelock.errors import CorruptTableError, LockError, SettingsError, StorageError
from lakelock.json_object import JsonObject
from lakelock.markers.names import parse_marker
from lakelock.providers.dynamodb.item import LockItem
from lakelock.settings import Settings
from lakelock.storage.keys import checked
from lakelock.table.instants import parse_file_name

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([10**400, "..", "/etc/passwd", 2**63, -1])
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)


@given(st.dictionaries(st.sampled_from(["n", "t"]), values))
def test_a_field_is_what_was_asked_for_or_a_value_error(fields: dict[str, Any]) -> None:
    found = JsonObject(fields)
    with contextlib.suppress(ValueError):
        assert abs(found.whole("n")) <= 2**63
    with contextlib.suppress(ValueError):
        assert abs(found.number("n")) < float("inf")
    with contextlib.suppress(ValueError):
        assert isinstance(found.text("t"), str)


@given(st.text(max_size=60) | st.text("./\\%\0a=-_", max_size=30))
def test_a_name_in_the_table_never_leads_out_of_it(name: str) -> None:
    parse_file_name(name)
    with contextlib.suppress(CorruptTableError):
        marker = parse_marker(name, "m")
        checked(f"{marker.partition}/x" if marker.partition else "x")
    with contextlib.suppress(StorageError):
        assert not {"", ".", ".."} & set(checked(name).split("/"))


attributes = st.dictionaries(
    st.sampled_from(["key", "ownerName", "leaseDuration", "recordVersionNumber", "isReleased", "token", "writer"]),
    st.dictionaries(st.sampled_from(["S", "N", "B", "NULL"]), st.text(max_size=8), max_size=1),
)


@given(attributes)
def test_an_item_of_another_lock_client_is_read(item: dict[str, dict[str, str]]) -> None:
    with contextlib.suppress(LockError):
        assert LockItem.parse(item).lease_s >= 0


@given(
    st.dictionaries(st.sampled_from(["lock.wait_s", "lock.provider", "redis.wait_replicas", "write.batch_rows", "x"]), scalars)
)
def test_an_option_of_any_kind_is_taken_or_refused(options: dict[str, object]) -> None:
    with contextlib.suppress(SettingsError):
        Settings.resolve(options)
