"""Commits that are published or rolled back by others while a process looks whether they are void."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from tests.api import ArrowEngine, layout, read_timeline
from tests.behaviour.foreign import Peer
from tests.behaviour.simulated_time.writers import writer
from tests.behaviour.tables import QUICK, put_file
from tests.behaviour.tables import writer as writer_of
from tests.behaviour.test_group_inserts import crowded, rows
from tests.faulty_storage import FaultyStorage, Rule

from lakelock.errors import CommitOutcomeUnknown, RolledBackError
from lakelock.settings import CleanSettings
from lakelock.testing import ManualRuntime

EAGER = replace(QUICK, clean=CleanSettings(policy="KEEP_LATEST_COMMITS", keep_commits=1, readers_s=0))


def missing(storage, runtime):
    return [file.key for file in writer(storage, runtime).snapshot().files if storage.get(file.key) is None]


def rewritten_and_cleaned(storage, runtime) -> None:
    """Others publish what is decided, rewrite one of its two groups, and remove the file that it had there."""
    runtime.advance(60)  # the lock is free
    for _ in range(3):
        with writer(storage, runtime, EAGER).begin("UPSERT") as theirs:
            theirs.commit([put_file(theirs, storage, "month=1", "a")])
        runtime.advance(5)
    writer(storage, runtime, EAGER).clean()
    assert not missing(storage, runtime)


def test_files_that_a_cleaner_removed_since_do_not_make_a_published_commit_void(storage, runtime):
    """A reaper is about to publish for a dead writer, and stands still before it looks for the commit's files."""
    tx = writer(dying := FaultyStorage(storage), runtime).begin("INSERT")
    stats = [put_file(tx, storage, "month=1", "a"), put_file(tx, storage, "month=2", "b")]
    dying.plan = [Rule(op="put_if_absent", key=f"{layout.TIMELINE}/*.commit", nth=None)]
    with pytest.raises(CommitOutcomeUnknown):
        tx.commit(stats)
    runtime.stop_repeating()
    runtime.advance(30)
    between = [Rule(op="open_input", key="month=1/a*", fault=None, meanwhile=lambda: rewritten_and_cleaned(storage, runtime))]
    writer(FaultyStorage(storage, between), ManualRuntime(seed=9)).reap()
    assert missing(storage, runtime) == []
    assert len(writer(storage, runtime).snapshot().files) == 2


def test_a_commit_that_others_have_published_and_cleaned_is_not_told_as_rolled_back(storage, runtime):
    """Beside another engine a writer looks for its files after its decision, and stands still before that."""
    slow = FaultyStorage(storage)
    coordinator = writer(slow, ManualRuntime(seed=9))
    coordinator.table.observed.met_foreign()
    others = [Rule(op="open_input", key="month=1/a*", fault=None, meanwhile=lambda: rewritten_and_cleaned(storage, runtime))]
    with coordinator.begin("INSERT") as tx:
        stats = [put_file(tx, storage, "month=1", "a"), put_file(tx, storage, "month=2", "b")]
        slow.plan = others
        try:
            tx.commit(stats)
            told = True
        except RolledBackError:
            told = False
    assert told is ("b" in [file.file_id for file in writer(storage, runtime).snapshot().files])


def test_a_member_is_told_of_its_commit_although_no_look_for_another_engine_is_answered(storage, monkeypatch):
    """Another takes its rows along; once it knows that they are committed, storage falls silent."""
    member_storage = FaultyStorage(storage)
    member, leader = crowded(member_storage, "member"), crowded(storage, "leader")
    known = member.coordinator.outcome

    def outcome(instant):
        found = known(instant)
        member_storage.plan = [Rule(op="list", key=f"{layout.TIMELINE}*", nth=None)]
        return found

    def meanwhile():
        assert len(leader.insert(rows("1")).instant) == 17
        member.coordinator.table.observed.met_foreign()
        monkeypatch.setattr(member.coordinator, "outcome", outcome)

    member_storage.plan = [Rule(op="list", key=f"{layout.OFFERS}*", fault=None, meanwhile=meanwhile)]
    mine = rows("1", 2)
    assert member.insert(mine).rows_inserted == 2
    assert member_storage.plan[0].op == "list"
    assert set(mine["id"].to_pylist()) <= set(ArrowEngine(writer_of(storage)).read()["id"].to_pylist())


def test_a_member_is_not_told_of_a_commit_that_java_has_rolled_back_before_it_was_visible(storage):
    """Its leader died between decision and publication; Java, by its rules, rolled that back; another has committed since."""
    leader_storage, member_storage = FaultyStorage(storage), FaultyStorage(storage)
    leader, member = crowded(leader_storage, "leader"), crowded(member_storage, "member")
    other = crowded(storage, "other")

    def meanwhile():
        leader_storage.plan = [Rule(op="put_if_absent", key=f"{layout.TIMELINE}/*.commit", nth=None)]
        with suppress(CommitOutcomeUnknown):
            leader.insert(rows("1"))
        (dead,) = read_timeline(storage).pending
        assert other.coordinator.table.log.look().decisions[-1].instant == dead.requested
        Peer(storage).roll_back(dead.requested)
        other.upsert(rows("1"))

    member_storage.plan = [Rule(op="list", key=f"{layout.OFFERS}*", fault=None, meanwhile=meanwhile)]
    mine = rows("1", 2)
    try:
        member.insert(mine)
        told = True
    except RolledBackError:
        told = False
    there = set(ArrowEngine(writer_of(storage)).read()["id"].to_pylist())
    assert (set(mine["id"].to_pylist()) <= there) is told
