"""The suite of lock providers notices locks that do not keep their promises, and says what it needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from lakelock.testing.lock_processes import Worker

pytestmark = pytest.mark.waits

BROKEN = """
from dataclasses import replace

import pytest
from lakelock.errors import LockError
from lakelock.providers import LockState
from lakelock.providers.memory import MemoryLockProvider, _slots
from lakelock.providers.registry import BUILT_IN
from lakelock.storage.memory import MemoryStorage
from lakelock.testing import ManualRuntime
from lakelock.testing.lock_suite import LockedTable, OneProcessPromises


class Right(MemoryLockProvider):
    pass


class LetsEverybodyIn(MemoryLockProvider):
    def attempt(self, attempt):
        self._slot().lease = None
        return super().attempt(attempt)


class ForgetsTokens(MemoryLockProvider):
    def attempt(self, attempt):
        self._slot().token = 6
        return super().attempt(attempt)


class Resurrects(MemoryLockProvider):
    def renew(self, lease):
        lease._loss, lease._deadline_s = None, self.runtime.monotonic_s() + lease.lease_s
        return lease


class FreesAnybodys(MemoryLockProvider):
    def release(self, lease):
        super().release(lease)
        self._slot().lease = None


class BreaksWithoutAsking(MemoryLockProvider):
    def break_lock(self, token, *, force=False):
        self._slot().lease = None


class NeverExpires(MemoryLockProvider):
    def attempt(self, attempt):
        slot = self._slot()
        if slot.lease is not None and slot.lease.lost is not None and slot.lease.lost.reason == "expired":
            return self.inspect().holder
        return super().attempt(attempt)


class ForgetsWhen(MemoryLockProvider):
    def inspect(self):
        state = super().inspect()
        return replace(state, holder=state.holder and replace(state.holder, since_ms=None))


class CountsFromTheLatestRenewal(MemoryLockProvider):
    def extend(self, lease):
        super().extend(lease)
        self._slot().since_ms = self.runtime.now_ms()


class NeverEnds(MemoryLockProvider):
    def inspect(self):
        state = super().inspect()
        return replace(state, holder=state.holder and replace(state.holder, left_s=state.holder.lease_s))


class HidesItsHolder(MemoryLockProvider):
    def inspect(self):
        return LockState(None, 0)


def tried(provider):
    class Tried(OneProcessPromises):
        @pytest.fixture
        def locked_table(self, tmp_path, monkeypatch):
            monkeypatch.setitem(BUILT_IN, "tried", provider)
            runtime = ManualRuntime()
            storage = MemoryStorage(runtime.now_ms, name=str(tmp_path))
            return LockedTable({"lock.provider": "tried:"}, runtime=runtime, storage=storage)

    return Tried


for provider in MemoryLockProvider.__subclasses__():
    globals()[f"Test{provider.__name__}"] = tried(provider)
"""
SHOWS_TIMES = "test_inspect_shows_since_when_and_how_much_longer_the_lease_runs_unless_it_is_renewed"
NOTICED_BY = {
    "Right": set(),
    "LetsEverybodyIn": {"test_one_holds_the_lock_and_the_other_is_told_who", "test_no_time_to_wait_still_takes_a_free_lock"},
    "ForgetsTokens": {"test_tokens_grow_across_releases", "test_a_silent_holder_is_replaced_after_its_lease_and_not_before"},
    "Resurrects": {"test_an_expired_lease_is_never_renewed_even_if_nobody_took_the_lock"},
    "FreesAnybodys": {"test_release_may_be_called_twice_and_frees_nobody_elses_lock"},
    "BreaksWithoutAsking": {"test_breaking_wants_the_current_token_and_force_while_the_lease_runs"},
    "NeverExpires": {"test_a_silent_holder_is_replaced_after_its_lease_and_not_before"},
    "ForgetsWhen": {SHOWS_TIMES},
    "CountsFromTheLatestRenewal": {SHOWS_TIMES},
    "NeverEnds": {SHOWS_TIMES},
    "HidesItsHolder": {"test_inspect_shows_holder_and_token"},
}


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bool]]:
    """Whether each test of the suite passed, by provider and name."""
    folder = tmp_path_factory.mktemp("tried")
    (folder / "test_tried.py").write_text(BROKEN)
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={folder}/results.xml", folder]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=280, check=False)
    found: dict[str, dict[str, bool]] = {}
    for case in ElementTree.parse(folder / "results.xml").iter("testcase"):
        provider = case.get("classname", "").rpartition(".Test")[2]
        found.setdefault(provider, {})[case.get("name", "")] = case.find("failure") is None
    assert set(found) == set(NOTICED_BY), done.stdout
    return found


@pytest.mark.in_ci
@pytest.mark.parametrize("provider", NOTICED_BY)
def test_a_lock_that_breaks_a_promise_is_noticed_by_the_test_of_that_promise(
    provider: str, tried: dict[str, dict[str, bool]]
) -> None:
    failed = {name for name, passed in tried[provider].items() if not passed}
    assert len(tried[provider]) >= 15
    assert failed >= NOTICED_BY[provider]
    assert bool(failed) == (provider != "Right"), failed


def test_the_overlap_detectors_notice_a_lock_that_keeps_nobody_out(tmp_path: Path) -> None:
    (tmp_path / "count").write_text("0")
    arena = {"uri": str(tmp_path / "table"), "options": {}, "lease_s": 15, "renew_s": 5, "folder": str(tmp_path)}
    workers, rounds = [Worker(arena | {"settings": {"lock.provider": "memory:"}}) for _ in range(2)], 300
    try:
        assert all(worker("ready") for worker in workers)
        for worker in workers:
            worker.ask(f"hammer {rounds}")
        overlaps = 0
        for worker in workers:
            try:
                overlaps += worker.answer()["overlaps"]
            except AssertionError:  # it read the counter while the other one wrote it
                overlaps += 1
        assert overlaps > 0
    finally:
        for worker in workers:
            worker.end()


def test_without_pytest_the_suite_says_what_to_install() -> None:
    code = "import sys; sys.modules['pytest'] = None; import lakelock.testing.lock_suite"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False, env=os.environ)
    assert "pip install 'lakelock[testing]'" in done.stderr


def test_a_subclass_that_names_no_table_is_told_which_fixture_to_override(tmp_path: Path) -> None:
    (tmp_path / "test_bare.py").write_text(
        "from lakelock.testing.lock_suite import LockProviderSuite\nclass TestOurs(LockProviderSuite): ...\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", tmp_path]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0 and "override the fixture `locked_table`" in done.stdout
