"""Hudi's keys as options mean what they mean in a properties file."""

from __future__ import annotations

import pytest

from lakelock.errors import SettingsError
from lakelock.settings import Settings

LOCK = {
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider",
    "hoodie.write.lock.zookeeper.url": "zk1:2181",
    "hoodie.write.lock.zookeeper.base_path": "/hudi",
    "hoodie.write.lock.zookeeper.lock_key": "flights",
}


def test_the_lock_of_a_hudi_writer_can_be_given_as_options() -> None:
    resolved = Settings.resolve({**LOCK, "hoodie.write.lock.wait_time_ms": "5000"})
    assert resolved.settings.lock.provider == "zookeeper://zk1:2181/hudi/flights"
    assert resolved.settings.lock.wait_s == 5
    assert resolved.origins["lock.wait_s"].origin == "option, hoodie.write.lock.wait_time_ms"


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("hoodie.write.lock.num_retries", "has no effect here: one bound is enough: lock.wait_s"),
        ("hoodie.write.lock.provyder", 'is not known and has no effect; did you mean "hoodie.write.lock.provider"'),
        ("hoodie.datasource.write.recordkey.field", "has no effect here"),
    ],
)
def test_an_option_of_hudi_without_effect_is_an_error(key: str, problem: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings.resolve({key: "3"})
    assert problem in str(caught.value)


def test_a_setting_and_hudis_key_for_it_must_not_contradict_each_other() -> None:
    with pytest.raises(SettingsError, match=r"lock\.wait_s is given twice in option"):
        Settings.resolve({"lock.wait_s": 7, "hoodie.write.lock.wait_time_ms": "5000"})


@pytest.mark.parametrize("kind", ["simple", "bloom"])
def test_a_global_index_that_moves_rows_is_ours_and_one_that_does_not_is_refused(kind: str) -> None:
    index, moves = {"hoodie.index.type": f"GLOBAL_{kind.upper()}"}, f"hoodie.{kind}.index.update.partition.path"
    assert Settings.resolve(index).settings.write.index == "global"
    assert Settings.resolve({**index, moves: "true"}).settings.write.index == "global"
    with pytest.raises(SettingsError, match="leaves a row in the partition of its first version"):
        Settings.resolve({**index, moves: "false"})


def test_a_record_index_that_moves_rows_is_global_and_one_that_does_not_is_no_choice() -> None:
    index, moves = {"hoodie.index.type": "RECORD_INDEX"}, "hoodie.record.index.update.partition.path"
    assert Settings.resolve({**index, moves: "true"}).settings.write.index == "global"
    for options in (index, {**index, moves: "false"}):
        with pytest.raises(SettingsError, match="has no effect here"):
            Settings.resolve(options)
