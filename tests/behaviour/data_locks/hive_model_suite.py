"""The examples of Hive's lock model (H3 to H16) for any service of data locks: subclass it and say how to open them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import permutations
from random import Random
from threading import Barrier
from time import monotonic

import pytest
from tests.api import DataLocks, Resource, SystemRuntime, lock_request
from tests.behaviour.data_locks.data_lock_suite import SLACK_S, Later, granted

from lakelock.data_locks import TABLE, LockRequest, Mode
from lakelock.data_locks.locks import Wanted, holding_several
from lakelock.data_locks.operations import locks_of
from lakelock.errors import InputError, LockTimeout
from lakelock.settings.sections import DataLockSettings

RUNTIME = SystemRuntime()
P1, P2 = Resource.of("p=1"), Resource.of("p=2")
P, PQ, PR = Resource.of("p=0"), Resource.of("p=0/q=1"), Resource.of("p=0/q=2")
QUICK = DataLockSettings(attempts=1000, sleep_s=0.02, lease_s=30, renew_s=10)
ONCE = DataLockSettings(attempts=1, lease_s=30, renew_s=10)


@dataclass
class Warehouse:
    """Opens writers of the tables of one warehouse; `open` takes the table's name and the writer's."""

    open: Callable[[str, str], DataLocks]
    opened: list[DataLocks] = field(default_factory=list)

    def __call__(self, table: str = "t1") -> DataLocks:
        self.opened.append(self.open(table, f"writer-{len(self.opened)}"))
        return self.opened[-1]


def shown(request: LockRequest) -> list[str]:
    return [f"{lock.mode.short} {lock.resource.path or 'T'}" for lock in request.locks]


class HiveModelSuite:
    """The promises. `warehouse` is the only fixture that a subclass provides."""

    @pytest.fixture
    def warehouse(self) -> Warehouse:
        raise NotImplementedError("say how a writer opens the data locks of a table")

    def taken(self, warehouse: Warehouse, request: LockRequest) -> list[str]:
        """Take the request and return what the service shows of it; everybody else sees the same."""
        one, other = warehouse(), warehouse()
        lease = one.acquire(request, wait_s=12)
        try:
            (seen,) = other.inspect()
            assert seen.held and seen.request.locks == request.locks == lease.request.locks
            return shown(seen.request)
        finally:
            one.release(lease)

    def both(self, warehouse: Warehouse, held: LockRequest, asked: LockRequest) -> bool:
        one, two = warehouse(), warehouse()
        first = one.acquire(held, wait_s=12)
        second = granted(two, asked)
        one.release(first)
        if second is not None:
            two.release(second)
        return second is not None

    def test_h3_a_select_shares_the_table_and_the_partition(self, warehouse: Warehouse) -> None:
        assert self.taken(warehouse, locks_of("SELECT", [P1])) == ["S T", "S p=1"]
        assert self.both(warehouse, locks_of("SELECT", [P1]), locks_of("SELECT", [P1]))
        assert not self.both(warehouse, locks_of("SELECT", [P1]), locks_of("INSERT", [P1]))
        assert self.both(warehouse, locks_of("SELECT", [P1]), locks_of("INSERT", [P2]))

    def test_h4_an_insert_from_another_table_shares_what_it_reads_and_owns_what_it_writes(self, warehouse: Warehouse) -> None:
        t1, t2 = warehouse("t1"), warehouse("t2")
        statement = [Wanted(t2, locks_of("INSERT", [P2])), Wanted(t1, locks_of("SELECT", [P1]))]
        with holding_several(statement, QUICK, RUNTIME) as leases:
            assert [shown(lease.request) for lease in leases] == [["S T", "S p=1"], ["S T", "X p=2"]]
            assert granted(warehouse("t1"), locks_of("INSERT", [P1])) is None
            assert granted(warehouse("t2"), locks_of("SELECT", [P2])) is None
            elsewhere = warehouse("t1")
            lease = granted(elsewhere, locks_of("SELECT", [P1]))
            assert lease is not None
            elsewhere.release(lease)
        assert t1.inspect() == t2.inspect() == ()

    def test_h5_an_insert_into_a_nested_partition_shares_every_prefix(self, warehouse: Warehouse) -> None:
        assert self.taken(warehouse, locks_of("INSERT", [PQ])) == ["S T", "S p=0", "X p=0/q=1"]
        assert self.both(warehouse, locks_of("INSERT", [PQ]), locks_of("INSERT", [PR]))
        assert not self.both(warehouse, locks_of("INSERT", [PQ]), locks_of("OVERWRITE", [P]))

    @pytest.mark.parametrize(
        "operation",
        ["rename", "ALTER TABLE ADD COLUMNS", "replace_columns", "change column", "CONCATENATE"],
    )
    def test_h6_a_change_of_the_tables_shape_owns_the_table(self, warehouse: Warehouse, operation: str) -> None:
        assert self.taken(warehouse, locks_of(operation)) == ["X T"]
        assert not self.both(warehouse, locks_of("SELECT", [P1]), locks_of(operation))

    @pytest.mark.parametrize("operation", ["ADD PARTITION", "DROP PARTITION", "TOUCH PARTITION"])
    def test_h7_a_change_of_a_partition_shares_the_table_and_owns_the_partition(
        self, warehouse: Warehouse, operation: str
    ) -> None:
        assert self.taken(warehouse, locks_of(operation, [P1])) == ["S T", "X p=1"]
        assert self.both(warehouse, locks_of("INSERT", [P2]), locks_of(operation, [P1]))
        with pytest.raises(InputError, match="needs a partition"):
            locks_of(operation)

    @pytest.mark.parametrize("operation", ["SET SERDEPROPERTIES", "SET SERDE", "SET FILEFORMAT"])
    def test_h8_serde_and_file_format_share_the_table(self, warehouse: Warehouse, operation: str) -> None:
        assert self.taken(warehouse, locks_of(operation)) == ["S T"]
        assert self.both(warehouse, locks_of("INSERT", [P1]), locks_of(operation))

    def test_h9_table_properties_own_the_table(self, warehouse: Warehouse) -> None:
        assert self.taken(warehouse, locks_of("SET TBLPROPERTIES")) == ["X T"]

    def test_h10_concatenating_a_partition_owns_it(self, warehouse: Warehouse) -> None:
        assert self.taken(warehouse, locks_of("PARTITION CONCATENATE", [P1])) == ["S T", "X p=1"]

    def test_h11_a_drop_owns_the_table(self, warehouse: Warehouse) -> None:
        assert self.taken(warehouse, locks_of("DROP TABLE")) == ["X T"]
        assert not self.both(warehouse, locks_of("DROP TABLE"), locks_of("SELECT", [P1]))

    def test_h12_locks_are_in_one_order_however_they_were_named(self, warehouse: Warehouse) -> None:
        for order in permutations([PQ, P1, PR]):
            request = lock_request(order[:1], order[1:])
            assert [lock.resource for lock in request.locks] == [TABLE, P, PQ, PR, P1]
        assert self.taken(warehouse, lock_request([P1], [PR, PQ])) == ["S T", "S p=0", "X p=0/q=1", "X p=0/q=2", "S p=1"]

    def test_h12_two_statements_over_the_same_tables_in_opposite_order_both_get_through(self, warehouse: Warehouse) -> None:
        barrier, rounds = Barrier(2), 5

        def work(number: int) -> int:
            tables = [warehouse("t1"), warehouse("t2")]
            wanted = [Wanted(locks, locks_of("INSERT", [P1])) for locks in tables]
            for _ in range(rounds):
                barrier.wait(timeout=60)
                with holding_several(wanted if number else wanted[::-1], QUICK, RUNTIME) as leases:
                    assert [lease.lost for lease in leases] == [None, None]
            return rounds

        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(work, range(2))) == [rounds] * 2

    @pytest.mark.waits
    def test_h13_a_request_is_granted_or_denied_at_once_and_a_denial_keeps_nothing(self, warehouse: Warehouse) -> None:
        from tests.waiting import Stopwatch  # at the top it would say that all of these tests wait

        t1, t2, rival = warehouse("t1"), warehouse("t2"), warehouse("t2")
        held = rival.acquire(locks_of("INSERT", [P1]), wait_s=12)
        wanted = [Wanted(t1, locks_of("INSERT", [P1])), Wanted(t2, locks_of("INSERT", [P1]))]
        watch = Stopwatch()
        with watch, pytest.raises(LockTimeout, match="2 tables"), holding_several(wanted, ONCE, RUNTIME):
            pytest.fail("it was granted")
        assert watch.took_s < SLACK_S
        assert t1.inspect() == (), "the first table was given back"
        assert [seen.token for seen in t2.inspect()] == [held.token]
        rival.release(held)
        with holding_several(wanted, ONCE, RUNTIME):
            assert len(t1.inspect()) == len(t2.inspect()) == 1

    @pytest.mark.waits
    def test_h13_the_whole_list_is_tried_again_until_it_is_granted(self, warehouse: Warehouse) -> None:
        t1, t2, rival = warehouse("t1"), warehouse("t2"), warehouse("t2")
        held = rival.acquire(locks_of("INSERT"), wait_s=12)
        wanted = [Wanted(t1, locks_of("INSERT", [P1])), Wanted(t2, locks_of("INSERT", [P1]))]

        def statement() -> float:
            with holding_several(wanted, QUICK, RUNTIME):
                return monotonic()

        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(statement)
            others = warehouse("t1")
            lease = others.acquire(locks_of("INSERT", [P1]), wait_s=30)
            others.release(lease)
            released_s = monotonic()
            rival.release(held)
            assert waiting.result(timeout=60) >= released_s

    def test_h14_readers_that_keep_coming_do_not_starve_a_writer(self, warehouse: Warehouse) -> None:
        reader, writer, late = warehouse(), warehouse(), warehouse()
        reading = reader.acquire(locks_of("SELECT", [P1]), wait_s=12)
        waiting = Later(writer, locks_of("INSERT", [P1]))
        assert granted(late, locks_of("SELECT", [P1])) is None
        reader.release(reading)
        writer.release(waiting.lease())
        assert granted(late, locks_of("SELECT", [P1])) is not None

    def test_h15_dynamic_partitions_own_the_known_prefix_or_the_table(self, warehouse: Warehouse) -> None:
        assert self.taken(warehouse, locks_of("INSERT", [P])) == ["S T", "X p=0"]
        assert self.taken(warehouse, locks_of("INSERT")) == ["X T"]
        assert not self.both(warehouse, locks_of("INSERT", [P]), locks_of("INSERT", [PQ]))
        assert not self.both(warehouse, locks_of("INSERT"), locks_of("SELECT", [P1]))

    def test_h16_the_listing_shows_what_is_held_who_waits_and_for_whom(self, warehouse: Warehouse) -> None:
        holder, waiter, viewer = warehouse(), warehouse(), warehouse()
        held = holder.acquire(locks_of("INSERT", [P1], about="INSERT of the backfill"), wait_s=12)
        waiting = Later(waiter, locks_of("SELECT", [P1]))
        first, second = viewer.inspect()
        assert (first.held, second.held, second.blocked_by) == (True, False, (held.token,))
        assert "writer-0" in str(first) and "writer-1" in str(second)
        assert [lock.mode for lock in second.request.locks] == [Mode.SHARED, Mode.SHARED]
        holder.release(held)
        waiter.release(waiting.lease())

    def test_random_statements_over_two_tables_never_overlap_and_all_get_through(self, warehouse: Warehouse) -> None:
        resources = [P1, P2, P, PQ, PR]
        inside: dict[tuple[str, Resource], int] = {}
        overlaps: list[str] = []
        mutex, rounds = RUNTIME.mutex(), 4

        def work(number: int) -> int:
            random, tables = Random(number), [warehouse("t1"), warehouse("t2")]
            for _ in range(rounds):
                target = {locks.table: random.choice(resources) for locks in tables}
                wanted = [Wanted(locks, locks_of("INSERT", [target[locks.table]])) for locks in tables]
                random.shuffle(wanted)
                with holding_several(wanted, QUICK, RUNTIME) as leases:
                    owned = list(target.items())
                    with mutex:
                        overlaps.extend(str(each) for each in owned if inside.get(each))
                        inside.update(dict.fromkeys(owned, 1))
                    assert all(lease.lost is None for lease in leases)
                    with mutex:
                        inside.update(dict.fromkeys(owned, 0))
            return rounds

        with ThreadPoolExecutor(3) as pool:
            assert list(pool.map(work, range(3))) == [rounds] * 3
        assert overlaps == []
