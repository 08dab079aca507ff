"""The site that `make docs` builds, in a real browser: it is whole without a network, and draws its diagrams."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from tests.browser import look_at

ROOT = Path(__file__).parents[2]
DRAWN = re.compile(r'<div class="diagram"><div class="mermaid"></div></div>')
"""A diagram that the theme has put in the place of its text."""

pytestmark = [pytest.mark.waits, pytest.mark.in_ci]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [Path(sys.executable).with_name("mkdocs"), "build", "--quiet", "--strict", "--site-dir", folder]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=300)
    return folder


@contextmanager
def network() -> Iterator[tuple[str, list[str]]]:
    """A proxy that answers nothing, and what it was asked for."""
    asked: list[str] = []

    class Refuses(BaseHTTPRequestHandler):
        def handle_one_request(self) -> None:
            asked.append(self.rfile.readline(65536).decode("latin-1").strip())
            self.close_connection = True

    with ThreadingHTTPServer(("127.0.0.1", 0), Refuses) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()


def asked_by(pages: list[Path], folder: Path) -> list[str]:
    """What these pages ask the network for, all opened at once."""
    frames = folder / "frames.html"
    frames.write_text("".join(f'<iframe src="{page.as_uri()}" width="1400" height="1200"></iframe>' for page in pages))
    with network() as (proxy, asked):
        look_at(frames, folder, "--dump-dom", f"--proxy-server={proxy}", "--proxy-bypass-list=<-loopback>")
    return asked


def test_no_page_asks_the_network_for_anything(site: Path, tmp_path: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 80
    assert asked_by(pages, tmp_path) == []


def test_a_page_that_asks_the_network_is_noticed(site: Path, tmp_path: Path) -> None:
    concepts = site / "concepts.html"
    asking = site / "asking.html"
    asking.write_text(re.sub(r"<script src=[^>]*mermaid[^>]*>", "<script>", concepts.read_text()))
    try:
        asked = asked_by([concepts, asking], tmp_path)
    finally:
        asking.unlink()
    assert [line for line in asked if "unpkg.com" in line]


@pytest.mark.parametrize("page", ["architecture.html", "concepts.html"])
def test_diagrams_are_drawn_from_disk(page: str, site: Path, tmp_path: Path) -> None:
    seen = look_at(site / page, tmp_path, "--dump-dom")
    assert len(DRAWN.findall(seen)) == 1
    assert '<pre class="mermaid">' not in seen
