"""A rejected transaction leaves one small record of whom it met, which never stands in anybody's way."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.api import ConflictRule, EventKind, FileGroupId, Outcome, WriterIdentity, format_instant, layout
from tests.behaviour.tables import QUICK, Recorder, ScriptedRead, groups, insert, leftovers, memory_table, put_file, writer
from tests.faulty_storage import CountingStorage, Fault, FaultyStorage, Rule

from lakelock.conflict import Conflict, Party
from lakelock.errors import ConcurrentAppendException, ConflictError, CorruptTableError, EarlyConflictError
from lakelock.occ.ending import TransactionState
from lakelock.occ.footprint import WholeTable
from lakelock.occ.rejections import (
    KEPT_DAYS,
    MOST_RECORDS,
    Rejection,
    read_rejection,
    rejected_instants,
    write_rejection,
)
from lakelock.settings import ConcurrencySettings, Settings

ME = WriterIdentity("id", "app", "host", 1, "user")
GROUP = FileGroupId("month=1", "a")
CALM = Settings()
"""A busy machine takes nobody for dead."""


def late(storage, listener=None):
    """A transaction that loses at its commit; its error, itself, and the instant of the one that it met."""
    insert(writer(storage), storage, "month=1", "a")
    tx, other = writer(storage, CALM, listener=listener).begin("UPSERT"), writer(storage, CALM, "faster").begin("UPSERT")
    stat = put_file(tx, storage, "month=1", "a", token="1-1-1")
    other.commit([put_file(other, storage, "month=1", "a")])
    with pytest.raises(ConflictError) as caught:
        tx.commit([stat])
    return caught.value, tx, other


def test_a_transaction_that_loses_at_its_commit_leaves_a_record_of_whom_it_met():
    storage = memory_table()
    error, tx, other = late(storage)
    found = writer(storage).why_rejected(tx.instant)
    assert found.outcome is Outcome.REJECTED and found.rejection is not None
    record = found.rejection
    assert record.conflict == error.conflict and record.explanation == error.explanation
    assert (record.instant, record.operation, record.writer.application) == (tx.instant, "UPSERT", "w")
    assert record.conflict.other.instant == other.instant and record.conflict.other.writer.application == "faster"
    assert not record.conflict.early and record.at_ms > 0
    assert rejected_instants(storage) == [tx.instant] and leftovers(storage) == []


def test_a_transaction_that_loses_at_its_claim_leaves_a_record_too():
    storage = memory_table()
    insert(writer(storage), storage, "month=1", "a")
    holder = writer(storage).begin("UPSERT")
    holder.claim([GROUP])
    with pytest.raises(EarlyConflictError) as caught, writer(storage).begin("UPSERT") as tx:
        tx.claim([GROUP])
    holder.abort()
    record = read_rejection(storage, tx.instant)
    assert record is not None and record.conflict == caught.value.conflict and record.conflict.early


def test_a_transaction_that_commits_although_it_met_another_at_its_claim_leaves_no_record():
    storage = memory_table()
    insert(writer(storage), storage, "month=1", "a")
    holder, tx = writer(storage, CALM).begin("UPSERT"), writer(storage, CALM).begin("UPSERT")
    holder.claim([GROUP])
    with pytest.raises(EarlyConflictError):
        tx.claim([GROUP])
    holder.abort()
    tx.commit([put_file(tx, storage, "month=1", "a")])
    assert rejected_instants(storage) == []
    assert writer(storage).why_rejected(tx.instant).outcome is Outcome.COMMITTED


def test_a_transaction_that_another_process_of_its_job_committed_leaves_no_record():
    storage = memory_table()
    insert(writer(storage), storage, "month=1", "a")
    holder, detached = writer(storage, CALM).begin("UPSERT"), writer(storage, CALM).begin("UPSERT").detach()
    one, two = writer(storage, CALM).adopt(detached), writer(storage, CALM).adopt(detached)
    holder.claim([GROUP])
    with pytest.raises(EarlyConflictError):
        two.claim([GROUP])
    holder.abort()
    one.commit([put_file(one, storage, "month=2", "b")])
    two.abort("it met another")
    assert two.state is TransactionState.COMMITTED and rejected_instants(storage) == []


def test_the_timeline_has_the_last_word_on_what_became_of_an_instant():
    storage = memory_table()
    done = insert(writer(storage), storage, "month=1", "a").instant
    write_rejection(storage, Rejection(done, "UPSERT", ME, 1, "why"))
    found = writer(storage).why_rejected(done)
    assert found.outcome is Outcome.COMMITTED and found.rejection is None


def test_a_rejected_transaction_whose_files_could_not_be_removed_yet_says_so():
    inner = memory_table()
    storage = FaultyStorage(inner)
    storage.plan = [Rule("delete", "month=1/*", None, Fault.FAIL)]
    _, tx, _ = late(storage)
    found = writer(inner).why_rejected(tx.instant)
    assert found.outcome is Outcome.REJECTED and found.rejection is not None and "not removed yet" in found.detail


def test_the_record_is_the_last_request_of_a_rejection():
    storage = CountingStorage(memory_table())
    _, tx, _ = late(storage)
    assert storage.calls[-1] == ("put", layout.rejection(tx.instant))


def test_a_record_names_the_partition_of_a_row_and_not_the_row():
    storage = memory_table()
    tx = writer(storage, CALM).begin("INSERT")
    tx.reads(ScriptedRead(["theirs"]))
    mine = put_file(tx, storage, "month=2", "mine")
    insert(writer(storage), storage, "month=1", "theirs")
    with pytest.raises(ConflictError, match="a row of theirs") as caught:
        tx.commit([mine])
    record = read_rejection(storage, tx.instant)
    assert record is not None and record.conflict.overlap == ("month=1",) and caught.value.conflict.within == ("month=1",)
    assert b"a row of theirs" not in storage.get(layout.rejection(tx.instant)).data


def test_a_record_keeps_the_level_and_what_passes_at_a_weaker_one():
    storage = memory_table()
    delta = replace(CALM, concurrency=ConcurrencySettings(profile="delta"))
    tx = writer(storage, delta).begin("INSERT")
    tx.reads(WholeTable())
    mine = put_file(tx, storage, "month=2", "mine")
    insert(writer(storage), storage, "month=1", "theirs")
    with pytest.raises(ConcurrentAppendException) as caught:
        tx.commit([mine])
    record = read_rejection(storage, tx.instant)
    assert record is not None and record.explanation == caught.value.explanation
    assert (record.conflict.profile, record.conflict.level, record.conflict.passes_at) == (
        "delta",
        "Serializable",
        "WriteSerializable",
    )


def test_a_transaction_that_commits_or_is_aborted_leaves_no_record():
    storage = memory_table()
    insert(writer(storage), storage, "month=1", "a")
    writer(storage).begin("INSERT").abort()
    assert rejected_instants(storage) == []


@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.LOST_REPLY])
def test_a_record_that_cannot_be_written_changes_nothing_but_is_an_alert(fault):
    inner, heard = memory_table(), Recorder()
    storage = FaultyStorage(inner)
    storage.plan = [Rule("put", f"{layout.REJECTIONS}/*", None, fault)]
    error, tx, _ = late(storage, heard)
    assert type(error) is ConflictError and error.conflict.rule is ConflictRule.FILE_GROUP
    assert [e for e in heard.events if e.kind is EventKind.ALERT and "recorded" in str(e.facts["problem"])]
    assert groups(inner) == ["month=1/a"] and leftovers(inner) == []
    if fault is Fault.FAIL:
        found = writer(inner).why_rejected(tx.instant)
        assert found.rejection is None and found.outcome is Outcome.REJECTED and "no record" in found.detail


def test_the_record_is_written_after_the_lock_is_released():
    storage, held = memory_table(), []
    kinds = (EventKind.LOCKED, EventKind.CONFLICT)

    def listen(event):
        if event.kind in kinds:
            held.append((event.kind, rejected_instants(storage)))

    _, tx, _ = late(storage, listen)
    assert held[-1] == (EventKind.CONFLICT, []) and rejected_instants(storage) == [tx.instant]


def test_a_record_is_small_whatever_the_conflict():
    long = Party("1", "x" * 9_999, replace(ME, application="a" * 9_999, host="ü" * 9_999))
    conflict = Conflict.over(ConflictRule.KEY, long, long, [f"{n}" * 9_999 for n in range(9)], detail="d" * 99_999)
    data = Rejection.of(long, ME, 1, ConflictError(conflict)).to_bytes()
    assert len(data) < 8_000
    again = Rejection.from_bytes(data)
    assert again.conflict is not None and again.conflict.overlap_count == 9 and len(again.conflict.overlap) == 5


def test_upkeep_keeps_the_newest_records_of_the_last_days_and_a_dry_run_only_counts():
    storage = memory_table()
    mine = writer(storage)
    now_ms = mine.table.runtime.now_ms()
    old = [format_instant(now_ms - KEPT_DAYS * 86_400_000 - 1_000 - n) for n in range(3)]
    new = [format_instant(now_ms - 1_000 - n) for n in range(MOST_RECORDS + 2)]
    for instant in (*old, *new):
        write_rejection(storage, Rejection(instant, "UPSERT", ME, now_ms, "why"))
    assert mine.upkeep(dry_run=True).forgotten == 5
    assert len(rejected_instants(storage)) == MOST_RECORDS + 5
    assert mine.upkeep().forgotten == 5
    assert rejected_instants(storage) == new[:MOST_RECORDS]


def test_without_upkeep_writers_delete_old_records_when_they_collect_decisions():
    storage = memory_table()
    few = replace(QUICK, decisions=replace(QUICK.decisions, collect_above=2), upkeep=replace(QUICK.upkeep, auto=False))
    old = format_instant(writer(storage).table.runtime.now_ms() - 8 * 86_400_000)
    write_rejection(storage, Rejection(old, "UPSERT", ME, 1, "why"))
    for number in range(5):
        insert(writer(storage, few), storage, "month=1", f"f{number}")
    assert rejected_instants(storage) == []


def test_the_fate_of_an_instant_that_was_not_rejected_is_told_without_publishing_anything():
    storage = memory_table()
    done = insert(writer(storage), storage, "month=1", "a")
    assert writer(storage).why_rejected(done.instant).outcome is Outcome.COMMITTED
    tx = writer(storage).begin("INSERT")
    assert writer(storage).why_rejected(tx.instant).outcome is Outcome.PENDING
    tx.abort()
    never = writer(storage).why_rejected("20200101000000000")
    assert never.outcome is Outcome.REJECTED and "no record" in never.detail


def test_a_record_that_is_no_record_is_a_clear_error():
    storage = memory_table()
    storage.put(layout.rejection("20200101000000000"), b"junk")
    with pytest.raises(CorruptTableError, match="not a record of a rejection"):
        writer(storage).why_rejected("20200101000000000")


def test_each_attempt_of_a_retried_write_leaves_its_own_record():
    storage = memory_table()
    one = [late(storage)[1].instant for _ in range(1)]
    settings = replace(QUICK, concurrency=ConcurrencySettings(early_conflict_detection=False))
    tx, other = writer(storage, settings).begin("UPSERT"), writer(storage).begin("UPSERT")
    stat = put_file(tx, storage, "month=1", "a", token="1-1-1")
    other.commit([put_file(other, storage, "month=1", "a")])
    with pytest.raises(ConflictError):
        tx.commit([stat])
    assert rejected_instants(storage) == [tx.instant, *one]
    assert json.loads(json.dumps(writer(storage).why_rejected(tx.instant).as_dict()))["rejection"]["instant"] == tx.instant
