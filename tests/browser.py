"""A real browser for pages that lakelock writes: headless Chromium, which a fresh machine gets from Debian's packages."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import tempfile
from html import unescape
from pathlib import Path
from typing import Any

from tests.servers import ServerMissing

_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_PACKAGE = "chromium-headless-shell"
_RESULT = re.compile(r'<pre id="seen-by-the-test">(.*?)</pre>', re.DOTALL)


def browser() -> str:
    """The program. Root on a Debian machine installs it; elsewhere the error says what is missing."""
    with Path(tempfile.gettempdir(), "lakelock-browser.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = _found()
        if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
            quiet: dict[str, Any] = {"capture_output": True, "check": False, "timeout": 300}
            subprocess.run(["apt-get", "update", "-qq"], **quiet)
            install = ["apt-get", "install", "-y", "--no-install-recommends", _PACKAGE]
            subprocess.run(install, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, **quiet)
            found = _found()
    if found is None:
        raise ServerMissing(f"needs a browser: apt-get install -y {_PACKAGE}")
    return found


def _found() -> str | None:
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


def seen(page: str, expression: str, folder: Path, *, width: int = 1500, dark: bool = False) -> Any:
    """What JavaScript's `expression` is once the browser has laid out the page; `page.png` in `folder` is its look.

    `width` is that of the window, `dark` what the user prefers.
    """
    asked = (
        f"<script>const told = document.createElement('pre'); told.id = 'seen-by-the-test';"
        f"told.textContent = JSON.stringify({expression}); document.body.append(told)</script>"
    )
    own, copy = folder / "page.html", folder / "asked.html"
    own.write_text(page)
    copy.write_text(page.replace("</body>", f"{asked}</body>"))
    look = [f"--window-size={width},1200", *(["--blink-settings=preferredColorScheme=0"] if dark else [])]
    look_at(own, folder, f"--screenshot={folder / 'page.png'}", *look)
    [answer] = _RESULT.findall(look_at(copy, folder, "--dump-dom", *look))
    return json.loads(unescape(answer))


def look_at(page: Path, folder: Path, *options: str) -> str:
    """What the browser prints with these options once the page has run for a while; its profile is in `folder`."""
    quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--virtual-time-budget=8000"]
    command = [browser(), *quiet, *options, f"--user-data-dir={folder / 'profile'}", page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=True).stdout
