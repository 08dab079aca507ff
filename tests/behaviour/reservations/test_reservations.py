"""A write that has lost too often is served before those who come later (ADR 20).

Time is simulated: whatever waits lets it pass, and what is scheduled meanwhile happens inside the wait.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from tests.api import ArrowEngine, Coordinator, EventKind, FileGroupId, MemoryStorage, WriteRequest, layout, with_retries
from tests.behaviour.tables import QUICK, SCHEMA, Recorder, groups, insert, new_table, put_file, writer
from tests.faulty_storage import CountingStorage, Fault, FaultyStorage, Rule, Wrapped

from lakelock.errors import ConflictError, EarlyConflictError
from lakelock.markers.claims import MOST_PLACES
from lakelock.occ.claims import OwnReservation, Turn, remove, reserve
from lakelock.occ.footprint import WholeTable
from lakelock.settings import ConcurrencySettings
from lakelock.testing import ManualRuntime

HOLDER_WAIT_S = QUICK.retry.holder_wait_s


class Table:
    """A table on simulated time, with a stream that inserts into it and a write that the stream makes lose."""

    def __init__(self) -> None:
        self.runtime = ManualRuntime()
        self.storage = MemoryStorage(self.runtime.now_ms)
        new_table(self.storage)
        self.told, self.heard = Recorder(), Recorder()
        self.stream = self.writer(listener=self.told)
        self.written = 0
        self.insert()

    def writer(self, settings=QUICK, **more) -> Coordinator:
        return writer(more.pop("storage", self.storage), settings, runtime=more.pop("runtime", self.runtime), **more)

    def insert(self, partition="month=1") -> float:
        """One commit of the stream; how long it took."""
        began_s, self.written = self.runtime.monotonic_s(), self.written + 1
        insert(self.stream, self.storage, partition, f"s{self.written}")
        return self.runtime.monotonic_s() - began_s

    def erase(self, last, *, losses=2, read=None, settings=QUICK, storage=None):
        """A write that reads what the stream adds to: it loses so often, and then does `last` instead of losing again."""
        mine = self.writer(settings, storage=storage or self.storage, listener=self.heard)

        def work(tx):
            tx.reads(read or WholeTable())
            stat = put_file(tx, self.storage, "month=1", "erasure")
            if self.lost < losses:
                self.insert()
                return tx.commit([stat])
            return last(tx, stat)

        return with_retries(mine, "DELETE", work)

    @property
    def lost(self) -> int:
        return self.heard.kinds().count(EventKind.CONFLICT.value)

    @property
    def reserved(self) -> list:
        return list(self.stream.table.log.reservations())

    def left(self) -> list[str]:
        return [item.key for item in self.storage.list(layout.RESERVATIONS)]


@pytest.fixture
def table() -> Table:
    return Table()


def later(table: Table, seconds: float, action) -> None:
    """Do it once, so many seconds from now, whoever sleeps then."""
    done = []
    table.runtime.every(seconds, lambda: done or done.append(action()), name="later")


def test_a_write_that_has_lost_twice_is_not_overtaken_a_third_time(table):
    result = []

    def last(tx, stat):
        later(table, 3, lambda: result.append(tx.commit([stat])))
        assert 3 <= table.insert() < 5
        return result[0]

    done = table.erase(last)
    assert done.attempts == 3
    commits = [entry.operation for entry in table.stream.history()]
    assert commits[:2] == ["INSERT", "DELETE"], "the stream came second"
    assert (table.reserved, table.left()) == ([], [])


def test_both_sides_are_told_of_each_other(table):
    result = []

    def last(tx, stat):
        later(table, 1, lambda: result.append(tx.commit([stat])))
        table.insert()
        return result[0]

    table.erase(last)
    (reserved,) = (event for event in table.heard.events if event.kind is EventKind.RESERVED)
    assert reserved.facts == {"places": "the whole table", "ahead": []}
    (waiting,) = (event for event in table.told.events if event.kind is EventKind.WAITING_FOR_RESERVATION)
    assert waiting.operation == "INSERT" and waiting.instant
    assert str(waiting.facts["holder"]).startswith("DELETE by w (")


def test_nobody_waits_longer_than_the_bound_for_a_write_that_does_not_end(table):
    waited_s = []

    def last(tx, stat):
        waited_s.append(table.insert())
        waited_s.append(table.insert())
        return tx.commit([stat])

    with pytest.raises(ConflictError):
        table.erase(last, settings=replace(QUICK, retry=replace(QUICK.retry, attempts=3)))
    assert HOLDER_WAIT_S <= waited_s[0] < HOLDER_WAIT_S + 0.1
    assert waited_s[1] == 0, "it has had its time"
    alerts = [event.facts["problem"] for event in table.told.events if event.kind is EventKind.ALERT]
    assert len(alerts) == 1 and "has still not ended after 10 s" in alerts[0]
    assert (table.reserved, table.left()) == ([], [])


@pytest.mark.parametrize("after", [0, 3])
def test_nothing_is_reserved_before_the_losses_that_the_setting_names(table, after):
    settings = replace(QUICK, retry=replace(QUICK.retry, reserve_after=after))
    assert table.erase(lambda tx, stat: tx.commit([stat]), settings=settings).attempts == 3
    assert EventKind.RESERVED.value not in table.heard.kinds()


def test_only_the_partitions_that_were_lost_are_reserved(table):
    def last(tx, stat):
        assert [reservation.places for reservation in table.reserved] == [frozenset({"month=1"})]
        assert table.insert("month=2") == 0
        return tx.commit([stat])

    table.erase(last, read=WholeTable(frozenset({"month=1"})))


def test_who_wants_to_rewrite_what_is_reserved_waits_before_it_writes(table):
    result = []
    group = FileGroupId("month=1", "s1")

    def last(tx, stat):
        other = table.stream.begin("UPSERT")
        later(table, 2, lambda: result.append(tx.commit([stat])))
        began_s = table.runtime.monotonic_s()
        other.claim([group])
        assert 2 <= table.runtime.monotonic_s() - began_s < 4
        other.abort()
        return result[0]

    table.erase(last)


def test_a_claim_that_was_there_first_goes_first(table):
    """Who has a claim when the reservation is made waits for none of it, and is waited for."""
    group = FileGroupId("month=1", "s1")
    holder = table.stream.begin("UPSERT")
    holder.claim([group])
    stat = put_file(holder, table.storage, "month=1", "s1")
    later(table, 4, lambda: holder.commit([stat]))
    began_s = []

    def last(tx, stat):
        began_s.append(table.runtime.monotonic_s())
        assert tx.baseline.saw(holder.instant)
        return tx.commit([stat])

    assert table.erase(last).attempts == 3
    assert 4 <= began_s[0] < 7
    (reserved,) = (event for event in table.heard.events if event.kind is EventKind.RESERVED)
    assert [ahead.startswith(f"UPSERT {holder.instant}") for ahead in reserved.facts["ahead"]] == [True]


def test_a_claimant_that_is_set_aside_is_not_waited_for(table):
    """It has let its claims go, but its heart beats until its next attempt has its files, which may wait for the holder."""
    holder = table.stream.begin("UPSERT")
    holder.claim([FileGroupId("month=1", "s1")])
    turn = made(table, None)
    later(table, 2, lambda: table.storage.delete([layout.claim(FileGroupId("month=1", "s1"))]))
    began_s = table.runtime.monotonic_s()
    turn.wait()
    assert 2 <= table.runtime.monotonic_s() - began_s < 4
    assert holder.is_alive


def test_a_claim_that_is_on_its_way_is_waited_for(table):
    """Another claim of its writer tells of it."""
    here, there = FileGroupId("month=1", "s1"), FileGroupId("month=2", "s2")
    holder = table.stream.begin("UPSERT")
    holder.claim([here, there])
    table.storage.delete([layout.claim(here)])  # as long as its request is under way
    turn = made(table, frozenset({"month=1"}))
    later(table, 2, lambda: table.storage.delete([layout.claim(there)]))
    began_s = table.runtime.monotonic_s()
    turn.wait()
    assert 2 <= table.runtime.monotonic_s() - began_s < 4


def test_a_write_that_will_add_rows_is_waited_for_in_their_partition_before_they_are_announced(table):
    """Nobody claims a new file group: the write's other claims tell of the partition."""

    def look():
        found.extend(each.claim.instant for each in made(table, frozenset({"month=4"})).at_work)

    found, storage = [], FaultyStorage(table.storage)
    engine = ArrowEngine(table.writer(storage=storage))
    engine.insert(pa.table([["a"], [1], ["3"]], schema=SCHEMA))
    storage.plan = [Rule("put_if_absent", f"{layout.TEMP}/*", 1, None, meanwhile=look)]
    done = engine.upsert(pa.table([["a", "b"], [2, 2], ["3", "4"]], schema=SCHEMA))
    assert found == [done.instant]


