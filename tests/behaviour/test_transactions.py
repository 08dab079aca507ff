"""What a transaction promises, on the real engine over memory and local disk."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.api import (
    AppTransaction,
    ConflictRule,
    LocalStorage,
    MemoryStorage,
    Outcome,
    Storage,
    SystemRuntime,
    WriteRequest,
    layout,
    with_retries,
)
from tests.behaviour.tables import (
    HUDI,
    QUICK,
    Recorder,
    ScriptedRead,
    groups,
    insert,
    leftovers,
    new_table,
    put_file,
    visible,
    writer,
)
from tests.faulty_storage import FaultyStorage, Rule

from lakelock.errors import (
    ConflictError,
    EarlyConflictError,
    ProviderMismatch,
    RolledBackError,
    TableError,
    TransactionStateError,
)
from lakelock.occ.footprint import ReadKind, WholeTable
from lakelock.occ.rules import PROFILES
from lakelock.settings import ConcurrencySettings, RetrySettings, Settings
from lakelock.table.properties import COPY_ON_WRITE, MERGE_ON_READ
from lakelock.testing import ManualRuntime


@pytest.fixture(params=["memory", "local", "merge-on-read"])
def storage(request: pytest.FixtureRequest, tmp_path) -> Storage:
    made = LocalStorage(str(tmp_path / "t")) if request.param == "local" else MemoryStorage()
    new_table(made, table_type=MERGE_ON_READ if request.param == "merge-on-read" else COPY_ON_WRITE)
    return made


def test_a_committed_transaction_is_visible_and_leaves_nothing_behind(storage):
    done = insert(writer(storage), storage, "month=1", "a")
    assert visible(storage) == [f"month=1/a@{done.instant}"]
    assert done.decision == 1 and done.completion > done.instant and done.rows_inserted == 1
    assert leftovers(storage) == []


def test_an_uncommitted_transaction_is_invisible_and_an_aborted_one_leaves_nothing(storage):
    with writer(storage).begin("INSERT") as tx:
        put_file(tx, storage, "month=1", "a")
        assert visible(storage) == []
    assert visible(storage) == [] and leftovers(storage) == []
    with pytest.raises(TransactionStateError):
        tx.commit([])


def test_blind_inserts_never_conflict(storage):
    one, two = writer(storage).begin("INSERT"), writer(storage).begin("INSERT")
    stats = put_file(one, storage, "month=1", "a"), put_file(two, storage, "month=1", "b")
    two.commit([stats[1]])
    one.commit([stats[0]])
    assert groups(storage) == ["month=1/a", "month=1/b"]


def test_of_two_writers_of_one_file_group_the_second_is_rejected_with_both_sides_named(storage):
    insert(writer(storage), storage, "month=1", "a")
    one, two = writer(storage, name="first").begin("UPSERT"), writer(storage, name="second").begin("UPSERT")
    stats = put_file(one, storage, "month=1", "a", token="0-1-0"), put_file(two, storage, "month=1", "a", token="0-2-0")
    won = one.commit([stats[0]])
    with pytest.raises(ConflictError) as caught:
        two.commit([stats[1]])
    conflict = caught.value.conflict
    assert conflict.rule is ConflictRule.FILE_GROUP and conflict.overlap == ("month=1/a",) and not conflict.early
    assert conflict.mine.writer.application == "second" and conflict.other.writer.application == "first"
    assert conflict.other.instant == won.instant and conflict.retry_helps
    assert visible(storage) == [f"month=1/a@{won.instant}"] and leftovers(storage) == []


def test_writers_of_different_file_groups_all_commit(storage):
    for file_id in "ab":
        insert(writer(storage), storage, "month=1", file_id)
    one, two = writer(storage).begin("UPSERT"), writer(storage).begin("UPSERT")
    stats = put_file(one, storage, "month=1", "a"), put_file(two, storage, "month=1", "b")
    one.commit([stats[0]])
    two.commit([stats[1]])
    assert visible(storage) == [f"month=1/a@{one.instant}", f"month=1/b@{two.instant}"]


def test_a_claimed_file_group_is_an_early_conflict_for_the_next_writer(storage):
    insert(writer(storage), storage, "month=1", "a")
    group = writer(storage).snapshot().files[0].group
    one, two = writer(storage, name="first").begin("UPSERT"), writer(storage, name="second").begin("UPSERT")
    one.claim([group])
    with pytest.raises(EarlyConflictError) as caught:
        two.claim([group])
    conflict = caught.value.conflict
    assert conflict.early and conflict.other.instant == one.instant and conflict.other.writer.application == "first"
    two.abort()
    one.commit([put_file(one, storage, "month=1", "a")])
    assert leftovers(storage) == []


def test_a_file_group_that_was_rewritten_since_the_baseline_is_an_early_conflict_although_its_claim_is_gone(storage):
    insert(writer(storage), storage, "month=1", "a")
    late = writer(storage).begin("UPSERT")
    with writer(storage).begin("UPSERT") as quick:
        quick.claim([late.snapshot().files[0].group])
        quick.commit([put_file(quick, storage, "month=1", "a")])
    with pytest.raises(EarlyConflictError):
        late.claim([late.snapshot().files[0].group])
    late.abort()


@pytest.mark.parametrize("matches", [True, False])
def test_an_erasure_meets_an_append_only_where_an_appended_row_matches(storage, matches):
    insert(writer(storage), storage, "month=1", "a")
    erasure = writer(storage).begin("DELETE")
    read = ScriptedRead({"b"} if matches else {"x"})
    erasure.reads(read)
    insert(writer(storage), storage, "month=1", "b")
    stat = put_file(erasure, storage, "month=1", "a")
    if matches:
        with pytest.raises(ConflictError) as caught:
            erasure.commit([stat])
        assert caught.value.conflict.rule is ConflictRule.APPEND
    else:
        erasure.commit([stat])
    assert read.looked_at == ["b"]


def test_an_append_to_a_partition_that_a_read_does_not_concern_needs_no_look(storage):
    tx = writer(storage).begin("DELETE")
    read = ScriptedRead({"b"}, partitions=["month=2"])
    tx.reads(read)
    insert(writer(storage), storage, "month=1", "b")
    tx.commit([])
    assert read.looked_at == []


def test_two_upserts_of_one_new_key_cannot_both_insert_it(storage):
    one, two = writer(storage).begin("UPSERT"), writer(storage).begin("UPSERT")
    one.reads(ScriptedRead({"b"}, kind=ReadKind.KEYS))
    two.reads(ScriptedRead({"a"}, kind=ReadKind.KEYS))
    stats = put_file(one, storage, "month=1", "a"), put_file(two, storage, "month=1", "b")
    one.commit([stats[0]])
    with pytest.raises(ConflictError) as caught:
        two.commit([stats[1]])
    assert caught.value.conflict.rule is ConflictRule.KEY
    assert groups(storage) == ["month=1/a"]


def test_a_transaction_that_read_what_another_changed_is_rejected(storage):
    insert(writer(storage), storage, "month=1", "a")
    insert(writer(storage), storage, "month=1", "b")
    reader = writer(storage).begin("UPSERT")
    reader.reads(ScriptedRead({"a"}))
    with writer(storage).begin("UPSERT") as other:
        other.commit([put_file(other, storage, "month=1", "a")])
    with pytest.raises(ConflictError) as caught:
        reader.commit([put_file(reader, storage, "month=1", "b")])
    assert caught.value.conflict.rule is ConflictRule.DELETE_READ


def test_write_skew_is_rejected(storage):
    for file_id in "ab":
        insert(writer(storage), storage, "month=1", file_id)
    one, two = writer(storage).begin("UPSERT"), writer(storage).begin("UPSERT")
    for tx in (one, two):
        tx.reads(WholeTable())
    stats = put_file(one, storage, "month=1", "a"), put_file(two, storage, "month=1", "b")
    one.commit([stats[0]])
    with pytest.raises(ConflictError):
        two.commit([stats[1]])


def test_the_hudi_profile_compares_file_groups_only(storage):
    tx = writer(storage, HUDI).begin("UPSERT")
    tx.reads(WholeTable())
    insert(writer(storage, HUDI), storage, "month=1", "b")
    tx.commit([])


def adding_and_overwriting(storage):
    """Two transactions of one partition, both with their files written; and what commits each of them."""
    insert(writer(storage), storage, "month=1", "a")
    adding, replacing = writer(storage).begin("UPSERT"), writer(storage).begin("INSERT_OVERWRITE")
    added = put_file(adding, storage, "month=1", "b")
    replacing.overwrites(["month=1"])
    fresh = put_file(replacing, storage, "month=1", "c")
    return adding, lambda: adding.commit([added]), lambda: replacing.commit([fresh], replaced={"month=1": ["a"]})


def test_an_overwrite_is_rejected_when_somebody_added_to_its_partition_meanwhile(storage):
    _, add, overwrite = adding_and_overwriting(storage)
    add()
    with pytest.raises(ConflictError) as caught:
        overwrite()
    assert caught.value.conflict.rule is ConflictRule.PARTITION_OVERWRITE
    assert groups(storage) == ["month=1/a", "month=1/b"]


def test_rows_that_are_added_blindly_after_an_overwrite_of_their_partition_stand_beside_what_it_left(storage):
    _, add, overwrite = adding_and_overwriting(storage)
    overwrite()
    add()
    assert groups(storage) == ["month=1/b", "month=1/c"]


@pytest.mark.parametrize(
    ("sees", "rule"), [("a", ConflictRule.KEY), ("c", ConflictRule.KEY), ("neither", None)], ids=["before", "after", "never"]
)
def test_an_upsert_of_new_keys_after_an_overwrite_is_rejected_only_if_one_of_them_was_or_is_there(storage, sees, rule):
    adding, add, overwrite = adding_and_overwriting(storage)
    adding.reads(ScriptedRead({sees}, {"month=1"}, ReadKind.KEYS))
    overwrite()
    if rule is None:
        add()
        assert groups(storage) == ["month=1/b", "month=1/c"]
        return
    with pytest.raises(ConflictError) as caught:
        add()
    assert caught.value.conflict.rule is rule and groups(storage) == ["month=1/c"]


def test_a_retry_runs_the_work_again_on_the_new_state(storage):
    insert(writer(storage), storage, "month=1", "a")
    seen, mine = [], writer(storage)

    def work(tx):
        seen.append(tx.snapshot().files[0].instant)
        if len(seen) == 1:
            with writer(storage).begin("UPSERT") as other:
                other.commit([put_file(other, storage, "month=1", "a")])
        return tx.commit([put_file(tx, storage, "month=1", "a")])

    done = with_retries(mine, "UPSERT", work)
    assert done.attempts == 2 and len(done.conflicts) == 1 and seen[0] != seen[1]
    assert leftovers(storage) == []


def test_an_application_version_is_applied_once_also_when_others_commit_in_between(storage):
    mine = writer(storage)

    def work(tx):
        return tx.commit([put_file(tx, storage, "month=1", f"f{tx.instant}")])

    first = with_retries(mine, WriteRequest("INSERT", application=AppTransaction("stream", 7)), work)
    insert(writer(storage), storage, "month=1", "b")
    again = with_retries(writer(storage), WriteRequest("INSERT", application=AppTransaction("stream", 7)), work)
    older = with_retries(writer(storage), WriteRequest("INSERT", application=AppTransaction("stream", 6)), work)
    assert again.already_applied and older.already_applied and again.instant == first.instant
    assert len(groups(storage)) == 2


def test_of_two_live_runs_of_one_application_version_only_one_commits(storage):
    one = writer(storage).begin(WriteRequest("INSERT", application=AppTransaction("stream", 1)))
    two = writer(storage).begin(WriteRequest("INSERT", application=AppTransaction("stream", 1)))
    stats = put_file(one, storage, "month=1", "a"), put_file(two, storage, "month=1", "b")
    one.commit([stats[0]])
    with pytest.raises(ConflictError) as caught:
        two.commit([stats[1]])
    assert caught.value.conflict.rule is ConflictRule.APPLICATION_TRANSACTION


def test_a_version_that_is_applied_cannot_be_begun_again_whoever_asks(storage):
    one = writer(storage)

    def insert_as(application):
        return one.begin(WriteRequest("INSERT", application=application))

    with insert_as(AppTransaction("job", 7)) as tx:
        done = tx.commit([put_file(tx, storage, "month=1", "a")])
    insert(writer(storage), storage, "month=1", "b")
    for applied in (7, 6):
        with pytest.raises(ConflictError) as caught:
            writer(storage).begin(WriteRequest("DELETE", application=AppTransaction("job", applied)))
        conflict = caught.value.conflict
        assert conflict.rule is ConflictRule.APPLICATION_TRANSACTION and conflict.other.instant == done.instant
        assert not conflict.retry_helps
    assert leftovers(storage) == []
    insert_as(AppTransaction("job", 8)).abort()
    insert_as(AppTransaction("another", 7)).abort()


def test_a_version_that_only_the_committing_process_knows_is_applied_once(storage):
    def relayed(group):
        begun = writer(storage).begin("INSERT")
        return put_file(begun, storage, "month=1", group), begun.detach()

    def commit(stat, begun):
        with writer(storage).adopt(replace(begun, application=AppTransaction("query", 3))) as tx:
            tx.commit([stat])

    commit(*relayed("a"))
    with pytest.raises(ConflictError, match="application-transaction"):
        commit(*relayed("b"))
    assert groups(storage) == ["month=1/a"] and leftovers(storage) == []


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_in_every_profile_the_slower_of_two_runs_of_a_version_does_nothing(storage, profile):
    settings = Settings(concurrency=ConcurrencySettings(profile=profile), retry=RetrySettings(attempts=1))
    mine, job = writer(storage, settings=settings), AppTransaction("job", 1)
    faster = []

    def work(tx):
        with writer(storage).begin(WriteRequest("INSERT", application=job)) as other:
            faster.append(other.commit([put_file(other, storage, "month=1", "a")]))
        return tx.commit([put_file(tx, storage, "month=1", "b")])

    result = with_retries(mine, WriteRequest("INSERT", application=job), work)
    assert result.already_applied and (result.instant, result.completion) == (faster[0].instant, faster[0].completion)
    assert groups(storage) == ["month=1/a"] and leftovers(storage) == []


def test_files_of_failed_attempts_are_gone_before_the_commit_is_visible(storage):
    with writer(storage).begin("INSERT") as tx:
        put_file(tx, storage, "month=1", "a", token="0-1-0")
        good = put_file(tx, storage, "month=1", "a", token="0-1-1")
        tx.commit([good])
    assert [i.key for i in storage.list("month=1") if i.key.endswith(".parquet")] == [good.path]


@pytest.mark.waits
def test_a_writer_that_stopped_beating_is_rolled_back_by_the_next_and_cannot_commit(storage):
    asleep = ManualRuntime(start_ms=SystemRuntime().now_ms())
    sleeper = writer(storage, name="sleeper", runtime=asleep).begin("INSERT")
    stat = put_file(sleeper, storage, "month=1", "a")
    recorder = Recorder()
    other = writer(storage, listener=recorder, runtime=SystemRuntime())
    other.table.runtime.sleep(QUICK.heartbeat.interval_s * QUICK.heartbeat.tolerable_misses + 1.5)
    asleep.freeze(QUICK.heartbeat.interval_s * QUICK.heartbeat.tolerable_misses + 1.5)
    insert(other, storage, "month=1", "b")
    assert "rolled-back" in recorder.kinds()
    with pytest.raises(RolledBackError):
        sleeper.commit([stat])
    assert groups(storage) == ["month=1/b"] and leftovers(storage) == []


def test_a_decided_commit_whose_writer_died_is_published_by_the_next_writer(storage, monkeypatch):
    from lakelock.occ import commit

    def dies(*_args):
        raise KeyboardInterrupt

    dead = writer(storage, name="dead").begin("INSERT")
    stat = put_file(dead, storage, "month=1", "a")
    monkeypatch.setattr(commit, "publish", dies)
    monkeypatch.setattr(type(dead), "abort", lambda self, reason="": None)
    with pytest.raises(KeyboardInterrupt):
        dead.commit([stat])
    monkeypatch.undo()
    assert visible(storage) == []
    recorder = Recorder()
    done = insert(writer(storage, listener=recorder), storage, "month=1", "b")
    assert done.decision == 2 and "finished-for-another" in recorder.kinds()
    assert groups(storage) == ["month=1/a", "month=1/b"]
    assert writer(storage).outcome(dead.instant) is Outcome.COMMITTED


def test_a_lock_that_grants_everybody_still_loses_no_update(storage, monkeypatch):
    from contextlib import contextmanager

    from lakelock.occ.open_table import HeldLock, OpenTable

    @contextmanager
    def everybody(self, instant="", operation="", meanwhile=(), wait_s=None):
        held = HeldLock(answers=tuple(call() for call in meanwhile), undisturbed=False)
        yield held
        for call in held.at_release:
            call()

    monkeypatch.setattr(OpenTable, "holding", everybody)
    insert(writer(storage), storage, "month=1", "a")
    slow = FaultyStorage(storage)
    one, two = writer(storage).begin("UPSERT"), writer(slow).begin("UPSERT")
    stats = put_file(one, storage, "month=1", "a", token="0-1-0"), put_file(two, storage, "month=1", "a", token="0-2-0")
    overtaken = Rule(op="put_if_absent", key=f"{layout.DECISIONS}/*", fault=None, meanwhile=lambda: one.commit([stats[0]]))
    slow.plan = [overtaken]
    with pytest.raises(ConflictError):
        two.commit([stats[1]])
    assert visible(storage) == [f"month=1/a@{one.instant}"]


def test_two_writers_with_different_lock_providers_are_refused(storage):
    from dataclasses import replace

    insert(writer(storage), storage, "month=1", "a")
    other = writer(storage, replace(QUICK, lock=replace(QUICK.lock, provider="memory:")))
    with pytest.raises(ProviderMismatch) as caught:
        other.begin("INSERT")
    assert "storage:" in str(caught.value) and "memory:" in str(caught.value)


def test_old_decisions_are_collected_and_writers_go_on(storage):
    from dataclasses import replace

    settings = replace(QUICK, decisions=replace(QUICK.decisions, collect_above=4))
    mine = writer(storage, settings)
    for n in range(12):
        insert(mine, storage, "month=1", f"f{n}")
    left = [i.key for i in storage.list(".hoodie/.lakelock/decisions")]
    assert len(left) < 8 and len(groups(storage)) == 12
    assert insert(writer(storage), storage, "month=1", "last").decision == 13


@pytest.mark.parametrize("others", [0, 1, 20])
def test_a_table_that_was_made_anew_is_not_written_by_those_who_had_the_old_one_open(storage, others):
    from dataclasses import replace

    settings = replace(QUICK, decisions=replace(QUICK.decisions, collect_above=4))
    mine = writer(storage, settings)
    for n in range(12):
        insert(mine, storage, "month=1", f"f{n}")
    assert mine.table.log.boundary() > 0
    storage.delete_folder(layout.HOODIE)
    storage.delete([item.key for item in storage.list("")])
    anew = LocalStorage(storage.root) if isinstance(storage, LocalStorage) else storage
    new_table(anew)
    for n in range(others):
        insert(writer(anew), anew, "month=1", f"g{n}")
    with pytest.raises(TableError, match="made anew"):
        insert(mine, storage, "month=1", "mine")
    assert insert(writer(anew), anew, "month=1", "last").decision == others + 1
    assert len(groups(anew)) == others + 1


def test_decisions_that_a_live_transaction_may_need_are_not_collected(storage):
    old = writer(storage).begin("INSERT")
    stat = put_file(old, storage, "month=1", "old")
    mine = writer(storage)
    for n in range(6):
        insert(mine, storage, "month=1", f"f{n}")
    assert mine.collect() == 0
    assert old.commit([stat]).decision == 7


def test_an_instant_never_builds_on_a_newer_one_when_the_clock_is_behind(storage):
    class Behind(type(writer(storage).table.runtime)):
        def now_ms(self):
            return super().now_ms() - 3_600_000

    done = insert(writer(storage), storage, "month=1", "a")
    from tests.api import Coordinator, StorageLocation

    late = Coordinator.open(StorageLocation(storage.uri), QUICK, runtime=Behind(), storage=storage)
    after = insert(late, storage, "month=1", "b")
    assert after.instant > done.completion and after.completion > after.instant


def test_a_transaction_can_go_on_in_another_process_of_the_job(storage):
    import pickle

    begun = writer(storage).begin("INSERT")
    moved = pickle.loads(pickle.dumps(begun.detach()))
    with pytest.raises(TransactionStateError):
        begun.commit([])
    with writer(storage).adopt(moved) as tx:
        tx.commit([put_file(tx, storage, "month=1", "a")])
    assert groups(storage) == ["month=1/a"] and leftovers(storage) == []
    with pytest.raises(RolledBackError):
        writer(storage).adopt(moved)
