"""The site draws Mermaid diagrams without a network: their script is fetched from npm once, and becomes a file of the site."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from pymdownx.superfences import fence_code_format

PACKAGE = "mermaid@11.17.2"
"""Of the version that the theme would load from the network."""
SHA256 = "581ed7d74bd9048d0e3a91363927d72ef22942d7722546b27f7cc29e35390eb8"
SCRIPT = Path(sys.prefix, "lakelock-site", f"{PACKAGE}.min.js")
URI = "assets/mermaid.min.js"
FENCE = {"name": "mermaid", "class": "mermaid", "format": fence_code_format}
_DIAGRAM = re.compile(r'<pre class="mermaid">.*?</pre>', re.DOTALL)
_WITHIN_S = 180


def on_config(config: Any) -> Any:
    """Make fences of Mermaid diagrams. Without the script they stay text, because the theme would ask the network for it."""
    if why := _missing():
        if os.environ.get("CI"):
            raise PluginError(why)
        sys.stderr.write(f"diagrams are shown as text: {why}\n")
    else:
        config.mdx_configs["pymdownx.superfences"] = {"custom_fences": [FENCE]}
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the script to the site."""
    if _is_pinned(SCRIPT):
        files.append(File.generated(config, URI, abs_src_path=str(SCRIPT)))
    return files


def on_page_content(html: str, page: Any, files: Files, **_: Any) -> str:
    """Load the script, which is large, where there is a diagram; each scrolls in itself on a narrow screen."""
    script = files.get_file_from_path(URI)
    shown, diagrams = _DIAGRAM.subn(r'<div class="diagram">\g<0></div>', html)
    if script is None or not diagrams:
        return html
    return f'{shown}\n<script src="{script.url_relative_to(page.file)}"></script>'


def _missing() -> str:
    """Why the script is not there; empty when it is. Fetches it if need be."""
    if _is_pinned(SCRIPT):
        return ""
    npm = shutil.which("npm")
    if npm is None:
        return f"{PACKAGE} is fetched with npm, which is not installed"
    SCRIPT.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=SCRIPT.parent) as folder:
        try:
            command = [npm, "pack", PACKAGE, "--silent", "--pack-destination", folder]
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=_WITHIN_S)
        except subprocess.TimeoutExpired:
            return f"npm did not fetch {PACKAGE} within {_WITHIN_S} s"
        except subprocess.CalledProcessError as error:
            return f"npm did not fetch {PACKAGE}: {error.stderr}"
        [packed] = Path(folder).iterdir()
        fetched = Path(folder, SCRIPT.name)
        with tarfile.open(packed) as files, fetched.open("wb") as target:
            shutil.copyfileobj(files.extractfile("package/dist/mermaid.min.js"), target)  # type: ignore[arg-type]
        if not _is_pinned(fetched):
            return f"the script of {PACKAGE} is not the pinned one"
        fetched.rename(SCRIPT)
    return ""


def _is_pinned(script: Path) -> bool:
    return script.exists() and hashlib.sha256(script.read_bytes()).hexdigest() == SHA256
