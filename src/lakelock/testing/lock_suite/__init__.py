"""What every lock provider promises, as tests that a provider's author runs: subclass `LockProviderSuite`.

    class TestOurLock(LockProviderSuite):
        @pytest.fixture
        def locked_table(self, tmp_path):
            return LockedTable({"lock.provider": "ours://host/locks"}, uri=str(tmp_path / "table"))

`OneProcessPromises` alone is for a lock that reaches no other process.
"""

try:
    import pytest
except ImportError as error:
    raise ImportError("the suite of lock providers is made of pytest tests; next: pip install 'lakelock[testing]'") from error

# Must come before the first import of these modules, or a failed assertion would not show its values.
pytest.register_assert_rewrite(*(f"{__name__}.{name}" for name in ("one_process", "processes", "server")))

from lakelock.testing.lock_suite.arena import COLUMNS, NOT_FOR_THIS, Arena, LockedTable, column_of
from lakelock.testing.lock_suite.one_process import OneProcessPromises
from lakelock.testing.lock_suite.processes import ProcessPromises
from lakelock.testing.lock_suite.server import ServerPromises


class LockProviderSuite(OneProcessPromises, ProcessPromises, ServerPromises):
    """Every promise. Override the fixture `locked_table`; each test gets a table, and a lock, of its own."""


__all__ = [
    "COLUMNS",
    "NOT_FOR_THIS",
    "Arena",
    "LockProviderSuite",
    "LockedTable",
    "OneProcessPromises",
    "ProcessPromises",
    "ServerPromises",
    "column_of",
]
