"""Every rejection explains itself: by which rule, when it was found, over what, and what helps."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

import pytest
from tests.api import AppTransaction, ConflictRule, FileGroupId, MemoryStorage, WriteRequest
from tests.behaviour.tables import HUDI, QUICK, ScriptedRead, groups, insert, memory_table, put_file, writer
from tests.conflict_pairs import matrix

from lakelock.conflict import (
    DECLARE_SCOPE,
    IN_DELTA,
    REMEDIES,
    RULES,
    WEAKER_LEVEL,
    WHOLE_TABLE,
    Conflict,
    FoundAt,
    Party,
    Remedy,
)
from lakelock.errors import ConcurrentAppendException, ConflictError, EarlyConflictError
from lakelock.occ.footprint import WholeTable
from lakelock.occ.rules import PROFILES
from lakelock.settings import ConcurrencySettings, Settings

MATRIX = matrix()


def delta(level: str) -> Settings:
    return replace(QUICK, concurrency=ConcurrencySettings(profile="delta", isolation=level))  # type: ignore[arg-type]


def rejected(storage: MemoryStorage, read: object, settings: Settings = QUICK) -> ConflictError:
    """A transaction that made this read, and is rejected because another one added a file to January."""
    tx = writer(storage, settings).begin("INSERT")
    tx.reads(read)
    mine = put_file(tx, storage, "month=2", "mine")
    insert(writer(storage), storage, "month=1", "theirs")
    with pytest.raises(ConflictError) as caught:
        tx.commit([mine])
    return caught.value


@pytest.mark.parametrize("rule", ConflictRule)
def test_every_rule_has_its_words_and_every_profile_is_named_by_its_rules(rule):
    text = RULES[rule]
    assert text.rejects and text.example and text.retry
    assert set(text.remedies) <= set(REMEDIES)
    assert set(MATRIX.profiles_with(rule)) <= set(PROFILES)


def test_every_remedy_is_offered_by_a_rule():
    assert {remedy for text in RULES.values() for remedy in text.remedies} == set(Remedy)


def test_a_read_of_the_whole_table_that_collides_is_told_to_declare_its_scope():
    error = rejected(memory_table(), WholeTable())
    assert DECLARE_SCOPE in error.hint and "where=" in error.hint and "partition=" in error.hint
    assert error.explanation.helps[0] == DECLARE_SCOPE
    assert error.conflict.read == WHOLE_TABLE


def test_a_read_with_a_condition_is_not_told_to_declare_its_scope():
    error = rejected(memory_table(), ScriptedRead(["theirs"]))
    assert DECLARE_SCOPE not in error.hint and DECLARE_SCOPE not in error.explanation.helps
    assert error.hint == REMEDIES[Remedy.RUN_AGAIN]
    assert REMEDIES[Remedy.READ_WHERE] in error.explanation.helps


def test_an_explanation_says_by_which_rule_of_which_profile_and_when():
    found = rejected(memory_table(), ScriptedRead(["theirs"])).explanation
    assert (found.rule, found.profile, found.found) == (ConflictRule.APPEND, "strict", FoundAt.COMMIT)
    assert found.overlap == ("month=1: a row of theirs",) and found.rejects == RULES[ConflictRule.APPEND].rejects
    assert "INSERT" in found.other and "rows of a test" in found.detail


@pytest.mark.parametrize("settings", [HUDI, None], ids=["hudi", "strict"])
def test_a_conflict_over_a_file_group_names_the_profile_of_its_writer(settings):
    storage = memory_table()
    insert(writer(storage), storage, "month=1", "a")
    mine = writer(storage, settings) if settings else writer(storage)
    tx, other = mine.begin("UPSERT"), writer(storage).begin("UPSERT")
    stat = put_file(tx, storage, "month=1", "a", token="1-1-1")
    other.commit([put_file(other, storage, "month=1", "a")])
    with pytest.raises(ConflictError) as caught:
        tx.commit([stat])
    assert caught.value.explanation.profile == ("hudi" if settings else "strict")
    assert caught.value.explanation.found is FoundAt.COMMIT


@pytest.mark.parametrize("level", ["Serializable", "WriteSerializable"])
def test_a_rejection_in_the_profile_delta_names_its_level_and_has_deltas_words(level):
    storage = memory_table()
    insert(writer(storage), storage, "month=1", "a")
    tx = writer(storage, delta(level)).begin("INSERT")
    tx.reads(ScriptedRead(["theirs"]))
    mine = put_file(tx, storage, "month=2", "mine")
    with writer(storage).begin("UPSERT") as other:
        other.commit([put_file(other, storage, "month=1", "a", token="1-1-1")])
    with pytest.raises(ConcurrentAppendException) as caught:
        tx.commit([mine])
    found = pickle.loads(pickle.dumps(caught.value)).explanation
    assert (found.profile, found.level, found.rule) == ("delta", level, ConflictRule.APPEND)
    assert found.rejects == IN_DELTA[ConflictRule.APPEND].rejects
    assert f"profile: delta ({level})" in str(found)
    assert caught.value.conflict.read == "rows of a test" and caught.value.conflict.passes_at == ""


@pytest.mark.parametrize("read", [WholeTable(), ScriptedRead(["theirs"])], ids=["everything", "condition"])
def test_an_append_that_only_deltas_stronger_level_forbids_is_told_so(read):
    error = rejected(memory_table(), read, delta("Serializable"))
    advice = WEAKER_LEVEL.format(level="WriteSerializable")
    assert advice in error.hint and advice in error.explanation.helps
    assert (DECLARE_SCOPE in error.hint) is (read.description == WHOLE_TABLE)


def test_a_rejection_in_the_profile_hive_explains_the_write_set():
    storage = memory_table()
    for file_id in ("a", "b"):
        insert(writer(storage), storage, "month=1", file_id)
    tx = writer(storage, replace(QUICK, concurrency=ConcurrencySettings(profile="hive"))).begin("UPSERT")
    stat = put_file(tx, storage, "month=1", "a", token="1-1-1")
    with writer(storage).begin("UPSERT") as other:
        other.commit([put_file(other, storage, "month=1", "b", token="1-1-1")])
    with pytest.raises(ConflictError) as caught:
        tx.commit([stat])
    found = caught.value.explanation
    assert (found.profile, found.level, found.rule) == ("hive", "", ConflictRule.WRITE_SET)
    assert REMEDIES[Remedy.DECLARE_PARTITION] in found.helps


@pytest.mark.parametrize("profile", ["strict", "delta"])
def test_a_version_that_is_applied_already_explains_itself_too(profile):
    storage, application = memory_table(), AppTransaction("stream", 7)
    insert(writer(storage), storage, "month=1", "a", application=application)
    settings = replace(QUICK, concurrency=ConcurrencySettings(profile=profile))
    with pytest.raises(ConflictError) as caught:
        writer(storage, settings).begin(WriteRequest("INSERT", application=application))
    assert (caught.value.explanation.profile, caught.value.explanation.rule) == (profile, ConflictRule.APPLICATION_TRANSACTION)


def test_every_commit_checks_the_columns_whatever_its_profile():
    assert set(MATRIX.profiles_with(ConflictRule.METADATA)) == set(PROFILES)
    assert MATRIX.profiles_with(ConflictRule.WRITE_SET) == ("hive",)


def test_an_early_conflict_says_that_it_was_found_at_the_claim():
    storage = memory_table()
    insert(writer(storage), storage, "month=1", "a")
    holder = writer(storage).begin("UPSERT")
    holder.claim([FileGroupId("month=1", "a")])
    with pytest.raises(EarlyConflictError) as caught, writer(storage).begin("UPSERT") as tx:
        tx.claim([FileGroupId("month=1", "a")])
    holder.abort()
    assert caught.value.explanation.found is FoundAt.CLAIM
    assert groups(storage) == ["month=1/a"]


def test_an_error_keeps_its_explanation_when_it_is_pickled_and_as_json():
    error = rejected(memory_table(), WholeTable())
    assert pickle.loads(pickle.dumps(error)).explanation == error.explanation
    values = json.loads(json.dumps(error.as_dict()))["explanation"]
    assert values["rule"] == "append" and values["found"] == "commit"
    assert values["rejects"] and values["helps"]


def test_a_conflict_that_a_retry_meets_again_does_not_advise_to_run_again():
    both = Party("1", "UPSERT"), Party("2", "CLUSTER")
    conflict = Conflict(ConflictRule.FILE_GROUP, *both, ("a",), 9, retry_helps=False)
    error = ConflictError(conflict)
    assert REMEDIES[Remedy.RUN_AGAIN] not in error.hint and REMEDIES[Remedy.RUN_AGAIN] not in error.explanation.helps
    assert "over: a and 8 more" in str(error.explanation)
