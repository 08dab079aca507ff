"""What the demo refuses before it starts anything, and where it works."""

import socket
from pathlib import Path

import pytest
from tests.api import SystemRuntime
from tests.demo.__main__ import FAILED, USAGE, folder, main
from tests.demo.flights import UsageError
from tests.demo.lock_service import given, service_named, started
from tests.servers.locks.redis import executable

from lakelock.settings import Settings


def test_a_provider_that_is_not_there_or_cannot_work_between_processes_is_refused_at_once():
    with pytest.raises(UsageError, match="one process only"):
        given("memory:", SystemRuntime())
    with pytest.raises(UsageError, match="no lock provider 'storrage'"):
        given("storrage:", SystemRuntime())
    assert given("storage:", SystemRuntime()).shown == "storage"


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path):
    (tmp_path / "mine").touch()
    with pytest.raises(UsageError, match="not an empty folder"):
        folder(tmp_path)
    new = folder(tmp_path / "a" / "b")
    assert new.is_dir() and folder(new) == new


def test_wrong_arguments_end_with_the_code_for_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "mine").touch()
    assert main(["--path", str(tmp_path)]) == USAGE
    assert main(["--provider", "nope:"]) == USAGE
    assert "available here: storage:" in capsys.readouterr().err


def test_a_size_that_cannot_be_used_is_a_usage_error(capsys: pytest.CaptureFixture[str]):
    assert main(["--size", "much"]) == USAGE
    assert main(["--size", "10"]) == USAGE
    assert "too small" in capsys.readouterr().err


def test_an_unknown_lock_service_is_a_usage_error_that_names_the_nearest_and_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--lock", "zokeeper"]) == USAGE
    told = capsys.readouterr().err
    assert "did you mean zookeeper?" in told
    assert all(name in told for name in ("zookeeper", "dynamodb", "redis", "hive", "storage"))
    assert main(["--lock", "etcd"]) == USAGE
    assert "did you mean" not in capsys.readouterr().err


def test_what_a_service_needs_and_is_missing_ends_the_demo_before_any_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("LAKELOCK_TEST_ZOOKEEPER", raising=False)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert main(["--lock", "zookeeper", "--path", str(tmp_path / "demo")]) == FAILED
    told = capsys.readouterr()
    assert "--lock zookeeper: needs Java 17" in told.err and "apt-get install" in told.err
    assert "lock service zookeeper" in told.out.splitlines()[0]
    assert not list((tmp_path / "demo" / "work").glob("logs"))


def test_a_started_service_is_real_has_its_options_and_ends_with_the_run_whatever_happens(
    tmp_path: Path,
) -> None:
    assert executable()
    ports: list[int] = []

    def interrupted() -> None:
        with started("redis", tmp_path / "lock", "flights", SystemRuntime()) as lock:
            settings = Settings.resolve({**lock.options, "lock.provider": lock.provider}).settings
            assert settings.lock_options["socket_timeout"] == "0.5"
            ports.append(int(lock.provider.rpartition("/")[0].rpartition(":")[2]))
            socket.create_connection(("127.0.0.1", ports[0]), timeout=5).close()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", ports[0]), timeout=5)


def test_a_service_that_somebody_else_runs_is_shown_without_its_password() -> None:
    with pytest.raises(UsageError) as refused:
        given("redis://user:geheim@127.0.0.1:1/0", SystemRuntime())
    assert "geheim" not in str(refused.value)


def test_a_lock_service_has_one_short_name_and_hive_is_the_metastore() -> None:
    names = ["zookeeper", "dynamodb", "redis", "hive", "storage"]
    assert [service_named(name) for name in names] == names
    assert service_named("hive_metastore") == service_named("HIVE") == "hive"
