"""The old names of calls of a `LakeTable` that are in groups now: each takes what the new one takes, and CHANGELOG lists it."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from lakelock.spark_plugin import LakeTable
from lakelock.spark_plugin.table_info import Locks
from lakelock.spark_plugin.table_upkeep import DeltasUpkeep, MovedNames, Upkeep
from lakelock.spark_plugin.table_writes import Columns

CHANGELOG = (Path(__file__).parents[2] / "CHANGELOG.md").read_text()
MOVED = dict(re.findall(r"^\| `table\.(\w+)\(…\)` \| `table\.([\w.]+)\(…\)` \|$", CHANGELOG, re.MULTILINE))
GROUPS = {"columns": Columns, "upkeep": Upkeep, "locks": Locks}


def test_the_changelog_lists_every_name_that_moved() -> None:
    assert {name for name in vars(MovedNames) if not name.startswith("_")} == set(MOVED)


@pytest.mark.parametrize(
    ("old", "new"),
    [*MOVED.items(), ("optimize", "upkeep.optimize"), ("vacuum", "upkeep.clean"), ("restore", "upkeep.restore")],
    ids=[*MOVED, "optimize", "vacuum", "restore"],
)
def test_an_old_name_takes_what_the_new_one_takes(old: str, new: str) -> None:
    group, _, name = new.partition(".")
    before, now = inspect.signature(getattr(LakeTable, old)), inspect.signature(getattr(GROUPS[group], name))
    assert [(each.name, each.kind, each.default) for each in before.parameters.values()] == [
        (each.name, each.kind, each.default) for each in now.parameters.values()
    ]
    assert old in {*vars(MovedNames), *vars(DeltasUpkeep)}
