"""What only a file system can do to a table: full disks, links, files in the way, leftovers of a crash."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.api import LocalStorage

from lakelock.errors import StorageError, StorageUnavailable
from lakelock.storage import local as local_files
from lakelock.storage import local as storage_local
from lakelock.testing import ManualRuntime


def keys(storage: LocalStorage, prefix: str = "") -> list[str]:
    return [found.key for found in storage.list(prefix)]


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path / "table")


def test_the_uri_is_the_real_path(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert LocalStorage(tmp_path / "link").uri == f"file://{tmp_path}/real"


def test_nothing_temporary_is_left_and_temporary_files_of_a_crash_are_not_listed(storage: LocalStorage) -> None:
    etag = storage.put_if_absent("a/k", b"1")
    storage.put_if_absent("a/k", b"2")
    storage.put_if_match("a/k", b"3", etag or "")
    storage.put_if_match("a/k", b"4", etag or "")
    storage.put("a/k", b"5")
    assert sorted(os.listdir(f"{storage.root}/a")) == [".k.lock", "k"]
    (Path(storage.root) / "a" / ".0123456789abcdef.tmp").write_bytes(b"half")
    assert keys(storage) == ["a/k"]


def test_a_reader_never_sees_half_an_object(storage: LocalStorage) -> None:
    """A writer that dies at any moment leaves the old object or the new one: here it dies while it writes."""
    program = f"""
