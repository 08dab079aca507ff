"""Another Hudi engine works on the table while a transaction runs: what collides is rejected, and nothing else is."""

from __future__ import annotations

import pytest
from tests.api import (
    Action,
    ConflictRule,
    Coordinator,
    FileGroupId,
    MemoryStorage,
    StorageLocation,
    SystemRuntime,
    Timeline,
    format_instant,
    layout,
)
from tests.behaviour.foreign import Peer
from tests.behaviour.tables import (
    HUDI,
    QUICK,
    ScriptedRead,
    groups,
    insert,
    leftovers,
    new_table,
    put_file,
    visible,
    writer,
)

from lakelock.errors import ConflictError, RolledBackError, TableError
from lakelock.settings import ListingSettings, Settings
from lakelock.testing import ManualRuntime

A, B = FileGroupId("month=1", "a"), FileGroupId("month=1", "b")


@pytest.fixture
def storage() -> MemoryStorage:
    return two_groups()


def two_groups() -> MemoryStorage:
    made = MemoryStorage()
    new_table(made)
    for file_id in "ab":
        insert(writer(made), made, "month=1", file_id)
    return made


@pytest.fixture
def peer(storage) -> Peer:
    return Peer(storage)


def rewrite(storage, settings=QUICK, file_id="a"):
    """A transaction that has written the next slice of a file group, and its stats."""
    tx = writer(storage, settings).begin("UPSERT")
    return tx, [put_file(tx, storage, "month=1", file_id)]


def check_rejected(storage, tx, stats, rule) -> None:
    with pytest.raises(ConflictError) as caught:
        tx.commit(stats)
    assert caught.value.conflict.rule is rule
    assert not any(tx.instant in name for name in visible(storage))
    assert [name for name in leftovers(storage) if tx.instant in name] == []


@pytest.mark.parametrize("settings", [QUICK, HUDI], ids=["strict", "hudi"])
def test_a_file_group_that_a_peer_rewrote_meanwhile_rejects_and_another_does_not(storage, peer, settings):
    tx, stats = rewrite(storage, settings)
    peer.commit("month=1", "b")
    tx.commit(stats)
    tx, stats = rewrite(storage, settings)
    peer.commit("month=1", "a")
    check_rejected(storage, tx, stats, ConflictRule.FILE_GROUP)


def test_one_file_id_in_two_partitions_is_no_conflict(storage, peer):
    peer.commit("month=2", "a")
    tx, stats = rewrite(storage)
    peer.commit("month=2", "a")
    tx.commit(stats)
    assert f"month=1/a@{tx.instant}" in visible(storage)


def test_what_was_pending_at_the_beginning_and_completed_later_rejects(storage, peer):
    pending = peer.begin()
    stat = peer.write(pending, "month=1", "a")
    tx, stats = rewrite(storage)
    peer.complete(pending, [stat])
    check_rejected(storage, tx, stats, ConflictRule.FILE_GROUP)


def test_what_completed_before_the_beginning_rejects_nothing(storage, peer):
    peer.commit("month=1", "a")
    tx, stats = rewrite(storage)
    tx.commit(stats)
    assert f"month=1/a@{tx.instant}" in visible(storage)


def test_what_is_requested_meanwhile_and_not_completed_rejects_nothing(storage, peer):
    tx, stats = rewrite(storage)
    peer.begin()
    tx.commit(stats)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_pending_clustering_plan_of_any_age_rejects_a_writer_that_rewrites_its_file_groups(storage, peer, when):
    if when == "before":
        peer.plan_clustering(A)
    tx, stats = rewrite(storage)
    if when == "after":
        peer.plan_clustering(A)
    other, others_stats = rewrite(storage, file_id="b")
    check_rejected(storage, tx, stats, ConflictRule.PENDING_TABLE_SERVICE)
    other.commit(others_stats)


def test_a_pending_clustering_plan_lets_inserts_through(storage, peer):
    peer.plan_clustering(A, B)
    insert(writer(storage), storage, "month=1", "c")
    assert "month=1/c" in groups(storage)


def test_a_pending_clustering_plan_rejects_an_overwrite_of_its_partition(storage, peer):
    peer.plan_clustering(A)
    tx = writer(storage).begin("INSERT_OVERWRITE")
    tx.overwrites(["month=1"])
    stats = [put_file(tx, storage, "month=1", "z")]
    with pytest.raises(ConflictError) as caught:
        tx.commit(stats, replaced={"month=1": ["a", "b"]})
    assert caught.value.conflict.rule is ConflictRule.PENDING_TABLE_SERVICE


