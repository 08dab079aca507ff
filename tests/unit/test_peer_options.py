"""Options as Delta, Hudi and Spark spell them."""

from __future__ import annotations

import pickle
import re

import pytest

pytest.importorskip("pyspark")

from lakelock.errors import SettingsError
from lakelock.settings import settings_reference
from lakelock.spark_plugin.source_option_names import READS, SPELLINGS, UPSERTS_BY_DEFAULT, WRITES, Use, normalised
from lakelock.spark_plugin.source_options import OWN, ReadOptions, SourceOptions

OURS = {*OWN, *(row.key for row in settings_reference())}


def test_each_spelling_has_a_counterpart_or_says_what_to_type() -> None:
    for spelling in SPELLINGS:
        assert spelling.ours in OURS if spelling.ours else spelling.instead, spelling.name
        assert not spelling.only or (spelling.only_text and spelling.instead), spelling.name


def test_no_spelling_is_also_an_option_here() -> None:
    assert {spelling.name.lower() for spelling in SPELLINGS} & OURS == set()


TUNE = [s for s in SPELLINGS if s.tunes]


@pytest.mark.parametrize("spelling", [s for s in SPELLINGS if s.instead and set(s.tunes) != set(Use)], ids=lambda s: s.name)
def test_a_spelling_that_means_something_else_is_told_what_to_type_and_gets_no_guess(spelling) -> None:
    name = spelling.name.replace("*", "anything")
    with pytest.raises(SettingsError) as caught:
        SourceOptions.parse({"path": "/t", name: "surely not"})
    assert f"{spelling.peer}'s option {spelling.name}" in caught.value.message
    assert caught.value.hint == spelling.instead
    assert "did you mean" not in str(caught.value) and "\n" not in caught.value.hint


def test_options_that_only_tune_another_engine_are_passed_over_with_one_warning_that_names_them_all() -> None:
    with pytest.warns(UserWarning, match="change no result") as told:
        parsed = SourceOptions.parse({"path": "/t", **{s.name: "7" for s in TUNE}}, uses=(Use.BATCH_READ,), warn=True)
    assert parsed.settings == SourceOptions.parse({"path": "/t"}).settings
    assert len(told) == 1
    assert [s.name for s in TUNE if f"\n  {s.name}: {s.instead}" not in str(told[0].message)] == []


@pytest.mark.parametrize("value", ["true", "false"])
def test_whether_a_table_has_a_metadata_table_is_for_the_table_to_say(value) -> None:
    for use in (*READS, *WRITES):
        SourceOptions.parse({"path": "/t", "hoodie.metadata.enable": value}, uses=(use,))


def test_all_options_that_are_refused_are_named_in_one_error() -> None:
    given = {
        "path": "/t",
        "mergeShema": "true",
        "as_of": "2026-11-20",
        "versionAsOf": "3",
        "replaceWhere": "id = 1",
        "hoodie.datasource.hive_sync.enable": "true",
        "hoodie.foo": "1",
        "hoodie.bar": "1",
        "partitionBy": "day",
        "hoodie.datasource.write.operation": "boostrap",
    }
    with pytest.raises(SettingsError) as told:
        SourceOptions.parse(given, uses=(Use.BATCH_WRITE,))
    assert told.value.message.startswith("lakelock does not take 9 of these options:\n")
    for name in (
        "mergeshema",
        "versionAsOf",
        "replaceWhere",
        "hive_sync",
        "hoodie.foo",
        "hoodie.bar",
        "partitionby",
        "boostrap",
    ):
        assert name in told.value.message
    assert pickle.loads(pickle.dumps(told.value)).message == told.value.message


@pytest.mark.parametrize(
    ("typo", "guess"),
    [
        ("mergeShema", "mergeSchema"),
        ("merge_shema", "mergeSchema"),
        ("overwriteShema", "overwriteSchema"),
        ("overwrite_shema", "overwrite_schema"),
        ("partitonBy", "partition_by"),
        ("partition_overwrite", None),
        ("operations", "operation"),
        ("write_schema", None),
        ("schema", None),
        ("userMetdata", "userMetadata"),
        ("txnAppid_", "txnAppId"),
    ],
)
def test_a_typo_is_told_the_nearest_name_and_one_that_destroys_only_where_it_was_surely_meant(typo, guess) -> None:
    with pytest.raises(SettingsError) as told:
        SourceOptions.parse({"path": "/t", typo: "true"})
    found = re.search('did you mean "(.*)"', told.value.message)
    if guess is None:
        assert found is None or found[1] not in ("overwrite", "overwrite_schema", "overwriteSchema", "partitionoverwritemode")
    else:
        assert found and found[1] == guess


