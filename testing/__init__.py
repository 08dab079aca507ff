"""For tests of what is built on lakelock: a clock that tests hold, and the real lock services, started here."""

from lakelock.testing.runtime import ManualRuntime

__all__ = ["ManualRuntime"]
