"""Where `lakelock` begins. Its modules take a moment to load, and Ctrl-C ends it without a word then, too."""

from __future__ import annotations

import sys

INTERRUPTED = 130


def run() -> None:
    """Run the command line on the arguments of this process."""
    try:
        from lakelock.cli.main import app

        app()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