def test_a_claim_that_came_later_does_not_hold_up_the_one_with_the_reservation(table):
    late = []
    group = FileGroupId("month=1", "s1")
    other = table.stream.begin("UPSERT")

    def last(tx, stat):
        other.claim([group])  # it began before there was a reservation
        written = put_file(other, table.storage, "month=1", "s1")
        tx.claim([group])
        mine = put_file(tx, table.storage, "month=1", "s1", token="1-1-1")
        later(table, 1, lambda: late.append(tx.commit([stat, mine])))
        with pytest.raises(ConflictError) as lost:
            other.commit([written])
        assert lost.value.conflict.other.instant == tx.instant
        return late[0]

    assert table.erase(last).attempts == 3


def test_the_reservation_of_a_dead_writer_ends_with_its_heartbeat(table):
    runtime = ManualRuntime()
    dead = reserve(table.writer(runtime=runtime).table, "DELETE", None)
    runtime.stop_repeating()
    assert dead is not None and len(table.reserved) == 1
    limit_s = QUICK.heartbeat.interval_s * QUICK.heartbeat.tolerable_misses
    assert limit_s < table.insert() < limit_s + 4
    assert (table.reserved, table.left()) == ([], [])
    assert table.insert() == 0


@pytest.mark.parametrize("how", ["reap", "upkeep"])
def test_the_reservation_of_a_dead_writer_is_swept_where_nobody_waits_for_it(table, how):
    runtime = ManualRuntime()
    reserve(table.writer(runtime=runtime).table, "DELETE", frozenset({"month=7"}))
    runtime.stop_repeating()
    getattr(table.stream, how)()
    assert len(table.reserved) == 1, "it is not dead yet"
    table.runtime.advance(10)
    getattr(table.stream, how)()
    assert (table.reserved, table.left()) == ([], [])