@pytest.mark.parametrize(
    "operation", [None, "upsert", "delete", "insert_overwrite", "insert_overwrite_table", "delete_partition"]
)
@pytest.mark.parametrize("name", UPSERTS_BY_DEFAULT)
def test_an_operation_of_hudis_that_a_data_source_cannot_run_is_refused_and_never_taken_for_an_insert(operation, name) -> None:
    given = {"path": "/t", name: "id"} | ({"hoodie.datasource.write.operation": operation} if operation else {})
    for use, hint in ((Use.BATCH_WRITE, r"register\(spark\)"), (Use.STREAM_WRITE, r"foreachBatch\(table\.upsert_batch\)")):
        with pytest.raises(SettingsError, match=f"(?s)operation {operation or 'upsert'}.*does not run.*{hint}"):
            SourceOptions.parse(given, uses=(use,))
    assert SourceOptions.parse(given, uses=(Use.BATCH_WRITE,), in_driver=True).operation == (operation or "upsert")


@pytest.mark.parametrize("operation", ["insert", "BULK_INSERT"])
def test_an_insert_by_hudis_name_is_an_append(operation) -> None:
    given = {"path": "/t", UPSERTS_BY_DEFAULT[0]: "id", "hoodie.datasource.write.operation": operation}
    assert {SourceOptions.parse(given, uses=(use,)).operation for use in WRITES} == {"insert"}
    assert SourceOptions.parse({"path": "/t", "key": "id"}, uses=(Use.BATCH_WRITE,)).operation == "insert"


def test_a_spelling_with_the_same_meaning_is_used_in_any_case() -> None:
    parsed = SourceOptions.parse({"path": "/t", "userMetadata": "nightly", "MERGESCHEMA": "true", "compression": "gzip"})
    assert (parsed.tag, parsed.settings.write.merge_schema, parsed.settings.write.compression) == ("nightly", True, "gzip")


def test_a_value_that_asks_for_what_happens_anyway_is_accepted() -> None:
    hudis = {"hoodie.datasource.query.type": "snapshot"}
    assert normalised({"readChangeFeed": "false", "dataChange": "true", "overwriteSchema": "False", **hudis}) == {}


@pytest.mark.parametrize(
    ("given", "as_of"),
    [
        ({"timestampAsOf": "2026-11-20T12:00:00Z"}, "2026-11-20T12:00:00Z"),
        ({"timestampAsOf": "2026-11-20 12:00:00.5+01:00"}, "2026-11-20 12:00:00.5+01:00"),
        ({"as.of.instant": "20261120120000000"}, "20261120120000000"),
        ({"as.of.instant": "2026-11-20 12:00:00"}, "2026-11-20 12:00:00"),
    ],
)
def test_reads_of_an_older_state_as_delta_and_hudi_spell_them(given: dict[str, str], as_of: str) -> None:
    assert SourceOptions.parse({"path": "/t", **given}).as_of == as_of
    assert ReadOptions.parse(given).as_of == as_of


def test_deltas_time_without_a_zone_is_refused_because_the_sessions_zone_is_unknown() -> None:
    with pytest.raises(SettingsError, match=r"(?s)timestampAsOf=2026-11-20 12:00.*\.option\(\"as_of\", .*in UTC"):
        ReadOptions.parse({"timestampAsOf": "2026-11-20 12:00"})


def test_hudis_options_of_a_write_say_what_the_table_is() -> None:
    stated = SourceOptions.parse(
        {
            "path": "/t",
            "hoodie.table.name": "flights",
            "hoodie.datasource.write.table.name": "flights",
            "hoodie.datasource.write.recordkey.field": "carrier,flight",
            "hoodie.datasource.write.partitionpath.field": "month",
            "hoodie.datasource.write.precombine.field": "updated_at",
            "hoodie.datasource.write.hive_style_partitioning": "true",
            "hoodie.datasource.write.operation": "insert",
        }
    ).stated
    assert (stated.name, stated.key, stated.partition_by) == ("flights", ("carrier", "flight"), ("month",))
    assert (stated.order_by, stated.hive_style, stated.index) == ("updated_at", True, None)


@pytest.mark.parametrize(
    "given",
    [
        {"tag": "a", "userMetadata": "a"},
        {"as_of": "2026-11-20", "as.of.instant": "2026-11-20"},
        {"hoodie.table.name": "flights", "hoodie.datasource.write.table.name": "trains"},
    ],
)
def test_one_option_in_two_spellings_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match="are the same option"):
        normalised(given)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"as_off": "2026"}, 'a read has no option "as_off"; did you mean "as_of"'),
        ({"lock.wait_s": 5}, r"for_path\(spark, path, options=\.\.\.\)"),
        ({"include_meta": "perhaps"}, "use true or false"),
        ({"versionAsOf": 3}, r"versionAsOf(?s:.*)table\.history\(\)"),
    ],
)
def test_a_read_names_what_is_wrong_with_its_options(options: dict[str, object], problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        ReadOptions.parse(options)


@pytest.mark.parametrize("name", ["as_of", "partition"])
@pytest.mark.parametrize("text", ["", " "])
def test_an_option_without_a_value_is_not_taken_for_one_that_was_left_out(name: str, text: str) -> None:
    with pytest.raises(SettingsError, match="is an empty text"):
        ReadOptions.parse({name: text})
    with pytest.raises(SettingsError, match="is an empty text"):
        SourceOptions.parse({"path": "/t", name: text})
