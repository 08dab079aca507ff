"""For tests of code that uses lakelock: a clock that the test controls, and real lock services, started on this machine."""

from lakelock.testing.runtime import ManualRuntime

__all__ = ["ManualRuntime"]