def made(table: Table, places) -> Turn:
    turn = reserve(table.writer().table, "DELETE", places)
    assert turn is not None
    return turn


def test_reservations_are_served_in_the_order_in_which_they_were_made(table):
    first, other = made(table, frozenset({"month=1"})), made(table, frozenset({"month=2"}))
    second = made(table, None)
    assert [older.id for older in second.ahead] == [first.reservation.id, other.reservation.id]
    assert (first.ahead, other.ahead) == ((), ())
    later(table, 2, first.end)
    later(table, 5, other.end)
    began_s = table.runtime.monotonic_s()
    second.wait()
    assert 5 <= table.runtime.monotonic_s() - began_s < 7
    second.end()
    assert table.reserved == []


def test_a_reservation_of_many_partitions_is_one_of_the_whole_table(table):
    many = frozenset(f"month={number}" for number in range(MOST_PLACES + 1))
    assert made(table, many).reservation.places is None
    assert made(table, many - {"month=0"}).reservation.places == many - {"month=0"}


def test_what_needs_more_than_it_has_reserved_queues_anew(table):
    """Its second reservation covers both partitions, and is younger than one that was made meanwhile."""
    mine = table.writer(replace(QUICK, concurrency=ConcurrencySettings(early_conflict_detection=False)), listener=table.heard)
    seen = []

    def work(tx):
        number = len(seen)
        tx.reads(WholeTable(frozenset({"month=1"} if number < 3 else {"month=1", "month=2"})))
        seen.append(table.reserved)
        stat = put_file(tx, table.storage, "month=1", "mine")
        if number == 2:
            made(table, frozenset({"month=5"}))
            stat = put_file(tx, table.storage, "month=2", "mine")
            table.stream.table.log.change_reservations(lambda queue: queue[1:])
            table.insert("month=1")
        elif number < 2:
            table.insert()
        return tx.commit([stat])

    with_retries(mine, "DELETE", work)
    first, last = seen[2][0], seen[3][-1]
    assert (first.places, last.places) == (frozenset({"month=1"}), frozenset({"month=1", "month=2"}))
    assert [reservation.places for reservation in seen[3]] == [frozenset({"month=5"}), last.places]


def test_a_queue_survives_the_collection_of_decisions_and_a_move_of_the_lock(table):
    turn = made(table, frozenset({"month=ü"}))
    for _ in range(4):
        table.insert()
    log = table.stream.table.log
    assert log.raise_boundary(2) and log.move_lock("storage:somewhere")
    assert log.reservations() == (turn.reservation,)
    view = log.look()
    assert (view.boundary, view.lock, view.reservations) == (2, "storage:somewhere", (turn.reservation,))


@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.LOST_REPLY])
def test_a_write_that_cannot_reserve_goes_on_without(table, fault):
    faulty = FaultyStorage(table.storage, [Rule("put*", layout.DECISIONS_BOUNDARY, None, fault)])
    assert table.erase(lambda tx, stat: tx.commit([stat]), storage=faulty).attempts == 3
    problems = [event.facts["problem"] for event in table.heard.events if event.kind is EventKind.ALERT]
    assert any("no reservation could be made" in problem for problem in problems)


