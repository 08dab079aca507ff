"""Whether lakelock's client of an object store and Hadoop's, by which Spark reads, are told the same."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from lakelock.cli.doctor.context import Check, DoctorContext
from lakelock.cli.hadoop_files import hadoop_settings
from lakelock.storage.hadoop import mismatches
from lakelock.storage.location import is_local


def check_clients(context: DoctorContext) -> Iterator[Check]:
    """Nothing for a table on a disk. No value is shown: it may be a secret."""
    uri = context.storage.uri
    if not is_local(uri):
        yield from judge_clients(uri, context.settings.storage, hadoop_settings(os.environ))


def judge_clients(uri: str, options: Mapping[str, str], hadoop: Mapping[str, str]) -> Iterator[Check]:
    """One warning for each value that the options and Hadoop's settings both have, and differently."""
    found = mismatches(uri, options, hadoop.get)
    for each in found:
        yield Check(
            "clients",
            "warning",
            f"storage.{each.option} and Hadoop's {each.setting} differ: LakeTable uses the former for both clients, "
            "other readers in Spark use the latter",
            f"leave storage.{each.option} out, and both clients take {each.setting}; or set them to one value",
        )
    if not found:
        yield Check("clients", "ok", "lakelock and Hadoop's settings on this machine do not contradict each other")
