"""The lock in SQLite keeps every promise that lakelock's own locks keep."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from lakelock.clock import SystemRuntime
from lakelock.errors import ProviderUnavailable, SettingsError
from lakelock.identity import WriterIdentity
from lakelock.providers import LockProvider, open_provider
from lakelock.settings import Settings
from lakelock.storage import Storage
from lakelock.storage.local import LocalStorage
from lakelock.storage.memory import MemoryStorage
from lakelock.testing.lock_suite import LockedTable, LockProviderSuite


class TestSqliteLock(LockProviderSuite):
    @pytest.fixture
    def locked_table(self, tmp_path: Path) -> LockedTable:
        return LockedTable({"lock.provider": f"sqlite:{tmp_path}/locks.db"}, uri=str(tmp_path / "table"))


def opened(uri: str, storage: Storage) -> LockProvider:
    runtime = SystemRuntime()
    settings = Settings.resolve({"lock.provider": uri}).settings
    return open_provider(settings, storage, runtime, WriterIdentity.of_this_process(runtime))


def test_a_database_that_somebody_keeps_locked_is_waited_for_within_the_bound_and_then_named(tmp_path: Path) -> None:
    provider = opened(f"sqlite:{tmp_path}/locks.db", LocalStorage(tmp_path / "table"))
    provider.probe()
    with sqlite3.connect(tmp_path / "locks.db", isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(ProviderUnavailable, match="locked"):
            provider.acquire(wait_s=0.2)
        other.execute("ROLLBACK")
    provider.release(provider.acquire(wait_s=5))


def test_the_probe_says_that_the_folder_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ProviderUnavailable) as refused:
        opened(f"sqlite:{tmp_path}/nowhere/locks.db", LocalStorage(tmp_path / "table")).probe()
    assert "make its folder" in refused.value.hint


def test_tables_that_other_machines_write_are_refused(tmp_path: Path) -> None:
    class Remote(MemoryStorage):
        @property
        def uri(self) -> str:
            return "s3://bucket/table"

    with pytest.raises(SettingsError, match="this machine"):
        opened(f"sqlite:{tmp_path}/locks.db", Remote())


def test_two_tables_in_one_database_have_two_locks(tmp_path: Path) -> None:
    one, two = (opened(f"sqlite:{tmp_path}/locks.db", LocalStorage(tmp_path / name)) for name in ("one", "two"))
    assert one.identity != two.identity
    one.acquire(wait_s=0)
    two.acquire(wait_s=0)