def test_clustering_that_was_executed_meanwhile_rejects_a_writer_that_rewrote_the_old_file_group(storage, peer):
    plan = peer.plan_clustering(A)
    tx, stats = rewrite(storage)
    peer.execute_clustering(plan, A, "new")
    check_rejected(storage, tx, stats, ConflictRule.FILE_GROUP)
    assert sorted(groups(storage)) == ["month=1/b", "month=1/new"]


def replace_both(peer, operation, stats=()):
    """A peer replaces both file groups of the partition by the group `z`, and completes what else it wrote."""
    instant = peer.begin(Action.REPLACE_COMMIT, plan=b"plan")
    written = [peer.write(instant, "month=1", file_id) for file_id in ("z", *stats)]
    peer.complete(instant, written, action=Action.REPLACE_COMMIT, operation=operation, replaced={"month=1": ("a", "b")})


def test_rows_added_to_a_partition_that_a_peer_overwrote_meanwhile_join_what_the_peer_left(storage, peer):
    tx = writer(storage).begin("INSERT")
    stats = [put_file(tx, storage, "month=1", "c")]
    replace_both(peer, "INSERT_OVERWRITE")
    tx.commit(stats)
    assert sorted(groups(storage)) == ["month=1/c", "month=1/z"]


def reading(storage, *sees):
    """A transaction that read rows of these file groups and adds to another partition."""
    tx = writer(storage).begin("UPSERT")
    tx.reads(ScriptedRead(sees))
    return tx, [put_file(tx, storage, "month=2", "sum")]


def test_a_read_beside_a_clustering_of_what_it_read_is_accepted(storage, peer):
    """It moves rows and changes none, so what was read is still true."""
    tx, stats = reading(storage, "a", "b", "z")
    replace_both(peer, "CLUSTER")
    tx.commit(stats)
    assert sorted(groups(storage)) == ["month=1/z", "month=2/sum"]


def test_a_read_beside_what_only_looks_like_a_clustering_is_rejected(storage, peer):
    tx, stats = reading(storage, "a")
    replace_both(peer, "INSERT_OVERWRITE")
    check_rejected(storage, tx, stats, ConflictRule.DELETE_READ)


def test_a_clustering_that_also_writes_the_next_slice_of_a_file_group_may_have_changed_rows(storage, peer):
    insert(writer(storage), storage, "month=1", "c")
    tx, stats = reading(storage, "c")
    replace_both(peer, "CLUSTER", stats=["c"])
    check_rejected(storage, tx, stats, ConflictRule.DELETE_READ)


@pytest.mark.parametrize("action", [Action.CLEAN, Action.SAVEPOINT])
def test_cleaning_and_savepoints_beside_a_transaction_change_nothing(storage, peer, action):
    tx, stats = rewrite(storage)
    peer.service(action)
    tx.commit(stats)
    assert f"month=1/a@{tx.instant}" in visible(storage)


def test_a_peer_that_rolls_back_eagerly_is_noticed_and_named(storage, peer):
    tx, stats = rewrite(storage)
    peer.roll_back_eagerly(tx.instant)
    with pytest.raises(RolledBackError, match="another Hudi writer") as caught:
        tx.commit(stats)
    assert "hoodie.clean.failed.writes.policy=LAZY" in caught.value.hint
    assert not any(tx.instant in name for name in visible(storage))


def test_a_metadata_table_that_is_not_there_stops_the_transaction_that_is_under_way(storage, peer):
    tx, stats = rewrite(storage)
    peer.change_properties(table__metadata__partitions="files")
    with pytest.raises(TableError, match="names a metadata table, and .hoodie/metadata has none"):
        tx.commit(stats)
    assert not any(tx.instant in name for name in visible(storage))


def test_an_index_that_a_peer_adds_to_the_metadata_table_stops_the_transaction_that_is_under_way(storage, peer):
    tx, stats = rewrite(storage)
    peer.change_properties(table__metadata__partitions="files,secondary_index_v")
    with pytest.raises(TableError, match="does not keep: secondary_index_v"):
        tx.commit(stats)
    with pytest.raises(TableError, match="does not keep: secondary_index_v"):
        writer(storage).begin("INSERT")
    assert not any(tx.instant in name for name in visible(storage))


