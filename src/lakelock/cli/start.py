"""Where `lakelock` begins. Its modules take a moment to load, and Ctrl-C ends it without a word then, too."""

from __future__ import annotations

import sys

INTERRUPTED = 130


def run() -> None:
    """Run the command line on the arguments of this process."""
    try:
        if sys.argv[1:] == ["--version"]:
            from lakelock.identity import version

            print(f"lakelock {version()}")  # noqa: T201 - what prints everything else takes a moment to load
            return
        from lakelock.cli.main import app

        app()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
