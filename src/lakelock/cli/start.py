"""Where `lakelock` begins. Its modules take a moment to load, and Ctrl-C ends it without a word then, too."""

from __future__ import annotations

import os
import sys

INTERRUPTED = 130


def run() -> None:
    """Run the command line on the arguments of this process. A stream that is closed swallows what is printed to it."""
    nowhere = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - as long as the process
    sys.stdout, sys.stderr = sys.stdout or nowhere, sys.stderr or nowhere
    try:
        if sys.argv[1:] == ["--version"]:
            from lakelock.identity import version

            print(f"lakelock {version()}")  # noqa: T201 - what prints everything else takes a moment to load
            return
        from lakelock.cli.main import app

        app()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