@pytest.mark.parametrize(
    ("version", "layout", "option"),
    [("6", "1", "hoodie.write.auto.upgrade=true"), ("10", "2", "hoodie.write.auto.upgrade=false in every Hudi writer")],
)
def test_a_table_that_is_upgraded_or_downgraded_meanwhile_is_not_written(storage, peer, version, layout, option):
    tx, stats = rewrite(storage)
    peer.change_properties(table__version=version, timeline__layout__version=layout)
    with pytest.raises(TableError, match=f"table version {version}") as caught:
        tx.commit(stats)
    assert option in caught.value.hint


@pytest.mark.parametrize("change", [{"table__recordkey__fields": "id,month"}, {"table__version": "8"}])
def test_other_properties_that_change_meanwhile_reject(storage, peer, change):
    tx, stats = rewrite(storage)
    peer.change_properties(**change)
    check_rejected(storage, tx, stats, ConflictRule.PROTOCOL)


def test_what_was_pending_at_the_beginning_and_is_archived_at_the_end_cannot_be_judged(storage, peer):
    pending = peer.begin()
    stat = peer.write(pending, "month=1", "a")
    tx, stats = rewrite(storage)
    peer.complete(pending, [stat])
    peer.archive(pending)
    with pytest.raises(RolledBackError, match="has been archived since"):
        tx.commit(stats)


def test_what_was_archived_before_stays_visible_and_is_built_upon(storage, peer):
    old = [name.partition("@")[2] for name in visible(storage)]
    insert(writer(storage), storage, "month=2", "c")
    peer.archive(*old)
    assert sorted(groups(storage)) == ["month=1/a", "month=1/b", "month=2/c"]
    tx, stats = rewrite(storage)
    tx.commit(stats)
    assert f"month=1/a@{tx.instant}" in visible(storage)


def test_the_time_that_a_peer_has_requested_for_something_else_is_left_to_it(storage, peer):
    """Two actions of one time would be one instant to every reader, and what one of them commits would hide the other's."""
    runtime = ManualRuntime(start_ms=SystemRuntime().now_ms() + 3_600_000)
    first = format_instant(runtime.now_ms())
    peer.plan_clustering(B, instant=first)
    mine = Coordinator.open(StorageLocation(storage.uri), QUICK, runtime=runtime, storage=storage)
    with mine.begin("UPSERT") as tx:
        assert tx.instant > first
        tx.commit([put_file(tx, storage, "month=1", "a")])
    assert f"month=1/a@{tx.instant}" in visible(storage)


FOLLOWED = Settings(heartbeat=QUICK.heartbeat, lock=QUICK.lock, listing=ListingSettings(at_once=6))


@pytest.mark.parametrize("when", ["before the beginning", "afterwards"])
def test_the_first_commit_of_a_writer_whose_clock_is_slow_is_seen_at_once(storage, peer, when):
    """However long the timeline is, and however little of it is new."""
    mine = writer(storage, FOLLOWED)
    for number in range(20):
        insert(mine, storage, "month=2", f"f{number}")
    timeline = mine.table.timeline()
    slow = str(int(timeline.commits[4].requested) + 1)
    assert timeline.state_of(slow) is None
    if when == "before the beginning":
        peer.begin(instant=slow)
    tx = mine.begin("UPSERT")
    stats = [put_file(tx, storage, "month=1", "a")]
    if when == "afterwards":
        peer.begin(instant=slow)
    else:
        assert slow in {i.requested for i in tx.baseline.timeline.pending}
    peer.complete(slow, [peer.write(slow, "month=1", "a")])
    check_rejected(storage, tx, stats, ConflictRule.FILE_GROUP)


def test_what_is_restored_away_is_not_shown_any_more_however_old_it_is(storage):
    mine = writer(storage, FOLLOWED)
    for number in range(20):
        insert(mine, storage, "month=2", f"f{number}")
    gone = mine.table.timeline().commits[4]
    storage.delete(item.key for item in list(storage.list(layout.TIMELINE)) if f"/{gone.requested}" in item.key)
    assert mine.table.timeline() == Timeline.from_listing(storage.list(layout.TIMELINE))
    assert not mine.table.timeline().has_commit(gone.requested)
