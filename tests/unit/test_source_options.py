"""The options of batches and of streams, walked one by one: what one takes, the other takes or refuses by name."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from lakelock.errors import SettingsError
from lakelock.settings import settings_reference
from lakelock.spark_plugin.source_option_names import READS, SPELLINGS, WRITES, Use
from lakelock.spark_plugin.source_options import OWN, SourceOptions

VALUES = {
    "as_of": "2026-11-20",
    "until": "2026-11-20",
    "since": "2026-11-20",
    "query_type": "read_optimized",
    "include_meta": "true",
    "change_feed": "true",
    "skip_change_commits": "true",
    "max_files_per_trigger": "1",
    "overwrite": "partitions",
    "partitionOverwriteMode": "dynamic",
    "overwrite_schema": "true",
    "txn_version": "1",
    "txn_replay": "true",
    "index": "bucket:2",
    "hive_style": "false",
    "table_version": "8",
    "table_type": "MERGE_ON_READ",
    "operation": "insert",
    "checkpointLocation": "/c",
    "queryName": "q",
}
"""A value that asks for something; any text for the others."""
SPARKS = ("partitionOverwriteMode", "checkpointLocation", "queryName")
ONLY = {
    **dict.fromkeys(("as_of", "until", "since", "include_meta", "change_feed"), READS),
    "query_type": (Use.BATCH_READ,),
    **dict.fromkeys(("max_files_per_trigger", "skip_change_commits"), (Use.STREAM_READ,)),
    **dict.fromkeys(("txn_replay", "queryName"), (Use.STREAM_WRITE,)),
    "checkpointLocation": (Use.STREAM_READ, Use.STREAM_WRITE),
    "txn_version": (Use.BATCH_WRITE,),
}
OF_WRITES = (
    "overwrite", "overwrite_schema", "partitionOverwriteMode", "txn_app_id", "tag", "operation", "partitions_to_delete"
)  # fmt: skip
"""The options that not every write, or not every read, takes. All others are taken alike by batches and streams."""


def refusal(use: Use, name: str, value: str) -> str:
    """What the error of this use says about the option; empty if it takes it."""
    given = {"path": "/t", name: value} | ({"txn_app_id": "a"} if name == "txn_version" else {})
    try:
        parsed = SourceOptions.parse(given, uses=(use,))
        if use is Use.STREAM_WRITE:
            parsed.refuse_version()
    except SettingsError as error:
        return str(error).lower()
    return ""


@pytest.mark.parametrize("name", [name for name in (*OWN, *SPARKS) if name not in ("path", "config")])
def test_an_option_of_a_batch_is_one_of_a_stream_or_refused_by_name_and_the_other_way_round(name: str) -> None:
    refused = {use: refusal(use, name, VALUES.get(name, "x")) for use in Use}
    assert all(name.lower() in text for text in refused.values() if text)
    for uses in (WRITES, READS):
        taken = {use for use in uses if not refused[use]}
        wanted = {use for use in uses if use in ONLY.get(name, WRITES if name in OF_WRITES else tuple(Use))}
        # A temporary view's source reads with all of the view's options, those of its INSERTs included.
        assert taken - {Use.BATCH_READ} == wanted - {Use.BATCH_READ}
        assert taken >= wanted


def test_a_setting_and_a_spelling_of_others_is_taken_or_refused_alike_by_writes_of_batches_and_of_streams() -> None:
    names = {row.key: str(row.default) for row in settings_reference() if row.default not in (None, "")}
    names |= {spelling.name.replace("*", "x"): "true" for spelling in SPELLINGS}
    different = [name for name, value in names.items() if len({bool(refusal(use, name, value)) for use in WRITES}) > 1]
    assert different == []
