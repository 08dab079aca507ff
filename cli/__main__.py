"""`python -m lakelock.cli` is `lakelock`."""

from lakelock.cli.main import app

app()