class RepeatsAfter(Wrapped):
    """The queue is changed, but the answer is lost: the client repeats the request after `meanwhile`, and finds it too late."""

    def __init__(self, inner, meanwhile) -> None:
        super().__init__(inner)
        self.meanwhile = meanwhile

    def carry(self, op, key, request, *, weight=1):
        if op.startswith("put") and key == layout.DECISIONS_BOUNDARY and self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            request()
            meanwhile()
        return request()


def test_a_place_in_the_queue_stands_when_its_answer_is_lost(table):
    """It was given up for one at the end, and whoever had joined since waited for it: they waited for each other."""
    others = []
    storage = RepeatsAfter(table.storage, lambda: others.append(made(table, None)))
    mine = reserve(table.writer(storage=storage).table, "DELETE", None)
    assert mine is not None and mine.ahead == ()
    assert others[0].ahead == (mine.reservation,)
    assert table.stream.table.log.reservations() == (mine.reservation, others[0].reservation)


def test_nobody_asks_for_reservations_where_there_are_none(table):
    storage = CountingStorage(table.storage)
    coordinator = table.writer(storage=storage)
    insert(coordinator, storage, "month=1", "warm")
    table.runtime.sleep(1)
    storage.reset()
    insert(coordinator, storage, "month=1", "counted")
    assert [call for call in storage.calls if "reservations" in call[1]] == []
    assert storage.calls.count(("get", layout.DECISIONS_BOUNDARY)) == 3, storage.calls


def test_a_service_that_commits_while_it_is_to_yield_is_found_early_by_whoever_has_reserved_too(table):
    """The reservation had run out. Its owner took the claim for that of a later writer, and lost after it had written."""
    group, turn = FileGroupId("month=1", "s1"), made(table, None)
    remove(table.stream.table, turn.reservation.id)
    service = table.writer().begin(WriteRequest("CLUSTER", overwrites=True))
    service.claim([group], leave_held=True)

    def commit() -> None:
        service.commit([put_file(service, table.storage, "month=1", "joined")], replaced={"month=1": ["s1"]})

    storage = FaultyStorage(table.storage)
    mine = table.writer(storage=storage).begin("UPSERT")
    mine.reserved.own = OwnReservation(turn.reservation, turn.heartbeat.alive, turn.end)
    storage.plan = [Rule("put*", layout.LOCK, fault=None, meanwhile=commit)]
    with pytest.raises(EarlyConflictError, match="the other committed since this transaction began"):
        mine.claim([group])


def test_a_commit_under_a_later_claim_is_found_early(table):
    """Whoever has reserved writes a group that a later writer has claimed, and did not look at what was decided about it."""
    group, turn = FileGroupId("month=1", "s1"), made(table, None)
    remove(table.stream.table, turn.reservation.id)
    earlier, mine = (table.writer().begin("UPSERT") for _ in range(2))
    mine.reserved.own = OwnReservation(turn.reservation, turn.heartbeat.alive, turn.end)
    earlier.claim([group])
    earlier.commit([put_file(earlier, table.storage, "month=1", "s1", token="1-0-0")])
    table.writer().begin("UPSERT").claim([group])
    with pytest.raises(EarlyConflictError, match=earlier.instant):
        mine.claim([group])


def test_a_reservation_counts_for_its_holder_only_as_long_as_its_heartbeat_does(table):
    """Others remove it then, and what it would have kept away commits."""
    turn, mine = made(table, None), table.writer().begin("UPSERT")
    mine.reserved.own = OwnReservation(turn.reservation, turn.heartbeat.alive, turn.end)
    later_writer = "20990101000000000"
    assert mine.reserved.overrules(later_writer, "month=1")
    table.runtime.stop_repeating()
    table.runtime.advance(60)
    assert not mine.reserved.overrules(later_writer, "month=1") and mine.reserved.standing is None


def test_an_upsert_that_lost_to_a_claim_twice_reserves_too(table):
    group = FileGroupId("month=1", "s1")
    mine = table.writer(listener=table.heard)
    begun = []

    def work(tx):
        begun.append(tx.instant)
        if len(begun) < 3:
            holder = table.stream.begin("UPSERT")
            holder.claim([group])
            later(table, 0.2, holder.abort)
        tx.claim([group])
        return tx.commit([put_file(tx, table.storage, "month=1", "s1")])

    assert with_retries(mine, "UPSERT", work).attempts == 3
    assert table.heard.kinds().count(EventKind.RESERVED.value) == 1
    assert "month=1/s1" in groups(table.storage)
