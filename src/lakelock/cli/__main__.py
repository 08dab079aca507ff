"""`python -m lakelock.cli` is `lakelock`."""

from lakelock.cli.start import run

run()
