"""The names of `LakeTable`'s upkeep that users of Delta type: each takes what the call in its group takes."""

from __future__ import annotations

import inspect

import pytest

pytest.importorskip("pyspark")

from lakelock.spark_plugin import LakeTable
from lakelock.spark_plugin.table_upkeep import Upkeep


@pytest.mark.parametrize(("deltas", "name"), [("optimize", "optimize"), ("vacuum", "clean"), ("restore", "restore")])
def test_a_name_of_delta_takes_what_the_call_in_its_group_takes(deltas: str, name: str) -> None:
    theirs, ours = inspect.signature(getattr(LakeTable, deltas)), inspect.signature(getattr(Upkeep, name))
    assert [(each.name, each.kind, each.default) for each in theirs.parameters.values()] == [
        (each.name, each.kind, each.default) for each in ours.parameters.values()
    ]
