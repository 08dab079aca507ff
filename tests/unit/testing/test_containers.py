"""Where a test's server comes from: the environment, a container, this machine. No engine is started here."""

from __future__ import annotations

import socketserver
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.servers import SERVICES, ServerMissing, Service
from tests.servers.containers import IMAGES, WISH, server

GIVEN = "LAKELOCK_TEST_SOMETHING"


@pytest.fixture(autouse=True)
def _nothing_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(WISH, raising=False)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    monkeypatch.setitem(sys.modules, "testcontainers.core.container", None)


@contextmanager
def answering(path: Path, status: bytes) -> Iterator[None]:
    """Something at a Unix socket that answers every request with `status`."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1000)
            self.request.sendall(b"HTTP/1.0 " + status + b"\r\n\r\nOK")

    with socketserver.ThreadingUnixStreamServer(str(path), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield
        listening.shutdown()
        thread.join(5)


@contextmanager
def local(folder: Path) -> Iterator[Service]:
    yield Service("here", str, 0)


@contextmanager
def missing(folder: Path) -> Iterator[Service]:
    raise ServerMissing("needs a program: install it")
    yield


@pytest.fixture
def docker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    with answering(tmp_path / "docker.sock", b"200 OK"):
        yield


def chosen(where: Callable[[Path], object], folder: Path) -> str:
    """The service that is found, or why there is none."""
    try:
        with server("redis", GIVEN, where, folder) as service:  # type: ignore[arg-type]
            return service.name
    except ServerMissing as error:
        return str(error).partition(":")[0]


@pytest.mark.usefixtures("docker")
def test_a_local_server_is_used_before_a_container(tmp_path: Path) -> None:
    assert chosen(local, tmp_path) == "here"


@pytest.mark.usefixtures("docker")
def test_a_container_is_tried_where_no_local_server_can_start_or_by_wish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert chosen(missing, tmp_path) == "needs testcontainers"
    monkeypatch.setenv(WISH, "1")
    assert chosen(local, tmp_path) == "needs testcontainers"


def test_without_an_engine_what_the_local_server_lacks_is_told_and_a_wish_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert chosen(missing, tmp_path) == "needs a program"
    monkeypatch.setenv(WISH, "1")
    assert chosen(local, tmp_path) == "needs a Docker engine"


@pytest.mark.usefixtures("docker")
def test_a_server_that_the_environment_names_comes_before_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WISH, "1")
    monkeypatch.setenv(GIVEN, "redis://elsewhere")
    assert chosen(local, tmp_path) == "here", "only the local starter knows that variable"
    assert chosen(missing, tmp_path) == "needs a program"


def test_a_failure_of_the_test_is_not_taken_for_a_missing_server(tmp_path: Path) -> None:
    with pytest.raises(ServerMissing, match="of the test"), server("redis", GIVEN, local, tmp_path):
        raise ServerMissing("of the test")


@pytest.mark.parametrize("kind", IMAGES)
def test_an_image_is_of_a_service_of_the_matrix_and_is_found_at_its_port(kind: str) -> None:
    service = IMAGES[kind].service(4711)
    assert kind in SERVICES and service.name == kind and service.port == 4711
    assert service.url("table").startswith(f"{kind}://127.0.0.1:4711/") and "table" in service.url("table")
