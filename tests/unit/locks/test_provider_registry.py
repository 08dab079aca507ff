"""Lock providers of third parties, found through their entry points."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.api import Events, LockProvider, MemoryStorage, Storage, WriterIdentity, open_provider

from lakelock.errors import ProviderRefused, SettingsError
from lakelock.providers import provider_names
from lakelock.providers.base import Opening
from lakelock.providers.memory import MemoryLockProvider
from lakelock.providers.registry import BUILT_IN
from lakelock.settings import LockSettings, Settings
from lakelock.testing import ManualRuntime

MODULE = """
from lakelock.providers.memory import MemoryLockProvider

class Doors(MemoryLockProvider):
    def __init__(self, opening):
        super().__init__(opening)
        self.uri = opening.uri
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with two providers, one of which lacks a dependency."""
    info = tmp_path / "doors-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: doors\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[lakelock.lock_providers]\ndoors = doors_lock:Doors\nbroken = doors_lock_broken:Doors\nmemory = doors_lock:Doors\n"
    )
    (tmp_path / "doors_lock.py").write_text(MODULE)
    (tmp_path / "doors_lock_broken.py").write_text("import a_driver_that_is_not_installed\n")
    monkeypatch.syspath_prepend(str(tmp_path))


def open_named(uri: str, storage: Storage | None = None) -> LockProvider:
    runtime = ManualRuntime()
    writer = WriterIdentity.of_this_process(runtime)
    storage = storage or MemoryStorage(runtime.now_ms, name=uri)
    return open_provider(Settings(lock=LockSettings(provider=uri)), storage, runtime, writer)


@pytest.mark.usefixtures("installed")
def test_an_installed_provider_opens_by_its_name_and_gets_the_whole_uri() -> None:
    provider = open_named("DOORS://host:1/path?x=1")
    assert provider.uri == "DOORS://host:1/path?x=1"  # type: ignore[attr-defined]
    provider.release(provider.acquire(wait_s=0))
    assert provider_names() == [*BUILT_IN, "broken", "doors"]


@pytest.mark.usefixtures("installed")
def test_a_built_in_name_cannot_be_taken_over() -> None:
    assert type(open_named("memory:")) is MemoryLockProvider


@pytest.mark.usefixtures("installed")
def test_a_provider_that_lacks_its_driver_says_what_is_missing() -> None:
    with pytest.raises(ProviderRefused, match="a_driver_that_is_not_installed") as refused:
        open_named("broken:")
    assert "install" in refused.value.hint


@pytest.mark.usefixtures("installed")
def test_a_misspelt_name_is_answered_with_what_is_there() -> None:
    with pytest.raises(SettingsError) as refused:
        open_named("dors://host")
    assert "did you mean doors:" in refused.value.hint and "storage:" in refused.value.hint


def test_the_memory_lock_refuses_tables_that_other_machines_can_write() -> None:
    class Remote(MemoryStorage):
        @property
        def uri(self) -> str:
            return "s3://bucket/table"

    with pytest.raises(SettingsError, match="no other machine"):
        open_named("memory:", Remote())


@pytest.mark.parametrize(
    ("uri", "meant"), [("storge:", "storage"), ("memroy", "memory"), ("zookeper://h1:2181/x", "available")]
)
def test_an_unknown_provider_is_refused_with_what_was_meant(uri: str, meant: str) -> None:
    with pytest.raises(SettingsError) as refused:
        open_named(uri)
    assert meant in refused.value.hint


@pytest.mark.parametrize("uri", ["storage", "storage:", "STORAGE://", "memory", "memory:"])
def test_a_lock_beside_the_table_is_named_by_its_scheme_or_as_the_table_records_it(uri: str) -> None:
    identity = open_named(uri).identity
    assert open_named(identity).identity == identity


@pytest.mark.parametrize("uri", ["storage:s3://other-bucket/locks", "storage:/var/locks/t.json", "memory:team-a"])
def test_a_place_for_a_lock_that_has_none_is_refused(uri: str) -> None:
    with pytest.raises(SettingsError, match="nowhere else") as refused:
        open_named(uri)
    assert f'"{uri.partition(":")[0]}:"' in refused.value.hint


def test_what_a_provider_is_opened_with_does_not_show_the_password_in_its_uri() -> None:
    runtime = ManualRuntime()
    settings = Settings(lock=LockSettings(provider="redis://:hunter2@h"))
    writer = WriterIdentity.of_this_process(runtime)
    assert "hunter2" not in repr(Opening("redis://:hunter2@h", settings, MemoryStorage(), runtime, writer, Events()))
