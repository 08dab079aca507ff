"""All names of one table have one canonical spelling."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.api import LocalStorage, StorageLocation, open_storage

from lakelock.errors import SettingsError
from lakelock.storage.location import canonical_uri

NAMES = st.text(
    st.characters(codec="utf-8", exclude_characters="/\0", exclude_categories=("Zs", "Zl", "Zp", "Cc", "Cs")),
    min_size=1,
    max_size=12,
).filter(lambda name: name not in (".", ".."))
PATHS = st.lists(NAMES, min_size=1, max_size=5)
SCHEMES = st.sampled_from(["s3", "s3a", "s3n", "S3A", "gs", "gcs", "az", "azure"])
NOISE = st.sampled_from(["", "/", "//", "/./", "/x/../", "/x/y/../../"])


@given(SCHEMES, PATHS, st.lists(NOISE, min_size=6, max_size=6))
def test_slashes_dots_and_synonyms_make_no_difference(scheme: str, path: list[str], noise: list[str]) -> None:
    noisy = "".join((between or "/") + name for between, name in zip(noise, path, strict=False)) + noise[-1]
    same = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "azure": "az"}.get(scheme.lower(), scheme.lower())
    expected = "/".join([f"{same}://bucket", *path])
    assert canonical_uri(f"{scheme}://bucket{noisy}") == expected
    assert canonical_uri(expected) == expected


@given(PATHS)
def test_local_names_agree_and_a_second_pass_changes_nothing(path: list[str]) -> None:
    plain = "/nowhere/" + "/".join(path)
    expected = f"file://{plain}"
    for spelling in (plain, f"file:{plain}", f"file://{plain}", f"file://localhost{plain}", f"{plain}/", f"//{plain[1:]}/."):
        assert canonical_uri(spelling) == expected
    assert canonical_uri(os.path.relpath(plain)) == expected
    assert canonical_uri(expected) == expected
    assert canonical_uri(Path(plain)) == expected


@given(st.text(max_size=30))
def test_any_text_gives_a_canonical_uri_or_a_settings_error(text: str) -> None:
    try:
        once = canonical_uri(text)
    except SettingsError:
        return
    assert canonical_uri(once) == once


@pytest.mark.parametrize("uri", ["table\r/", "/lake/table /", "s3://bucket/table /"])
def test_a_name_that_ends_with_white_space_is_refused(uri: str) -> None:
    with pytest.raises(SettingsError, match="ends with white space"):
        canonical_uri(uri)


def test_links_lead_to_the_same_name(tmp_path: Path) -> None:
    (tmp_path / "real" / "table").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert canonical_uri(tmp_path / "link" / "table") == canonical_uri(tmp_path / "real" / "." / "table")
    assert canonical_uri(tmp_path / "link" / ".." / "other") == f"file://{tmp_path}/other"


def test_a_percent_sign_stays_what_it_is(tmp_path: Path) -> None:
    assert canonical_uri(f"file://{tmp_path}/a%20b") == f"file://{tmp_path}/a%20b"


def test_azure_names_keep_account_and_container() -> None:
    expected = "abfs://data@acct.dfs.core.windows.net/t"
    assert canonical_uri("abfss://data@acct.dfs.core.windows.net/t/") == expected


def test_the_usual_port_of_a_name_node_makes_no_difference() -> None:
    assert canonical_uri("hdfs://nn:8020//lake/./t/") == canonical_uri("HDFS://nn/lake/t") == "hdfs://nn/lake/t"
    assert canonical_uri("hdfs://nn:8021/t") == "hdfs://nn:8021/t"


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "  ",
        "hdfs:///t",
        "hdfs://me@n/t",
        "viewfs://n/t",
        "memory://t",
        "s3://",
        "s3:/b/t",
        "s3://b/../c",
        "s3://id:pass-word@b/t",
        "file://other/t",
        "nul\0",
    ],
)
def test_what_cannot_be_a_table_is_refused_with_a_next_step_and_no_secret(uri: str) -> None:
    with pytest.raises(SettingsError) as refused:
        canonical_uri(uri)
    assert refused.value.hint and "pass-word" not in str(refused.value)


def test_a_location_is_picklable_and_shows_no_option(tmp_path: Path) -> None:
    location = StorageLocation.of(tmp_path / "t" / "..", {"secret_access_key": "pass-word"})
    assert "pass-word" not in repr(location)
    again = pickle.loads(pickle.dumps(location))
    assert again == location and again.open().uri == f"file://{tmp_path}"


def test_opening_contacts_nobody() -> None:
    assert isinstance(open_storage("/nowhere/at/all"), LocalStorage)
    remote = open_storage("s3a://bucket/t/", {"endpoint": "http://127.0.0.1:1", "allow_http": "true", "region": "x"})
    assert remote.uri == "s3://bucket/t"
