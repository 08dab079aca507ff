"""What the site has beyond `docs/*.md`: pages that lie elsewhere in the repository, and the list of decisions."""

from __future__ import annotations

import os.path
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
DOCS = "docs"
ELSEWHERE = {
    "performance.md": "benchmarks/README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
}
"""Pages of the site, and the files that they show."""
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """Put the decisions into the navigation."""
    decisions = [str(path.relative_to(ROOT / DOCS)) for path in sorted((ROOT / DOCS / "adr").glob("*.md"))]
    for section in config.nav:
        for entry in next(iter(section.values())):
            if isinstance(entry, dict) and "Decisions" in entry:
                entry["Decisions"] = decisions
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that lie elsewhere."""
    for uri, path in ELSEWHERE.items():
        files.append(File.generated(config, uri, content=(ROOT / path).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links between files of the repository become links between pages of the site; what is no page becomes its name."""
    uri = page.file.src_uri
    home = os.path.dirname(ELSEWHERE.get(uri, f"{DOCS}/{uri}"))
    pages = {path: uri for uri, path in ELSEWHERE.items()}

    def linked(found: re.Match[str]) -> str:
        target = os.path.normpath(os.path.join(home, found[2]))
        inside = pages.get(target) or (target.removeprefix(f"{DOCS}/") if target.startswith(f"{DOCS}/") else None)
        if inside is None:
            return found[1] if (ROOT / target).exists() else found[0]
        return f"[{found[1]}]({os.path.relpath(inside, os.path.dirname(uri) or '.')}{found[3] or ''})"

    return _LINK.sub(linked, markdown)
