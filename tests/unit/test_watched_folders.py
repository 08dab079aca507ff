"""A folder of a local disk that the kernel keeps us informed of: nothing that has changed is missed, by whichever process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.api import LocalStorage

from lakelock.storage import Listed, watched
from lakelock.storage.watched import WatchedFolder

FOLDER = ".hoodie/timeline"


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    storage = LocalStorage(tmp_path / "table")
    storage.put_if_absent(f"{FOLDER}/1.commit.requested", b"")
    storage.put_if_absent(f"{FOLDER}/history/one.parquet", b"rows")
    if not storage.changed(FOLDER, 0)[0]:
        pytest.skip("no notices of the kernel on this file system")
    return storage


def names(found: dict[str, Listed | None] | None) -> dict[str, int | None]:
    """Sizes by name; None for what is gone."""
    assert found is not None, "nothing is known"
    return {key[len(FOLDER) + 1 :]: None if item is None else item.size_bytes for key, item in found.items()}


def as_listed(storage: LocalStorage) -> list[Listed]:
    """What another process finds in the folder."""
    return list(LocalStorage(storage.root).list(FOLDER))


def test_what_another_process_makes_changes_and_removes_is_told_once(storage: LocalStorage) -> None:
    mark, _ = storage.changed(FOLDER, 0)
    program = f"""
import os
os.chdir({storage.root!r} + "/{FOLDER}")
open("1.inflight", "w").close()
with open("1_2.commit", "w") as file: file.write("metadata")
os.remove("1.commit.requested")
open("history/two.parquet", "w").close()
open(".half.tmp", "w").close()
os.symlink("1_2.commit", "3_4.commit")
os.rename("1.inflight", "5.inflight")
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    mark, found = storage.changed(FOLDER, mark)
    made = {"1_2.commit": 8, "5.inflight": 0, "history/two.parquet": 0}
    assert names(found) == {**made, "1.commit.requested": None}
    assert list(storage.list(FOLDER)) == as_listed(storage)
    assert storage.changed(FOLDER, mark) == (mark, {})


def test_a_listing_of_a_watched_folder_shows_what_any_listing_shows(storage: LocalStorage) -> None:
    for number in range(50):
        storage.put_if_absent(f"{FOLDER}/{number * 37 % 50}.commit.requested", b"x")
    storage.put(f"{FOLDER}/7.commit.requested", b"longer")
    storage.delete(f"{FOLDER}/{number}.commit.requested" for number in range(0, 50, 3))
    os.utime(f"{storage.root}/{FOLDER}/7.commit.requested", (1, 1))
    assert list(storage.list(FOLDER)) == as_listed(storage)
    after = f"{FOLDER}/25"
    assert list(storage.list(FOLDER, start_after=after)) == list(LocalStorage(storage.root).list(FOLDER, start_after=after))


@pytest.mark.parametrize("how", ["moved", "made anew", "a new folder in it", "its own move"])
def test_where_notices_may_be_missing_nothing_is_known_and_the_folder_is_listed(storage: LocalStorage, how: str) -> None:
    mark, _ = storage.changed(FOLDER, 0)
    folder = f"{storage.root}/{FOLDER}"
    if how == "moved":
        os.rename(storage.root, f"{storage.root}.moved")
        os.makedirs(folder)
    elif how == "made anew":
        storage.delete_folder(FOLDER)
        os.makedirs(folder)
    elif how == "a new folder in it":
        os.makedirs(f"{folder}/later")
    else:
        os.rename(folder, f"{folder}2")
        os.rename(f"{folder}2", folder)
    Path(f"{folder}/9.inflight").touch()
    again, found = storage.changed(FOLDER, mark)
    assert found is None and again != mark
    assert list(storage.list(FOLDER)) == as_listed(storage)
    assert f"{FOLDER}/9.inflight" in [item.key for item in storage.list(FOLDER)]


def test_a_full_queue_is_noticed(storage: LocalStorage) -> None:
    mark, _ = storage.changed(FOLDER, 0)
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text(encoding="utf-8"))
    if most > 100_000:
        pytest.skip("the queue is too long to fill")
    for _ in range(most // 2 + 1):
        Path(f"{storage.root}/{FOLDER}/1.inflight").touch()
        os.remove(f"{storage.root}/{FOLDER}/1.inflight")
    assert storage.changed(FOLDER, mark)[1] is None


def test_a_mark_that_is_too_old_or_of_another_watch_gives_nothing(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched, "MOST_REMEMBERED", 10)
    old, _ = storage.changed(FOLDER, 0)
    for number in range(11):
        storage.put_if_absent(f"{FOLDER}/{number}.inflight", b"")
    new, found = storage.changed(FOLDER, old)
    assert found is None
    assert storage.changed(FOLDER, new) == (new, {})
    assert LocalStorage(storage.root).changed(FOLDER, new)[1] is None


def test_a_forked_child_takes_no_notice_from_its_parent(storage: LocalStorage) -> None:
    mark, _ = storage.changed(FOLDER, 0)
    storage.put_if_absent(f"{FOLDER}/2.inflight", b"")
    child = os.fork()
    if child == 0:
        os._exit(0 if storage.changed(FOLDER, mark)[1] is None and list(storage.list(FOLDER)) == as_listed(storage) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert names(storage.changed(FOLDER, mark)[1]) == {"2.inflight": 0}


def test_a_file_system_that_others_may_mount_is_not_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched, "LOCAL_FILE_SYSTEMS", frozenset())
    assert WatchedFolder.begin(str(tmp_path), "folder") is None
    assert WatchedFolder.begin("/proc", "folder") is None
    assert WatchedFolder.begin(f"{tmp_path}/missing", "folder") is None
