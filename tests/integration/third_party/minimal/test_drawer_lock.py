from pathlib import Path

import pytest

from lakelock.storage.memory import MemoryStorage
from lakelock.testing import ManualRuntime
from lakelock.testing.lock_suite import LockedTable, OneProcessPromises


class TestDrawerLock(OneProcessPromises):
    @pytest.fixture
    def locked_table(self, tmp_path: Path) -> LockedTable:
        runtime = ManualRuntime()  # the lock has no clock of its own, so no test waits for real
        storage = MemoryStorage(runtime.now_ms, name=str(tmp_path))
        return LockedTable({"lock.provider": "drawer:"}, runtime=runtime, storage=storage)
