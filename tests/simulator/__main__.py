"""`python -m tests.simulator`."""

from tests.simulator.command import app

app()
