"""What is told of two operations before they run is what becomes of them."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.api import (
    ArrowEngine,
    BucketIndex,
    ConflictRule,
    MemoryStorage,
    SystemRuntime,
    TableProperties,
    TableSchema,
    create_table,
    layout,
)
from tests.behaviour.tables import HUDI, QUICK, SCHEMA, insert, memory_table, new_table, put_file, writer
from tests.faulty_storage import CountingStorage
from tests.sizes import in_ci

from lakelock.conflict import DECLARE_SCOPE, REMEDIES, WEAKER_LEVEL, FoundAt, Remedy, Verdict
from lakelock.errors import ConflictError, InputError
from lakelock.occ.footprint import Level, WholeTable
from lakelock.occ.rules import LEVELS
from lakelock.settings import ArchiveSettings, CleanSettings, ConcurrencySettings
from lakelock.table.index import GlobalIndex

COLLIDES, DEPENDS, PASSES = Verdict.COLLIDES, Verdict.DEPENDS, Verdict.PASSES


def filled():
    """A table with two months, one row in each."""
    storage = memory_table()
    ArrowEngine(writer(storage)).insert(rows("old", "1", "2"))
    return storage


def at(profile, level=Level.SERIALIZABLE):
    return replace(QUICK, concurrency=ConcurrencySettings(profile=profile, isolation=level.value))


def str_of(profile, level):
    return f"delta ({level})" if profile == "delta" else profile


def rows(key, *months):
    return pa.table([[key] * len(months), [1] * len(months), list(months)], schema=SCHEMA)


@pytest.mark.parametrize(
    ("mine", "other", "verdict", "rule"),
    [
        ("INSERT", "INSERT", PASSES, None),
        ("INSERT month=1", "OVERWRITE month=1", PASSES, None),
        ("OVERWRITE month=1", "INSERT month=1", COLLIDES, ConflictRule.PARTITION_OVERWRITE),
        ("OVERWRITE month=1", "INSERT", DEPENDS, ConflictRule.PARTITION_OVERWRITE),
        ("OVERWRITE month=1", "OVERWRITE month=1", COLLIDES, ConflictRule.FILE_GROUP),
        ("OVERWRITE month=1", "INSERT month=2", PASSES, None),
        ("DELETE month=1", "UPSERT month=2", PASSES, None),
        ("DELETE month=1", "INSERT month=1", COLLIDES, ConflictRule.APPEND),
        ("INSERT month=1", "DELETE month=1", PASSES, None),
        ("DELETE id = 'x'", "INSERT month=1", DEPENDS, ConflictRule.APPEND),
        ("DELETE month = '1' AND id = 'x'", "INSERT month=2", PASSES, None),
        ("UPSERT month=1", "UPSERT month=1", DEPENDS, ConflictRule.FILE_GROUP),
        ("UPSERT month=3", "INSERT month=3", DEPENDS, ConflictRule.KEY),
        ("UPDATE month=1", "OPTIMIZE month=1", DEPENDS, ConflictRule.FILE_GROUP),
        ("INSERT", "OPTIMIZE", PASSES, None),
        ("READ", "OPTIMIZE", PASSES, None),
        ("READ", "INSERT month=1", COLLIDES, ConflictRule.APPEND),
        ("READ month=2", "INSERT month=1", PASSES, None),
        ("INSERT", "READ", PASSES, None),
        ("MERGE", "DELETE id = 'x'", DEPENDS, ConflictRule.FILE_GROUP),
    ],
)
def test_the_rules_tell_what_becomes_of_two_operations(mine, other, verdict, rule):
    found = writer(filled()).explain_conflict(mine, other)
    assert (found.verdict, found.chosen.rule) == (verdict, rule), str(found)
    assert (found.chosen.mine, found.chosen.other, found.chosen.profile) == (mine, other, "strict")
    assert bool(found.chosen.only_if) is (verdict is DEPENDS)
    assert bool(found.chosen.helps) is (verdict is not PASSES)
    assert set(found.elsewhere) == {"delta (Serializable)", "delta (WriteSerializable)", "hive", "hudi"}


@pytest.mark.parametrize(
    ("mine", "other", "strict", "serializable", "write_serializable", "hive", "hudi"),
    [
        ("INSERT", "INSERT", PASSES, PASSES, PASSES, PASSES, PASSES),
        ("DELETE month=1", "INSERT month=1", COLLIDES, COLLIDES, PASSES, PASSES, PASSES),
        ("DELETE id = 'x'", "INSERT month=1", DEPENDS, DEPENDS, PASSES, PASSES, PASSES),
        ("UPSERT month=1", "INSERT month=1", DEPENDS, COLLIDES, PASSES, PASSES, PASSES),
        ("UPSERT", "INSERT", DEPENDS, DEPENDS, PASSES, PASSES, PASSES),
        ("UPSERT month=3", "UPSERT month=3", DEPENDS, COLLIDES, COLLIDES, PASSES, PASSES),
        ("OVERWRITE month=1", "INSERT month=1", COLLIDES, COLLIDES, PASSES, COLLIDES, PASSES),
        ("OVERWRITE month=1", "UPSERT month=1", COLLIDES, COLLIDES, COLLIDES, COLLIDES, DEPENDS),
        ("DELETE month=1", "DELETE month=1", COLLIDES, COLLIDES, COLLIDES, COLLIDES, COLLIDES),
        ("DELETE id = 'x'", "DELETE id = 'y'", DEPENDS, DEPENDS, DEPENDS, DEPENDS, DEPENDS),
        ("UPDATE month=1", "OPTIMIZE month=1", DEPENDS, DEPENDS, DEPENDS, DEPENDS, DEPENDS),
        ("OPTIMIZE month=1", "UPDATE month=1", DEPENDS, DEPENDS, DEPENDS, DEPENDS, DEPENDS),
        ("READ month=1", "UPSERT month=1", COLLIDES, COLLIDES, COLLIDES, PASSES, PASSES),
        ("READ month=1", "UPSERT month=2", PASSES, PASSES, PASSES, PASSES, PASSES),
    ],
)
def test_each_profile_and_level_has_its_own_answer(mine, other, strict, serializable, write_serializable, hive, hudi):
    answers = dict(zip(LEVELS, (strict, serializable, write_serializable, hive, hudi), strict=True))
    storage = filled()
    asked = writer(storage).explain_conflict(mine, other)
    assert list({"strict": asked.chosen, **asked.elsewhere}) == [str_of(*each) for each in LEVELS]
    for (profile, level), verdict in answers.items():
        found = writer(storage, at(profile, level)).explain_conflict(mine, other)
        assert found.verdict is verdict, f"{profile} {level}: {found.chosen}"
        elsewhere = {"strict": asked.chosen, **asked.elsewhere}[str_of(profile, level)]
        assert elsewhere == found.chosen
        assert (found.chosen.profile, found.chosen.level) == (profile, level.value if profile == "delta" else "")


@pytest.mark.parametrize(
    ("profile", "mine", "other", "condition"),
    [
        ("delta", "DELETE id = 'x'", "INSERT month=1", "the other writes a file that may hold such a row: id = 'x'"),
        ("delta", "DELETE id = 'x'", "DELETE id = 'y'", "the other rewrites a file that may hold such a row: id = 'x'"),
        ("hive", "DELETE id = 'x'", "DELETE id = 'y'", "both update or delete rows of the same partition"),
        ("hudi", "DELETE id = 'x'", "DELETE id = 'y'", "both rewrite the same file group"),
        ("strict", "UPSERT month=1", "UPSERT month=1", "a row matches: a key of the UPSERT month=1"),
    ],
)
def test_what_an_answer_depends_on_is_said_by_each_rule_that_may_object(profile, mine, other, condition):
    found = writer(filled(), at(profile)).explain_conflict(mine, other).chosen
    assert found.verdict is DEPENDS and condition in found.only_if.split("; or if ")


@pytest.mark.parametrize("pair", [("OPTIMIZE month=1", "UPDATE month=1"), ("UPDATE month=1", "OPTIMIZE month=1")])
def test_in_the_profile_hive_a_service_counts_by_file_groups_only(pair):
    found = writer(filled(), at("hive")).explain_conflict(*pair).chosen
    assert found.only_if == "both rewrite the same file group"


@pytest.mark.parametrize("mine", ["DELETE month=1", "UPSERT month=1", "OVERWRITE month=1"])
def test_where_only_deltas_level_forbids_an_append_the_weaker_level_is_the_advice(mine):
    weaker = WEAKER_LEVEL.format(level="WriteSerializable")
    found = writer(filled(), at("delta")).explain_conflict(mine, "INSERT month=1")
    assert weaker in found.chosen.helps and found.elsewhere["delta (WriteSerializable)"].verdict is PASSES
    assert REMEDIES[Remedy.ANOTHER_LEVEL] not in found.chosen.helps
    assert weaker not in writer(filled(), at("delta")).explain_conflict(mine, "UPSERT month=1").chosen.helps
    assert weaker not in writer(filled()).explain_conflict(mine, "INSERT month=1").chosen.helps


def test_deltas_rules_have_deltas_words():
    found = writer(filled()).explain_conflict("READ month=1", "INSERT month=1")
    assert found.chosen.rule is found.elsewhere["delta (Serializable)"].rule is ConflictRule.APPEND
    assert "may hold" in found.elsewhere["delta (Serializable)"].rejects and "may hold" not in found.chosen.rejects


@pytest.mark.parametrize(
    ("mine", "other", "verdict"),
    [
        ("READ month=9", "INSERT", DEPENDS),
        ("READ", "INSERT", COLLIDES),
        ("READ", "UPSERT", COLLIDES),
        ("UPSERT", "INSERT month=9", DEPENDS),
        ("OVERWRITE month=9", "UPSERT", DEPENDS),
    ],
)
def test_an_operation_may_write_into_partitions_that_do_not_exist_yet(mine, other, verdict):
    for storage in (memory_table(), filled()):
        assert writer(storage).explain_conflict(mine, other).verdict is verdict


@pytest.mark.parametrize(
    ("other", "condition"), [("MERGE", "the other adds a row"), ("DELETE v = 1", "the other changes or removes a row")]
)
@pytest.mark.parametrize("profile", ["strict", "delta"])
def test_to_a_read_of_everything_it_matters_whether_there_is_a_row(other, condition, profile):
    found = writer(filled(), at(profile)).explain_conflict("READ", other).chosen
    assert found.verdict is DEPENDS and condition in found.only_if.split("; or if ")


@pytest.mark.parametrize("mine", ["READ month=1", "UPSERT month=1", "DELETE month=1"])
def test_no_file_group_is_named_that_nobody_has_made(mine):
    found = writer(filled(), at("delta")).explain_conflict(mine, "INSERT month=1").chosen
    assert (found.overlap, found.overlap_count) == (("month=1",), 1)


def test_a_table_without_partitions_has_one_place_for_everything():
    storage = MemoryStorage()
    properties = TableProperties.new(
        "t", record_keys=("id",), partition_fields=(), create_schema=TableSchema.from_arrow(SCHEMA).to_avro_json("t")
    )
    create_table(storage, properties, SystemRuntime())
    for _ in range(2):
        assert writer(storage).explain_conflict("READ", "INSERT").verdict is COLLIDES
        assert writer(storage).explain_conflict("UPSERT", "INSERT").verdict is DEPENDS
        ArrowEngine(writer(storage)).insert(rows("old", "1"))
    assert writer(storage).explain_conflict("DELETE", "DELETE").verdict is COLLIDES


def test_with_buckets_two_inserts_may_meet_in_one():
    storage = MemoryStorage()
    properties = TableProperties.new(
        "t", record_keys=("id",), partition_fields=("month",), create_schema=TableSchema.from_arrow(SCHEMA).to_avro_json("t")
    )
    create_table(storage, properties.indexed(BucketIndex(2)), SystemRuntime())
    for other in ("INSERT month=1", "UPSERT month=1"):
        found = writer(storage).explain_conflict("INSERT month=1", other)
        assert (found.verdict, found.chosen.rule) == (DEPENDS, ConflictRule.FILE_GROUP)
    assert writer(storage).explain_conflict("INSERT month=1", "INSERT month=2").verdict is PASSES


@pytest.mark.parametrize("index", [None, GlobalIndex()])
def test_where_keys_span_partitions_an_upsert_of_one_meets_writers_of_all(index):
    storage = MemoryStorage()
    properties = TableProperties.new(
        "t", record_keys=("id",), partition_fields=("month",), create_schema=TableSchema.from_arrow(SCHEMA).to_avro_json("t")
    )
    create_table(storage, properties.indexed(index), SystemRuntime())
    ArrowEngine(writer(storage)).insert(rows("old", "1", "2"))
    for other, rule in (("INSERT month=2", ConflictRule.KEY), ("UPSERT month=2", ConflictRule.FILE_GROUP)):
        found = writer(storage).explain_conflict("UPSERT month=1", other)
        told = (found.verdict, found.chosen.rule)
        assert told == ((PASSES, None) if index is None else (DEPENDS, rule))
    assert writer(storage).explain_conflict("INSERT month=1", "UPSERT month=2").verdict is PASSES


def test_what_files_would_have_to_be_looked_into_for_says_which_row_matters():
    found = writer(filled()).explain_conflict("DELETE id = 'x'", "INSERT month=1").chosen
    assert found.only_if == "a row matches: id = 'x'" and found.overlap == ("month=1",)


def test_the_same_pair_is_judged_by_every_profile_and_in_the_other_order():
    found = writer(filled()).explain_conflict("READ", "INSERT month=1")
    assert found.verdict is COLLIDES and found.elsewhere["hudi"].verdict is PASSES
    assert found.reverse is not None and found.reverse.verdict is PASSES
    assert "in hudi: passes" in str(found) and "in the other order: passes" in str(found)
    assert writer(filled(), HUDI).explain_conflict("READ", "INSERT month=1").elsewhere["strict"].verdict is COLLIDES


@pytest.mark.parametrize(
    ("partition", "declared"),
    [("day=2026-11-20", "day = '2026-11-20'"), ("day=2026-11-20/hour=3", "day = '2026-11-20' and hour = 3"), ("", "")],
)
def test_what_helps_names_a_partition_of_this_table(partition, declared):
    storage, columns = MemoryStorage(), pa.schema([("id", pa.string()), ("day", pa.string()), ("hour", pa.int32())])
    new_table(storage, columns, [part.partition("=")[0] for part in partition.split("/") if part])
    found = writer(storage).explain_conflict("READ", f"INSERT {partition}".strip()).chosen
    where, written = (f'where="{declared}"', f'partition="{partition}"') if partition else ("where=...", "partition=...")
    assert found.helps[0].endswith(f"what it reads by {where}, what it writes by {written}")
    assert "month" not in str(found)


def test_a_read_of_everything_is_told_to_declare_its_scope():
    assert writer(filled()).explain_conflict("READ", "INSERT month=1").chosen.helps[0] == DECLARE_SCOPE
    assert DECLARE_SCOPE not in writer(filled()).explain_conflict("READ month=1", "INSERT month=1").chosen.helps


def test_without_early_conflict_detection_everything_is_found_at_the_commit():
    late = replace(QUICK, concurrency=replace(QUICK.concurrency, early_conflict_detection=False))
    found = [writer(filled(), s).explain_conflict("UPSERT", "UPSERT").chosen.found for s in (QUICK, late)]
    assert found == [FoundAt.CLAIM, FoundAt.COMMIT]


@pytest.mark.parametrize("archived", [False, True], ids=["active", "archived"])
def test_a_commit_is_judged_by_what_it_did_archived_or_not(archived):
    storage = memory_table()
    short = ArchiveSettings(min_commits=2, max_commits=2, min_age_s=0)
    settings = replace(QUICK, archive=short, clean=CleanSettings(readers_s=0))
    old = insert(writer(storage, settings), storage, "month=1", "a").instant
    for number in range(4 if archived else 0):
        insert(writer(storage, settings), storage, "month=5", f"f{number}")
    if archived:
        assert writer(storage, settings).archive().instants
        assert writer(storage).table.timeline().state_of(old) is None
    asked = writer(storage, settings)
    assert asked.explain_conflict("DELETE month=1", old).verdict is COLLIDES
    assert asked.explain_conflict("DELETE month=2", old).verdict is PASSES
    found = asked.explain_conflict("DELETE id = 'x'", old)
    assert found.verdict is DEPENDS and found.reverse is None
    assert old in found.chosen.other


def test_a_commit_that_removed_what_it_found_is_judged_by_what_was_there():
    storage = filled()
    gone = ArrowEngine(writer(storage)).overwrite_partitions(rows("new", "1")).instant
    writer(storage, replace(QUICK, clean=CleanSettings(readers_s=0, keep_commits=1))).clean()
    for settings in (QUICK, at("delta", Level.WRITE_SERIALIZABLE)):
        asked = writer(storage, settings)
        assert asked.explain_conflict("READ month=1", gone).verdict is COLLIDES
        assert asked.explain_conflict("DELETE month=1", gone).chosen.rule in (ConflictRule.FILE_GROUP, ConflictRule.APPEND)
        assert asked.explain_conflict("READ month=2", gone).verdict is PASSES


def test_a_commit_that_changed_the_columns_collides_with_everything_in_the_profile_delta():
    storage = filled()
    wider = TableSchema.from_arrow(SCHEMA.append(pa.field("w", pa.int64())))
    with writer(storage).begin("INSERT") as other:
        changed = other.commit([put_file(other, storage, "month=1", "a")], schema=wider).instant
    same = insert(writer(storage), storage, "month=1", "b").instant
    found = writer(storage, at("delta")).explain_conflict("INSERT month=2", changed)
    assert (found.verdict, found.chosen.rule, found.chosen.overlap) == (COLLIDES, ConflictRule.METADATA, ("w",))
    assert found.elsewhere["strict"].verdict is PASSES
    assert writer(storage, at("delta")).explain_conflict("INSERT month=2", same).verdict is PASSES


@pytest.mark.parametrize(
    "other", ["20200101000000000", "DELTE", "DELETE mnth=1", "DELETE mnth > 1", "DELETE id = 'x' AND mnth IN (1)", "DELETE 1"]
)
def test_what_is_neither_an_operation_nor_a_commit_is_refused_with_a_next_step(other):
    with pytest.raises(InputError) as caught:
        writer(filled()).explain_conflict("DELETE month=1", other)
    assert caught.value.hint


def test_asking_writes_nothing_and_takes_no_lock():
    inner = filled()
    before = {entry.key: entry.modified_ms for entry in [*inner.list(""), *inner.list(layout.HOODIE)]}
    storage = CountingStorage(inner)
    writer(storage).explain_conflict("UPSERT", "DELETE id = 'x'")
    assert not [call for call in storage.calls if call[0].startswith(("put", "delete", "open_output"))]
    assert {entry.key: entry.modified_ms for entry in [*inner.list(""), *inner.list(layout.HOODIE)]} == before


def run_mine(storage, engine, tx, name, month):
    """Do it as Spark does, which knows by its partition whether a file concerns a condition."""
    partition = f"month={month}"
    if name == "INSERT":
        return engine.insert_in(tx, rows("same", month))
    if name == "UPSERT":
        return engine.upsert_in(tx, rows("same", month))
    there = tx.snapshot().in_partition(partition)
    if name == "OVERWRITE":
        tx.overwrites([partition])
        return tx.commit([put_file(tx, storage, partition, "new")], replaced={partition: [file.file_id for file in there]})
    tx.reads(WholeTable([partition]))
    if name == "DELETE":
        return tx.commit([put_file(tx, storage, partition, file.file_id, token="1-1-1") for file in there])
    return engine.insert_in(tx, rows("result", "9"))


def run_other(engine, name, month):
    if name == "DELETE":
        return engine.delete(pc.field("month") == month)
    write = {"INSERT": engine.insert, "UPSERT": engine.upsert, "OVERWRITE": engine.overwrite_partitions}[name]
    return write(rows("same", month))


@pytest.mark.parametrize(("profile", "level"), LEVELS, ids=str)
@pytest.mark.parametrize("other", ["INSERT", "UPSERT", "DELETE", "OVERWRITE"])
@pytest.mark.parametrize("mine", ["INSERT", "UPSERT", "READ", *in_ci("DELETE", "OVERWRITE")])
@pytest.mark.parametrize("months", [("1", "1"), *in_ci((("1", "2"),), (("3", "3"),))], ids="-".join)
def test_what_is_told_is_what_becomes_of_the_two_when_they_run(mine, other, months, profile, level):
    storage, settings = filled(), at(profile, level)
    coordinator = writer(storage, settings)
    told = coordinator.explain_conflict(f"{mine} month={months[0]}", f"{other} month={months[1]}")
    tx = coordinator.begin({"READ": "INSERT", "OVERWRITE": "INSERT_OVERWRITE"}.get(mine, mine))
    run_other(ArrowEngine(writer(storage, settings)), other, months[1])
    rejected = ""
    try:
        with tx:
            run_mine(storage, ArrowEngine(coordinator), tx, mine, months[0])
    except ConflictError as error:
        rejected = str(error)
    assert told.verdict in ((COLLIDES, DEPENDS) if rejected else (PASSES, DEPENDS)), f"{told}\n{rejected}"