import os
from lakelock.storage.local import LocalStorage
real = os.write
def die(file, data):
    real(file, bytes(data)[: len(data) // 2]); os._exit(9)
os.write = die
LocalStorage({storage.root!r}).put_if_absent("k", b"x" * 1000)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 9
    assert storage.get("k") is None and keys(storage) == []
    assert storage.put_if_absent("k", b"whole") is not None


def test_links_are_neither_listed_nor_read_written_or_deleted_through(storage: LocalStorage, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("data")
    storage.put_if_absent("p/k", b"x")
    (Path(storage.root) / "link").symlink_to(outside)
    (Path(storage.root) / "loop").symlink_to(storage.root)
    (Path(storage.root) / "file").symlink_to(outside / "precious")
    (Path(storage.root) / "p" / ".k.lock").symlink_to(outside / "made")
    found = storage.get("p/k")
    assert found is not None
    assert keys(storage) == ["p/k"]
    assert keys(storage, "link") == []
    for attempt in (
        lambda: storage.delete(["link/precious"]),
        lambda: storage.get("link/precious"),
        lambda: storage.get("file"),
        lambda: storage.open_input("link/precious"),
        lambda: storage.open_input("file"),
        lambda: storage.open_output("file"),
        lambda: storage.put("link/new", b"x"),
        lambda: storage.put_if_absent("link/new", b"x"),
        lambda: storage.open_output("link/new"),
        lambda: storage.put_if_match("p/k", b"y", found.etag),
    ):
        with pytest.raises(StorageError, match="symbolic link"):
            attempt()
    assert os.listdir(outside) == ["precious"] and (outside / "precious").read_text() == "data"


def test_a_folder_that_becomes_a_link_after_the_first_write_is_still_not_deleted_through(
    storage: LocalStorage, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("data")
    storage.put_if_absent("p/k", b"x")
    os.rename(f"{storage.root}/p", tmp_path / "moved")
    os.symlink(outside, f"{storage.root}/p")
    with pytest.raises(StorageError):
        storage.delete(["p/precious"])
    assert os.listdir(outside) == ["precious"]


def test_links_in_a_circle_are_a_clear_error(storage: LocalStorage) -> None:
    os.makedirs(storage.root)
    os.symlink("b", f"{storage.root}/a")
    os.symlink("a", f"{storage.root}/b")
    with pytest.raises(StorageError, match="symbolic link"):
        storage.get("a/k")
    assert keys(storage) == []


def test_a_file_where_a_folder_should_be_is_a_clear_error(storage: LocalStorage) -> None:
    storage.put_if_absent("a", b"x")
    for attempt in (
        lambda: storage.get("a/k"),
        lambda: storage.put("a/k", b"x"),
        lambda: storage.put_if_absent("a/k", b"x"),
        lambda: storage.put_if_match("a/k", b"x", "v"),
        lambda: storage.open_output("a/k"),
        lambda: keys(storage, "a"),
    ):
        with pytest.raises(StorageError, match="in the way") as refused:
            attempt()
        assert refused.value.hint and not isinstance(refused.value, StorageUnavailable)
    storage.delete(["a/k"])


def test_a_folder_is_no_object(storage: LocalStorage) -> None:
    storage.put_if_absent("a/b", b"x")
    assert storage.get("a") is None
    with pytest.raises(StorageError, match="folder is in the way"):
        storage.put("a", b"x")


def test_a_name_that_is_too_long_is_a_clear_error(storage: LocalStorage) -> None:
    with pytest.raises(StorageError, match="too long"):
        storage.put_if_absent("p/" + "x" * 300, b"x")


def test_a_disk_that_fills_up_is_a_clear_error_and_leaves_nothing(storage: LocalStorage) -> None:
    """A file size limit stands in for the full disk: the write ends the same way, part of the bytes being there."""
    program = f"""
import resource, signal
from lakelock.errors import StorageError
from lakelock.storage.local import LocalStorage
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
storage = LocalStorage({storage.root!r})
for attempt in (lambda: storage.put_if_absent("p/k", b"x" * 5000), lambda: storage.put("p/k", b"x" * 5000),
                lambda: storage.open_output("p/data").write(b"x" * 200_000)):
    try:
        attempt()
    except StorageError as error:
        assert "too large" in error.message and error.hint, error
    else:
        raise SystemExit("no error")
"""
    assert resource.RLIMIT_FSIZE is not None
    subprocess.run([sys.executable, "-c", program], check=True)
    assert storage.get("p/k") is None
    assert os.listdir(f"{storage.root}/p") == ["data"]


@pytest.mark.parametrize(
    ("number", "kind", "text"),
    [
        (errno.ENOSPC, StorageError, "disk is full"),
        (errno.EDQUOT, StorageError, "quota"),
        (errno.EROFS, StorageError, "read-only"),
        (errno.EACCES, StorageError, "permission denied"),
        (errno.EIO, StorageUnavailable, "Input/output error"),
        (errno.ESTALE, StorageUnavailable, "Stale"),
    ],
)
def test_what_the_system_says_becomes_an_error_with_a_next_step(number: int, kind: type[StorageError], text: str) -> None:
    with pytest.raises(StorageError, match=text) as refused:
        local_files.refuse(OSError(number, os.strerror(number)), "/lake/t/k")
    assert type(refused.value) is kind and refused.value.hint and "/lake/t/k" in refused.value.message


def test_permission_and_read_only_trouble_reach_the_caller_as_refusals(tmp_path: Path) -> None:
    # /proc and /sys refuse new files even to root, which a mode of 0500 would not.
    with pytest.raises(StorageError) as refused:
        LocalStorage("/proc/self").put_if_absent("lakelock-test", b"x")
    assert refused.value.hint


@pytest.mark.parametrize("is_watched", [False, True])
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_files_that_may_be_named_but_not_looked_at_are_not_taken_for_absent(is_watched: bool) -> None:
    """A folder with `r` and without `x` shows its names. pytest's own folder is closed to another user."""
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        storage = LocalStorage(f"{place}/table")
        storage.put_if_absent(".hoodie/timeline/1.commit", b"x")
        if is_watched:
            storage.changed(".hoodie/timeline", 0)
            Path(f"{storage.root}/.hoodie/timeline/2.commit").touch()
        os.chmod(f"{storage.root}/.hoodie/timeline", 0o744)
        os.seteuid(65534)
        try:
            with pytest.raises(StorageError, match="permission denied"):
                list(storage.list(".hoodie/timeline"))
        finally:
            os.seteuid(0)


@contextmanager
def held_by_somebody(lock_file: Path) -> Iterator[None]:
    """As by another process that is about to replace the object beside it."""
    with lock_file.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def test_a_replacement_that_somebody_blocks_is_given_up_in_bounded_time_and_names_the_file(tmp_path: Path) -> None:
    runtime = ManualRuntime()
    storage = LocalStorage(tmp_path, runtime=runtime)
    etag = storage.put_if_absent("k", b"1") or ""
    with held_by_somebody(tmp_path / ".k.lock"), pytest.raises(StorageUnavailable, match=r"\.k\.lock"):
        storage.put_if_match("k", b"2", etag)
    assert runtime.monotonic_s() == pytest.approx(storage_local.SWAP_WAIT_S, abs=0.1)
    assert storage.put_if_match("k", b"2", etag) is not None
    assert sorted(os.listdir(tmp_path)) == [".k.lock", "k"]


def test_an_object_takes_its_lock_file_along_when_it_is_deleted_and_leaves_no_folder(storage: LocalStorage) -> None:
    etag = storage.put_if_absent(".hoodie/a/b/k", b"1") or ""
    assert storage.put_if_match(".hoodie/a/b/k", b"2", etag) is not None
    storage.delete([".hoodie/a/b/k"])
    assert storage.put_if_match(".hoodie/a/b/k", b"3", etag) is None
    assert [path for path in Path(storage.root).rglob("*") if path.is_file() or path.name == "b"] == []
    storage.put(".hoodie/a/b/other", b"")
    assert storage.put_if_match(".hoodie/a/b/k", b"3", etag) is None
    assert os.listdir(f"{storage.root}/.hoodie/a/b") == ["other"]


def test_no_two_replace_an_object_at_once_though_it_is_deleted_and_made_anew_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock file that the one has opened is gone when it locks it, and the other holds that which took its place."""
    sidecar, others, holder, opened = f"{tmp_path}/.k.lock", LocalStorage(tmp_path), ExitStack(), os.open
    others.put_if_match("k", b"2", others.put_if_absent("k", b"1") or "")

    def open_too_early(path: str, *how: Any, **more: Any) -> int:
        lock = opened(path, *how, **more)
        if path == sidecar:
            monkeypatch.setattr(os, "open", opened)
            others.delete(["k"])
            others.put_if_absent("k", b"3")
            holder.enter_context(held_by_somebody(Path(sidecar)))
        return lock

    class Meanwhile(ManualRuntime):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if len(self.slept_s) == 3:
                holder.close()

    found, runtime = others.get("k"), Meanwhile()
    assert found is not None
    monkeypatch.setattr(os, "open", open_too_early)
    assert LocalStorage(tmp_path, runtime=runtime).put_if_match("k", b"4", found.etag) is None
    assert len(runtime.slept_s) == 3, "it waits for the other"
    assert sorted(os.listdir(tmp_path)) == [".k.lock", "k"]


def test_a_lock_file_that_somebody_holds_stays(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.put_if_absent("k", b"1")
    with held_by_somebody(tmp_path / ".k.lock"):
        storage.delete(["k"])
        assert os.listdir(tmp_path) == [".k.lock"]


def test_a_replacement_drops_the_checksum_that_hadoop_keeps_beside_the_file(storage: LocalStorage) -> None:
    etag = storage.put_if_absent("k", b"1")
    twin = Path(storage.root) / ".k.crc"
    twin.write_bytes(b"crc")
    storage.put_if_match("k", b"2", etag or "")
    assert not twin.exists()
    twin.write_bytes(b"crc")
    storage.delete(["k"])
    assert not twin.exists()


def test_equal_bytes_written_twice_in_the_same_tick_are_different_versions_when_content_differed(storage: LocalStorage) -> None:
    etag = storage.put_if_absent("k", b"same") or ""
    for _ in range(50):
        middle = storage.put_if_match("k", b"othr", etag) or ""
        assert storage.put_if_match("k", b"none", etag) is None
        etag = storage.put_if_match("k", b"same", middle) or ""
        assert etag


def test_empty_folders_deep_in_the_table_go_with_their_last_file(storage: LocalStorage) -> None:
    storage.put_if_absent(".hoodie/.temp/20260101000000000/p/m", b"", durable=False)
    storage.put_if_absent(".hoodie/.heartbeat/20260101000000000", b"x")
    storage.delete([".hoodie/.temp/20260101000000000/p/m", ".hoodie/.heartbeat/20260101000000000"])
    assert os.listdir(f"{storage.root}/.hoodie/.temp") == []
    assert os.listdir(f"{storage.root}/.hoodie/.heartbeat") == []


def test_a_deleted_table_folder_is_made_again_by_the_next_write(storage: LocalStorage) -> None:
    import shutil

    storage.put_if_absent("p/q/r/k", b"x")
    shutil.rmtree(storage.root)
    assert storage.put_if_absent("p/q/r/k", b"x") is not None


def test_a_child_that_was_forked_during_a_replacement_keeps_nobody_from_the_next(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the open lock file, too."""
    etag, read, children = storage.put_if_absent("a/k", b"1") or "", local_files.read_stored, list[int]()
    reading, writing = os.pipe()

    def forking(path: str) -> Any:
        if not children:
            child = os.fork()
            if child == 0:
                os.close(writing)
                os.read(reading, 1)  # until the parent has done
                os._exit(0)
            children.append(child)
        return read(path)

    monkeypatch.setattr(local_files, "read_stored", forking)
    try:
        second = storage.put_if_match("a/k", b"2", etag)
        assert second is not None and storage.put_if_match("a/k", b"3", second) is not None
        assert children
    finally:
        os.close(writing)
        for child in children:
            os.waitpid(child, 0)
        os.close(reading)
