"""Bugs of the decision log that the simulator found, each as small as it can be shown; the others are next door."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.api import Action, CommitMetadata, Transaction, layout, read_timeline
from tests.behaviour.simulated_time.writers import commit, writer
from tests.behaviour.tables import put_file
from tests.faulty_storage import Wrapped

from lakelock.errors import CommitOutcomeUnknown, LockTimeout, StorageUnavailable
from lakelock.occ.log import Decision, DecisionKind
from lakelock.occ.rollback import RollbackOutcome, RollbackTarget, roll_back
from lakelock.settings import Settings
from lakelock.table.instants import later_than


def roll_back_without_lock(storage, runtime, tx: Transaction) -> RollbackOutcome:
    """What the log promises, it promises whatever the lock does."""
    table = replace(writer(storage, runtime).table, provider=None)
    return roll_back(table, RollbackTarget(tx.instant, Action.COMMIT))


class Before(Wrapped):
    """Others do something just before one request is carried out, once."""

    def __init__(self, inner, op: str, key: str, meanwhile: Callable[[], None]) -> None:
        super().__init__(inner)
        self.op, self.key, self.meanwhile = op, key, meanwhile

    def carry(self, op, key, request, *, weight=1):
        if op == self.op and key == self.key and self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        return request()


class NeverPublishes(Wrapped):
    """The process ends between its decision and its publication."""

    def carry(self, op, key, request, *, weight=1):
        if key.startswith(layout.TIMELINE) and key.endswith(".commit"):
            raise StorageUnavailable("it is gone", hint="")
        return request()


def test_a_rollback_under_a_number_that_was_used_and_collected_does_not_count(storage, runtime):
    """Its target has committed under that number since it looked, and the record is gone."""
    target = writer(storage, runtime).begin("INSERT")

    def meanwhile() -> None:
        target.commit([put_file(target, storage, "month=1", "a")])
        for file_id in "bc":
            commit(storage, runtime, file_id)
        assert writer(storage, runtime).collect() == 2

    late = Before(storage, "put_if_absent", f"{layout.DECISIONS}/{1:020}", meanwhile)
    assert roll_back_without_lock(late, runtime, target) is RollbackOutcome.COMMITTED
    assert [file.key for file in writer(storage, runtime).snapshot().files if storage.get(file.key) is None] == []


def test_a_rollback_publishes_what_was_decided_since_it_listed_the_timeline(storage, runtime):
    """It took a commit that had begun and was decided meanwhile for one that somebody had rolled back."""
    decided = []

    def meanwhile() -> None:
        tx = writer(NeverPublishes(storage), runtime).begin("INSERT")
        decided.append(tx.instant)
        with pytest.raises(CommitOutcomeUnknown):
            tx.commit([put_file(tx, storage, "month=2", "a")])

    target = writer(storage, runtime).begin("INSERT")
    outcome = roll_back_without_lock(Before(storage, "list", layout.DECISIONS, meanwhile), runtime, target)
    assert outcome is RollbackOutcome.ROLLED_BACK
    assert [d.instant for d in writer(storage, runtime).table.log.peek(after=0)] == [*decided, target.instant]
    assert read_timeline(storage).completed_instants == set(decided)


def use_again(storage, runtime, **late) -> None:
    """Others publish and collect decision 1 once its writer counts as dead; then a late request uses the number again."""
    runtime.advance(30)
    for name in "bc":
        commit(storage, runtime, name)
    other = writer(storage, runtime)
    other.collect()
    assert other.table.log.boundary() >= 1
    record = Decision(number=1, action="commit", write_id="late", writer=other.table.writer, **late)
    assert storage.put_if_absent(layout.decision(1), record.to_bytes()) is not None


def test_a_rollback_is_not_misled_by_a_number_that_was_used_again(storage, runtime):
    """It listed the number, which was collected, and then read the late commit of its target there, whose files are gone."""
    commit(storage, runtime, "a")
    target = writer(storage, runtime).begin("INSERT")
    runtime.stop_repeating()

    def meanwhile() -> None:
        use_again(
            storage,
            runtime,
            kind=DecisionKind.COMMIT,
            instant=target.instant,
            operation="INSERT",
            completion=later_than(0, target.instant),
            payload=CommitMetadata({}, "INSERT", {}, None).to_bytes(),
        )

    outcome = roll_back_without_lock(Before(storage, "get", layout.decision(1), meanwhile), runtime, target)
    assert outcome is RollbackOutcome.GONE
    assert target.instant not in read_timeline(storage).completed_instants


class RepeatsLate(Wrapped):
    """A decision goes through, but its reply is lost: the client repeats it after `meanwhile`, and may miss one more reply."""

    def __init__(self, inner, meanwhile: Callable[[], None], *, answers: bool) -> None:
        super().__init__(inner)
        self.meanwhile, self.answers, self.is_silent = meanwhile, answers, False

    def carry(self, op, key, request, *, weight=1):
        if self.is_silent and (op, key) == ("list", layout.TIMELINE):
            self.is_silent = False
            raise StorageUnavailable("no answer", hint="")
        if (op, key) == ("put_if_absent", layout.decision(1)):
            request()
            self.meanwhile()
            self.is_silent = not self.answers
        return request()


@pytest.mark.parametrize("answers", [True, False], ids=["storage answers", "storage is silent once"])
def test_a_number_that_is_anothers_may_have_been_ones_own_before(storage, runtime, answers):
    """Its commit was visible and its number collected, when a late request used that again. It was told *rejected*."""

    def meanwhile() -> None:
        runtime.stop_repeating()
        use_again(storage, runtime, kind=DecisionKind.ROLLBACK, instant=later_than(0, tx.instant), operation="ROLLBACK")

    tx = writer(RepeatsLate(storage, meanwhile, answers=answers), runtime).begin("INSERT")
    stats = [put_file(tx, storage, "month=1", "a")]
    if answers:
        assert tx.commit(stats).instant == tx.instant
    else:
        with pytest.raises(CommitOutcomeUnknown):
            tx.commit(stats)
    assert tx.instant in read_timeline(storage).completed_instants
    assert all(storage.get(stat.path) is not None for stat in stats if stat.path)


class Deletes(Wrapped):
    """Notes what is deleted."""

    def __init__(self, inner) -> None:
        super().__init__(inner)
        self.keys: list[str] = []

    def carry(self, op, key, request, *, weight=1):
        if op == "delete":
            self.keys.append(key)
        return request()


def test_a_writer_that_waits_in_vain_to_publish_for_others_gives_up_its_instant_once(storage, runtime):
    """It removed it again after the wait, when somebody else had taken the same time."""
    with pytest.raises(CommitOutcomeUnknown):
        commit(NeverPublishes(storage), runtime, "a")
    holder = writer(storage, runtime).table.provider
    assert holder is not None
    lease = holder.acquire(wait_s=1)
    deletes = Deletes(storage)
    with pytest.raises(LockTimeout):
        writer(deletes, runtime, Settings.resolve({"lock.wait_s": 0.5}).settings).begin("INSERT")
    holder.release(lease)
    given_up = [key for key in deletes.keys if key.endswith(".requested")]
    assert len(given_up) == 1
