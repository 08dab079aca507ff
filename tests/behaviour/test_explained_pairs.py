"""What is told of two operations before they run is what becomes of them."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakelock.conflict import ConflictRule
from lakelock.engine.arrow import ArrowEngine
from lakelock.errors import ConflictError, InputError
from lakelock.explanation import Verdict
from lakelock.occ.conflicts.profiles import PROFILES
from lakelock.rule_texts import DECLARE_SCOPE, FoundAt
from lakelock.settings import ArchiveSettings, CleanSettings
from lakelock.table import layout
from tests.behaviour.tables import HUDI, QUICK, SCHEMA, insert, memory_table, writer
from tests.faulty_storage import CountingStorage

COLLIDES, DEPENDS, PASSES = Verdict.COLLIDES, Verdict.DEPENDS, Verdict.PASSES


def filled():
    """A table with two months, one row in each."""
    storage = memory_table()
    ArrowEngine(writer(storage)).insert(rows("old", "1", "2"))
    return storage


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
    assert set(found.elsewhere) == set(PROFILES) - {"strict"}


def test_what_files_would_have_to_be_looked_into_for_says_which_row_matters():
    found = writer(filled()).explain_conflict("DELETE id = 'x'", "INSERT month=1").chosen
    assert found.only_if == "a row matches: id = 'x'" and found.overlap == ("month=1",)


def test_the_same_pair_is_judged_by_every_profile_and_in_the_other_order():
    found = writer(filled()).explain_conflict("READ", "INSERT month=1")
    assert found.verdict is COLLIDES and found.elsewhere["hudi"].verdict is PASSES
    assert found.reverse is not None and found.reverse.verdict is PASSES
    assert "in hudi: passes" in str(found) and "in the other order: passes" in str(found)
    assert writer(filled(), HUDI).explain_conflict("READ", "INSERT month=1").elsewhere["strict"].verdict is COLLIDES


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


@pytest.mark.parametrize("other", ["20200101000000000", "DELTE", "DELETE mnth=1"])
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


def run_mine(engine, tx, name, month):
    if name == "INSERT":
        return engine.insert_in(tx, rows("same", month))
    if name == "UPSERT":
        return engine.upsert_in(tx, rows("same", month))
    if name == "DELETE":
        return engine.delete_where_in(tx, pc.field("month") == month)
    engine.read_in(tx, pc.field("month") == month)
    return engine.insert_in(tx, rows("result", "9"))


def run_other(engine, name, month):
    if name == "DELETE":
        return engine.delete(pc.field("month") == month)
    write = {"INSERT": engine.insert, "UPSERT": engine.upsert, "OVERWRITE": engine.overwrite_partitions}[name]
    return write(rows("same", month))


@pytest.mark.parametrize("settings", [QUICK, HUDI], ids=["strict", "hudi"])
@pytest.mark.parametrize("other", ["INSERT", "UPSERT", "DELETE", "OVERWRITE"])
@pytest.mark.parametrize("mine", ["INSERT", "UPSERT", "DELETE", "READ"])
@pytest.mark.parametrize("months", [("1", "1"), ("1", "2"), ("3", "3")], ids="-".join)
def test_what_is_told_is_what_becomes_of_the_two_when_they_run(mine, other, months, settings):
    storage = filled()
    coordinator = writer(storage, settings)
    told = coordinator.explain_conflict(f"{mine} month={months[0]}", f"{other} month={months[1]}")
    tx = coordinator.begin("INSERT" if mine == "READ" else mine)
    run_other(ArrowEngine(writer(storage, settings)), other, months[1])
    rejected = ""
    try:
        with tx:
            run_mine(ArrowEngine(coordinator), tx, mine, months[0])
    except ConflictError as error:
        rejected = str(error)
    assert told.verdict in ((COLLIDES, DEPENDS) if rejected else (PASSES, DEPENDS)), f"{told}\n{rejected}"
