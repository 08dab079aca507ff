"""What became of an instant that others published, and Java archived, before its own writer could look: told as it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.api import Outcome, layout
from tests.behaviour.foreign import Peer
from tests.behaviour.simulated_time.writers import commit, writer
from tests.behaviour.tables import groups, put_file
from tests.faulty_storage import Wrapped

from lakelock.errors import CommitOutcomeUnknown, CorruptTableError, RolledBackError, StorageUnavailable
from lakelock.occ.transaction import TransactionState


class AfterDeciding(Wrapped):
    """Others act, once, as soon as a decision is stored; with `silent`, storage answers nothing more afterwards."""

    def __init__(self, inner, meanwhile: Callable[[], None], *, silent: bool = False) -> None:
        super().__init__(inner)
        self.meanwhile, self.silent, self.dead = meanwhile, silent, False

    def carry(self, op, key, request, *, weight=1):
        if self.dead:
            raise StorageUnavailable("no answer", hint="")
        result = request()
        if op == "put_if_absent" and key.startswith(layout.DECISIONS + "/") and self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
            self.dead = self.silent
            if self.dead:
                raise StorageUnavailable("no answer", hint="")
        return result


class Meanwhile:
    """What others do while a writer stands still right after its decision: its lock is over, they publish, Java archives."""

    def __init__(self, storage, runtime, *, archives: bool = True, collects: bool = False, break_archive: bool = False) -> None:
        self.storage, self.runtime = storage, runtime
        self.archives, self.collects, self.break_archive = archives, collects, break_archive
        self.tx = None

    def __call__(self) -> None:
        other = writer(self.storage, self.runtime)
        provider = other.table.provider
        provider.break_lock(provider.inspect().token, force=True)
        self.runtime.advance(1.0)  # the next renewal of the lock notices
        first = commit(self.storage, self.runtime, "later-1")
        commit(self.storage, self.runtime, "later-2")
        if self.archives:
            Peer(self.storage).archive(self.tx.instant, first)
        if self.collects:
            self.storage.delete([layout.heartbeat(self.tx.instant)])
            assert other.collect()
        if self.break_archive:
            (key,) = [item.key for item in self.storage.list(layout.HISTORY)]
            self.storage.put(key, b"torn")


def begun(storage, runtime, meanwhile, *, silent: bool = False):
    tx = meanwhile.tx = writer(AfterDeciding(storage, meanwhile, silent=silent), runtime).begin("INSERT")
    return tx, [put_file(tx, storage, "month=1", "mine")]


@pytest.mark.parametrize("collects", [False, True], ids=["decisions are there", "decisions were collected"])
def test_a_commit_that_others_published_and_java_archived_is_told_committed(storage, runtime, collects):
    """It was told as rolled back, and a retry would have added its rows once more."""
    tx, stats = begun(storage, runtime, Meanwhile(storage, runtime, collects=collects))
    result = tx.commit(stats)
    assert result.instant == tx.instant and tx.state is TransactionState.COMMITTED
    assert result.rows_written == 1
    assert sorted(groups(storage)) == ["month=1/mine", "month=2/later-1", "month=2/later-2"]


@pytest.mark.parametrize("collects", [False, True], ids=["decisions are there", "decisions were collected"])
def test_where_the_archive_cannot_be_read_the_outcome_is_unknown(storage, runtime, collects):
    tx, stats = begun(storage, runtime, Meanwhile(storage, runtime, collects=collects, break_archive=True))
    with pytest.raises(CommitOutcomeUnknown, match="cannot be read"):
        tx.commit(stats)
    assert tx.state is TransactionState.UNKNOWN and "month=1/mine" in groups(storage)


def test_a_decided_commit_that_another_engine_rolled_back_before_it_archived_the_rest_is_told_rolled_back(storage, runtime):
    """The instant is older than all of the timeline, as an archived one is, and the rollback has been archived, too."""

    def meanwhile() -> None:
        other = writer(storage, runtime)
        provider = other.table.provider
        provider.break_lock(provider.inspect().token, force=True)
        runtime.advance(1.0)
        peer = Peer(storage)
        peer.roll_back_eagerly(tx.instant)
        storage.delete([i.key for i in storage.list(layout.TIMELINE) if ".rollback" in i.key])
        storage.delete([stat.path for stat in stats])
        first = peer.commit("month=2", "later-1")
        peer.commit("month=2", "later-2")
        peer.archive(min(tx.instant, first), first)

    tx = writer(AfterDeciding(storage, meanwhile), runtime).begin("INSERT")
    stats = [put_file(tx, storage, "month=1", "mine")]
    with pytest.raises(RolledBackError):
        tx.commit(stats)
    assert tx.state is TransactionState.REJECTED and groups(storage) == ["month=2/later-1", "month=2/later-2"]


def test_a_job_that_gives_up_what_was_committed_and_archived_is_not_told_rejected(storage, runtime):
    meanwhile = Meanwhile(storage, runtime)
    client = writer(AfterDeciding(storage, meanwhile, silent=True), runtime)
    begun = client.begin("INSERT")
    meanwhile.tx = begun
    stats = [put_file(begun, storage, "month=1", "mine")]
    detached = begun.detach()
    with pytest.raises(CommitOutcomeUnknown):
        client.adopt(detached).commit(stats)
    giving_up = writer(storage, runtime).adopt(detached)
    giving_up.abort("the job failed")
    assert giving_up.state is TransactionState.COMMITTED and "month=1/mine" in groups(storage)


def test_the_outcome_of_an_instant_within_the_archive_is_told_by_the_archive(storage, runtime):
    committed = commit(storage, runtime, "a")
    gone = writer(storage, runtime).begin("INSERT")
    gone.abort()
    last = commit(storage, runtime, "b")
    commit(storage, runtime, "c")
    storage.delete([i.key for i in storage.list(layout.TIMELINE) if ".rollback" in i.key])
    Peer(storage).archive(committed, last)
    look = writer(storage, runtime)
    assert look.outcome(committed) is Outcome.COMMITTED and look.outcome(last) is Outcome.COMMITTED
    assert look.outcome(gone.instant) is Outcome.REJECTED
    (key,) = [item.key for item in storage.list(layout.HISTORY)]
    storage.put(key, b"torn")
    with pytest.raises(CorruptTableError, match="cannot be read"):
        look.outcome(committed)
