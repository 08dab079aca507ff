"""The environment of Java Hudi is made once, and where it cannot be made the reason says what is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelock.testing.servers import java_hudi
from lakelock.testing.servers.service import ServerMissing


def test_an_environment_that_cannot_be_filled_is_missing_and_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_hudi, "PYSPARK", "pyspark @ file:///nowhere/at/all")
    for _ in range(2):
        with pytest.raises(ServerMissing, match="^needs pyspark"):
            java_hudi._environment(tmp_path / "spark35")
