"""For tests of code that uses lakelock: a clock that the test controls, and the promises of lock providers as a test suite."""

from lakelock.testing.runtime import ManualRuntime

__all__ = ["ManualRuntime"]
