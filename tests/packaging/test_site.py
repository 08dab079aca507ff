"""The site that `make docs` builds, in a real browser: it is whole without a network, and draws its diagrams."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
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


class Loaded(HTMLParser):
    """What a browser loads for a page; links that a reader has to follow are not loaded."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.addresses: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        followed = tag == "a" or (tag == "link" and dict(attrs).get("rel") in ("canonical", "next", "prev"))
        if not followed:
            self.addresses |= {value for name, value in attrs if name in ("src", "srcset", "href", "data", "poster") and value}


def test_no_page_asks_the_network_for_anything(site: Path, tmp_path: Path) -> None:
    """A browser opens one page of those that load the same files."""
    pages = {page: Loaded(page).addresses for page in sorted(site.rglob("*.html"))}
    assert len(pages) > 80
    assert not [(page.name, each) for page, loaded in pages.items() for each in loaded if "//" in each]
    unlike = {frozenset((page.parent / each).resolve() for each in loaded): page for page, loaded in pages.items()}
    assert 3 < len(unlike) < 20
    assert asked_by(list(unlike.values()), tmp_path) == []


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
