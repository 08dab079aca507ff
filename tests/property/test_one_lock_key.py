"""Names of one table lead every lock provider to one lock, and names of two tables to two."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.api import LockProvider, SystemRuntime, WriterIdentity, open_provider, open_storage

from lakelock.errors import LockTimeout
from lakelock.settings import LockSettings, Settings

NAMES = st.text("abcXYZ019-_.=é%", min_size=1, max_size=8).filter(lambda name: name not in (".", ".."))
PATHS = st.lists(NAMES, min_size=1, max_size=4)
BETWEEN = st.sampled_from(["/", "//", "/./", "/x/../", "/x/y/../../"])
AFTER = st.sampled_from(["", "/", "//", "/.", "/x/..", "/x/../"])
S3 = st.sampled_from(["s3", "s3a", "s3n", "S3A"])

KEYED_BY_PATH = (
    "redis://host",
    "hive_metastore://host",
    "zookeeper://host?implicit=true",
    "dynamodb://locks?implicit=true",
)
"""Locks whose key is made from the table's path."""

KEYED_BY_NAME = ("zookeeper://host/base?key=table", "dynamodb://locks")
"""Locks whose key is the table's name, as in Java where none is configured."""

BESIDE_THE_TABLE = ("storage:", "memory:")
"""Locks that are where the table is."""

NOBODY = {"access_key_id": "id", "secret_access_key": "key", "region": "us-east-1"}
FEW = 10
"""Each example opens a client; the spelling itself has many examples in `test_canonical_uri`."""

_runtime = SystemRuntime()


def opened(uri: str, table: str | Path) -> LockProvider:
    """The provider for the table of that name. Nobody is contacted."""
    options = {"region_name": "us-east-1"} if uri.startswith("dynamodb") else {}
    chosen = Settings(lock=LockSettings(provider=uri), lock_options=options)
    storage = open_storage(table, NOBODY if ":" in str(table) and not str(table).startswith("file:") else {})
    return open_provider(chosen, storage, _runtime, WriterIdentity.of_this_process(_runtime, "one"))


@st.composite
def spelled(draw: st.DrawFn, path: list[str]) -> str:
    """One of the ways to write a path below a bucket or a root."""
    return "".join(f"{draw(BETWEEN)}{name}" for name in path) + draw(AFTER)


@pytest.mark.parametrize("uri", KEYED_BY_PATH)
@settings(max_examples=FEW)
@given(st.data(), PATHS)
def test_every_spelling_of_an_s3_path_is_one_lock(uri: str, data: st.DataObject, path: list[str]) -> None:
    plain = opened(uri, "/".join(["s3://bucket", *path])).identity
    for _ in range(2):
        assert opened(uri, f"{data.draw(S3)}://bucket{data.draw(spelled(path))}").identity == plain


@pytest.mark.parametrize("uri", KEYED_BY_PATH)
@settings(max_examples=FEW)
@given(PATHS, PATHS)
def test_two_s3_paths_are_two_locks(uri: str, one: list[str], other: list[str]) -> None:
    identities = [opened(uri, "/".join(["s3://bucket", *path])).identity for path in (one, other)]
    assert (identities[0] == identities[1]) == (one == other)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table in `real/deep/table`, with links to it and to folders above it."""
    top = tmp_path_factory.mktemp("lake")
    table = top / "real" / "deep" / "table"
    (table / ".hoodie").mkdir(parents=True)
    (table / ".hoodie" / "hoodie.properties").write_text("hoodie.table.name=flights\n")
    (top / "link").symlink_to(top / "real")
    (top / "real" / "direct").symlink_to(table)
    (top / "real" / "loop").symlink_to(top)
    return table


LOCAL_NAMES: list[Callable[[Path], str]] = [
    str,
    lambda table: f"{table}/",
    lambda table: f"file:{table}",
    lambda table: f"file://{table}//",
    lambda table: f"file://localhost{table}/.",
    lambda table: f"{table}/../table",
    lambda table: os.path.relpath(table),
    lambda table: str(table.parents[2] / "link" / "deep" / "table"),
    lambda table: str(table.parents[1] / "direct"),
    lambda table: f"file:{table.parents[2]}/link/loop/real/direct/",
    lambda table: f"{table.parents[2]}/link/../real/deep/table",
]


@pytest.mark.parametrize("uri", [*KEYED_BY_PATH[:2], *KEYED_BY_NAME, *BESIDE_THE_TABLE])
def test_links_and_other_spellings_of_a_local_table_are_one_lock(uri: str, table: Path) -> None:
    assert len({opened(uri, name(table)).identity for name in LOCAL_NAMES}) == 1


@pytest.mark.parametrize("uri", BESIDE_THE_TABLE)
@settings(max_examples=FEW)
@given(st.lists(st.sampled_from(LOCAL_NAMES), min_size=2, max_size=2))
def test_a_holder_by_one_name_keeps_others_out_by_every_name(uri: str, table: Path, names: list[Callable[[Path], str]]) -> None:
    holder, other = (opened(uri, name(table)) for name in names)
    lease = holder.acquire(wait_s=5)
    try:
        with pytest.raises(LockTimeout):
            other.acquire(wait_s=0)
    finally:
        holder.release(lease)
    other.release(other.acquire(wait_s=5))
