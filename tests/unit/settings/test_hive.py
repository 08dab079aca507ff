"""Hive's keys for locks, from an option, the Spark conf, TOML and a properties file."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelock.errors import SettingsError
from lakelock.settings import Settings

OFF = "hive.support.concurrency"


def test_hives_switch_turns_locking_off_wherever_it_is_given(tmp_path: Path) -> None:
    toml, properties = tmp_path / "a.toml", tmp_path / "a.properties"
    toml.write_text("[hive.support]\nconcurrency = false\n")
    properties.write_text("hive.support.concurrency=false\n")
    for found in (
        Settings.resolve({OFF: "false"}),
        Settings.resolve({OFF: False}),
        Settings.resolve({}, {f"spark.lakelock.{OFF}": "false"}),
        Settings.resolve(file=toml),
        Settings.resolve(file=properties),
    ):
        assert found.settings.concurrency.mode == "SINGLE_WRITER"
        assert found.origins["concurrency.mode"].origin.endswith(OFF)


def test_hives_switch_turned_on_leaves_the_mode_as_it_is() -> None:
    assert Settings.resolve({OFF: "true"}).settings == Settings()
    assert Settings.resolve({OFF: "true", "concurrency.mode": "PESSIMISTIC"}).settings.concurrency.mode == "PESSIMISTIC"


def test_a_stronger_source_wins_and_a_contradiction_in_one_source_is_refused() -> None:
    found = Settings.resolve({"concurrency.mode": "PESSIMISTIC"}, {f"spark.lakelock.{OFF}": "false"})
    assert found.settings.concurrency.mode == "PESSIMISTIC"
    with pytest.raises(SettingsError, match="twice in option"):
        Settings.resolve({"concurrency.mode": "PESSIMISTIC", OFF: "false"})
    with pytest.raises(SettingsError, match="concurrency.mode .option, hive.support.concurrency. is 'maybe'"):
        Settings.resolve({OFF: "maybe"})


@pytest.mark.parametrize(
    ("text", "sleep_s"), [("60", 60.0), ("60s", 60.0), ("1500ms", 1.5), ("2 min", 120.0), ("2minutes", 120.0), ("1m", 60.0)]
)
def test_hives_retries_threshold_and_pause_are_understood(tmp_path: Path, text: str, sleep_s: float) -> None:
    path = tmp_path / "hive.properties"
    path.write_text(f"hive.lock.numretries=100\nhive.lock.sleep.between.retries={text}\nhive.locks.partition.threshold=50\n")
    found = Settings.resolve(file=path)
    locks = found.settings.data_locks
    assert (locks.attempts, locks.sleep_s, locks.escalate_above) == (100, sleep_s, 50)
    assert found.warnings == ()


def test_what_hive_would_not_understand_either_is_named_with_its_origin() -> None:
    with pytest.raises(SettingsError, match="hive.lock.sleep.between.retries. is 'soon'"):
        Settings.resolve({"hive.lock.sleep.between.retries": "soon"})
    assert Settings.resolve({"hive.locks.partition.threshold": "-1"}).settings.data_locks.escalate_above == 100_000
