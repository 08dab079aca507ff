"""Heartbeats: the owner gives up no later than anybody else may take it for dead, whatever the clocks say."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest
from tests.api import (
    Action,
    Instant,
    LocalStorage,
    MemoryStorage,
    State,
    Storage,
    SystemRuntime,
    TableIO,
    WriterIdentity,
    layout,
)
from tests.faulty_storage import CountingStorage, Fault, FaultyStorage, Rule

from lakelock.clock import Repeating
from lakelock.errors import RolledBackError, StorageUnavailable
from lakelock.markers.heartbeat import Heartbeat, HeartbeatRecord, SharedHeartbeat
from lakelock.markers.liveness import LivenessState, StorageClock, judge_all
from lakelock.settings import HeartbeatSettings
from lakelock.storage import Stored
from lakelock.testing import ManualRuntime

T = TypeVar("T")
INSTANT, OTHER, THIRD = "20261121093515485", "20261121093515486", "20261121093515487"
SETTINGS = HeartbeatSettings(interval_s=60, tolerable_misses=2)


def record(instant: str = INSTANT, *, interval_s: float = 60, misses: int = 2, first: int = 7) -> HeartbeatRecord:
    writer = WriterIdentity(f"writer of {instant}", "stream", "host", 1, "me")
    return HeartbeatRecord(instant, writer, "UPSERT", first, interval_s, misses)


def started(storage: Storage, runtime: ManualRuntime | SystemRuntime, **kwargs: object) -> Heartbeat:
    heartbeat = Heartbeat.start(storage, record(**kwargs), runtime)  # type: ignore[arg-type]
    assert heartbeat is not None
    return heartbeat


@pytest.fixture
def runtime() -> ManualRuntime:
    return ManualRuntime()


@pytest.fixture
def storage(runtime: ManualRuntime) -> CountingStorage:
    """In memory, with a clock of its own that goes as fast as the writers' do, and is a day behind."""
    return CountingStorage(MemoryStorage(lambda: round(runtime.monotonic_s() * 1000) + 5_000_000))


@pytest.fixture(params=["memory", "local"])
def any_storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return MemoryStorage() if request.param == "memory" else LocalStorage(tmp_path)


def pending(instant: str) -> Instant:
    return Instant(instant, Action.COMMIT.value, State.REQUESTED)


def test_the_file_says_who_writes_and_is_read_back(any_storage: Storage) -> None:
    heartbeat = started(any_storage, SystemRuntime())
    found = any_storage.get(layout.heartbeat(INSTANT))
    assert found is not None
    assert HeartbeatRecord.from_bytes(found.data) == heartbeat.record
    assert heartbeat.record.write_id
    heartbeat.stop(delete=True)
    assert any_storage.get(layout.heartbeat(INSTANT)) is None


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"null", b"\xff\xfe", b'{"instant": "x"}', b'{"instant": 1, "writer": 2}'])
def test_a_heartbeat_of_another_engine_has_no_record(data: bytes) -> None:
    assert HeartbeatRecord.from_bytes(data) is None


def test_an_instant_is_had_by_one_writer_only(any_storage: Storage) -> None:
    first = started(any_storage, SystemRuntime())
    assert Heartbeat.start(any_storage, record(), SystemRuntime()) is None
    first.stop(delete=True)


def test_two_transactions_of_one_writer_do_not_take_each_others_heartbeat_for_their_own(runtime: ManualRuntime) -> None:
    inner = MemoryStorage()
    first = Heartbeat.start(inner, record(), runtime)
    storage = FaultyStorage(inner, [Rule(op="put_if_absent")])
    assert first is not None
    assert Heartbeat.start(storage, record(), runtime) is None


@pytest.mark.parametrize("fault", list(Fault))
def test_a_lost_reply_to_the_first_beat_still_gives_one_heartbeat(runtime: ManualRuntime, fault: Fault) -> None:
    storage = FaultyStorage(MemoryStorage(), [Rule(op="put_if_absent", fault=fault)])
    heartbeat = Heartbeat.start(storage, record(), runtime)
    assert heartbeat is not None
    assert heartbeat.alive()
    assert len(runtime.repeating) == 1


def test_no_answer_at_all_to_the_first_beat_is_an_error_and_nothing_beats(runtime: ManualRuntime) -> None:
    storage = FaultyStorage(MemoryStorage(), [Rule(op="put_if_absent", nth=None)])
    with pytest.raises(StorageUnavailable):
        Heartbeat.start(storage, record(), runtime)
    assert runtime.repeating == []


def test_a_beat_is_one_request_and_keeps_the_writer_alive(runtime: ManualRuntime, storage: CountingStorage) -> None:
    heartbeat = started(storage, runtime)
    assert storage.total == 1
    storage.reset()
    for _ in range(100):
        runtime.advance(60)
        heartbeat.ensure_alive()
    assert set(storage.requests) == {"put"}
    assert storage.total == 200
    assert judge_all(TableIO(storage, runtime), SETTINGS, [])[INSTANT].state is LivenessState.ALIVE


def test_two_lost_beats_in_a_row_kill_nobody(runtime: ManualRuntime, storage: CountingStorage) -> None:
    faulty = FaultyStorage(storage, [Rule(op="put", nth=1), Rule(op="put", nth=1)])
    heartbeat = started(faulty, runtime)
    runtime.advance(119.9)
    assert heartbeat.alive()
    runtime.advance(60)
    assert heartbeat.alive()


class Broken(CountingStorage):
    """Its driver raises what no storage may, once it is broken."""

    broken = False

    def carry(self, op: str, key: str, request: Callable[[], T], *, weight: int = 1) -> T:
        if self.broken:
            raise ValueError("a bug of the driver")
        return super().carry(op, key, request, weight=weight)


@pytest.mark.parametrize("shared", [False, True], ids=["of a writer", "of tasks"])
def test_an_error_that_no_storage_may_raise_does_not_end_the_beats(runtime: ManualRuntime, shared: bool) -> None:
    storage = Broken(MemoryStorage(lambda: round(runtime.monotonic_s() * 1000)))
    heartbeat: Heartbeat | None = started(storage, runtime)
    if shared and heartbeat is not None:
        heartbeat.stop(delete=False)
        heartbeat = SharedHeartbeat.join(storage, heartbeat.record, runtime)
    assert heartbeat is not None
    storage.broken = True
    runtime.advance(40)
    storage.broken = False
    runtime.advance(1000)
    heartbeat.ensure_alive()
    storage.broken = True
    runtime.advance(121)
    with pytest.raises(RolledBackError, match="ValueError: a bug of the driver"):
        heartbeat.ensure_alive()


def test_a_paused_writer_is_dead_for_good(runtime: ManualRuntime, storage: CountingStorage) -> None:
    paused = ManualRuntime()
    heartbeat = started(storage, paused)
    paused.freeze(120)
    assert not heartbeat.alive()
    storage.reset()
    paused.advance(1000)
    assert not heartbeat.alive()
    assert storage.total == 0
    with pytest.raises(RolledBackError, match="no heartbeat for 1120.0 s"):
        heartbeat.ensure_alive()


def test_a_writer_whose_storage_does_not_answer_gives_up_and_says_why(runtime: ManualRuntime) -> None:
    heartbeat = started(FaultyStorage(MemoryStorage(), [Rule(op="put", nth=None)]), runtime)
    runtime.advance(119)
    heartbeat.ensure_alive()
    runtime.advance(1)
    with pytest.raises(RolledBackError, match="no reply to put"):
        heartbeat.ensure_alive()


def test_a_beat_that_took_too_long_does_not_bring_the_writer_back(runtime: ManualRuntime, storage: CountingStorage) -> None:
    def slow() -> None:
        runtime.freeze(100)

    heartbeat = started(FaultyStorage(storage, [Rule(op="put", fault=None, meanwhile=slow)]), runtime)
    runtime.advance(30)
    assert runtime.monotonic_s() >= 130
    assert not heartbeat.alive()


def test_a_beat_counts_from_its_start(runtime: ManualRuntime, storage: CountingStorage) -> None:
    def slow() -> None:
        runtime.freeze(50)

    heartbeat = started(FaultyStorage(storage, [Rule(op="put", fault=None, meanwhile=slow), Rule(op="put", nth=None)]), runtime)
    runtime.advance(30)
    assert heartbeat.age_s() == 50
    runtime.advance(69)
    assert heartbeat.alive()
    runtime.advance(1)
    assert not heartbeat.alive()


def test_the_owner_gives_up_before_anybody_else_may_judge_it_dead(runtime: ManualRuntime, storage: CountingStorage) -> None:
    paused = ManualRuntime()
    heartbeat = started(storage, paused)
    judge = started(storage, runtime, instant=OTHER)
    while (found := judge_all(TableIO(storage, runtime), SETTINGS, [])[INSTANT]).state is not LivenessState.DEAD:
        assert found.state is LivenessState.ALIVE
        runtime.advance(0.25)
    assert 121 <= runtime.monotonic_s() < 122
    assert judge.alive()
    paused.freeze(120)
    assert not heartbeat.alive()


def test_no_beat_comes_after_stop(storage: CountingStorage) -> None:
    beats: list[Callable[[], None]] = []

    class Late(ManualRuntime):
        """Lets the test run a background action when it is too late."""

        def every(self, interval_s: float, action: Callable[[], None], *, name: str) -> Repeating:
            beats.append(action)
            return super().every(interval_s, action, name=name)

    runtime = Late()
    heartbeat = started(storage, runtime)
    heartbeat.stop(delete=True)
    heartbeat.stop(delete=True)
    (beat,) = beats
    beat()
    runtime.advance(1000)
    assert storage.get(heartbeat.key) is None
    assert runtime.repeating == []


def test_a_beat_under_way_cannot_bring_the_file_back_after_stop(tmp_path: Path) -> None:
    system = SystemRuntime()
    entered, leave = system.flag(), system.flag()

    def wait() -> None:
        entered.set()
        leave.wait(0.3)

    storage = FaultyStorage(LocalStorage(tmp_path), [Rule(op="put", fault=None, meanwhile=wait)])
    heartbeat = started(storage, system, interval_s=0.03, misses=1000)
    assert entered.wait(5)
    heartbeat.stop(delete=True)
    assert storage.get(heartbeat.key) is None


def test_a_heartbeat_that_cannot_be_deleted_is_left_to_go_stale(runtime: ManualRuntime) -> None:
    inner = MemoryStorage()
    started(FaultyStorage(inner, [Rule(op="delete")]), runtime).stop(delete=True)
    assert inner.get(layout.heartbeat(INSTANT)) is not None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_neither_lives_on_its_parents_heartbeat_nor_removes_it(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    heartbeat = started(storage, SystemRuntime())
    child = os.fork()
    if child == 0:
        dead = not heartbeat.alive()
        heartbeat.stop(delete=True)
        os._exit(0 if dead else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert heartbeat.alive()
    assert storage.get(heartbeat.key) is not None
    heartbeat.stop(delete=True)


@pytest.mark.parametrize("skew_ms", [-3_600_000, 0, 3_600_000])
def test_the_judges_own_clock_does_not_matter(runtime: ManualRuntime, storage: CountingStorage, skew_ms: int) -> None:
    storage.put(layout.heartbeat(INSTANT), b"")
    runtime.advance(100)
    storage.put(layout.heartbeat(OTHER), b"")
    runtime.advance(30)
    runtime.skew_ms = skew_ms
    judged = judge_all(TableIO(storage, runtime), SETTINGS, [])
    assert {instant: found.state for instant, found in judged.items()} == {
        INSTANT: LivenessState.DEAD,
        OTHER: LivenessState.ALIVE,
    }
    assert judged[INSTANT].evidence == "its heartbeat is 130 s old, 120 s are allowed"
    assert judged[INSTANT].record is None


def test_a_heartbeat_of_ours_is_judged_by_its_own_interval(runtime: ManualRuntime, storage: CountingStorage) -> None:
    asleep = ManualRuntime()
    started(storage, asleep, instant=INSTANT, interval_s=600)
    started(storage, asleep, instant=OTHER, interval_s=1)
    started(storage, asleep, instant=THIRD)
    runtime.advance(130)
    states = {instant: found.state.value for instant, found in judge_all(TableIO(storage, runtime), SETTINGS, []).items()}
    assert states == {INSTANT: "alive", OTHER: "dead", THIRD: "dead"}


def test_a_pending_instant_without_heartbeat_is_dead_once_it_is_old_enough(
    runtime: ManualRuntime, storage: CountingStorage
) -> None:
    storage.put(layout.timeline(pending(INSTANT).file_name), b"")
    runtime.advance(100)
    storage.put(layout.timeline(pending(OTHER).file_name), b"")
    assert judge_all(TableIO(storage, runtime), SETTINGS, [pending(INSTANT)])[INSTANT].state is LivenessState.MISSING
    runtime.advance(20)
    assert judge_all(TableIO(storage, runtime), SETTINGS, [pending(INSTANT)])[INSTANT].state is LivenessState.MISSING
    runtime.advance(5)
    judged = judge_all(TableIO(storage, runtime), SETTINGS, [pending(INSTANT), pending(OTHER), pending(THIRD)])
    assert {instant: found.state.value for instant, found in judged.items()} == {INSTANT: "dead", OTHER: "missing"}
    assert judged[INSTANT].evidence == "it has no heartbeat and was requested 125 s ago, 120 s are allowed"


def test_files_that_are_no_instants_are_not_judged(runtime: ManualRuntime, storage: CountingStorage) -> None:
    storage.put(f"{layout.HEARTBEATS}/notes.txt", b"")
    runtime.advance(1000)
    assert judge_all(TableIO(storage, runtime), SETTINGS, []) == {}


def test_a_lonely_writer_pays_one_listing(runtime: ManualRuntime, storage: CountingStorage) -> None:
    started(storage, runtime)
    storage.reset()
    assert judge_all(TableIO(storage, runtime), SETTINGS, [pending(INSTANT)], own=INSTANT) == {}
    assert dict(storage.requests) == {"list": 1}


@pytest.mark.parametrize("live", [1, 10, 100, 1000])
def test_looking_for_the_dead_costs_the_same_among_any_number_of_live_writers(
    runtime: ManualRuntime, storage: CountingStorage, live: int
) -> None:
    started(storage, ManualRuntime(), instant="20261121093515000")
    runtime.advance(200)
    for number in range(live):
        storage.put(layout.heartbeat(f"2026112109360{number:04}"), record().to_bytes())
    mine = started(storage, runtime, instant="20261121093700000")
    storage.reset()
    judged = judge_all(TableIO(storage, runtime), SETTINGS, [], own=mine.record.instant, read_alive=False)
    assert [instant for instant, found in judged.items() if found.state is LivenessState.DEAD] == ["20261121093515000"]
    assert judged["20261121093515000"].record is not None
    assert dict(storage.requests) == {"list": 1, "get": 1}


def test_the_collector_gets_to_know_what_live_writers_have_seen(runtime: ManualRuntime, storage: CountingStorage) -> None:
    started(storage, runtime, instant=INSTANT, first=3)
    started(storage, runtime, instant=OTHER, first=9)
    records = [found.record for found in judge_all(TableIO(storage, runtime), SETTINGS, []).values()]
    assert sorted(found.first for found in records if found) == [3, 9]


def test_the_storages_clock_is_read_and_leaves_nothing_behind(any_storage: Storage) -> None:
    clock = StorageClock.measure(any_storage, SystemRuntime())
    assert abs(clock.now_ms(SystemRuntime()) - SystemRuntime().now_ms()) < 60_000
    assert list(any_storage.list(".hoodie")) == []


def test_a_stale_file_on_local_disk_is_dead(tmp_path: Path) -> None:
    storage, runtime = LocalStorage(tmp_path), SystemRuntime()
    started(storage, runtime).stop(delete=False)
    age: Callable[[float], None] = lambda seconds: os.utime(  # noqa: E731
        tmp_path / layout.heartbeat(INSTANT), (runtime.now_ms() / 1000 - seconds,) * 2
    )
    age(110)
    assert judge_all(TableIO(storage, runtime), SETTINGS, [])[INSTANT].state is LivenessState.ALIVE
    age(130)
    assert judge_all(TableIO(storage, runtime), SETTINGS, [])[INSTANT].state is LivenessState.DEAD


def test_another_process_of_the_job_goes_on_beating(any_storage: Storage) -> None:
    first = started(any_storage, SystemRuntime())
    first.stop(delete=False)
    second = Heartbeat.resume(any_storage, first.record, SystemRuntime())
    assert second is not None
    assert second.alive()
    second.stop(delete=True)


def test_a_heartbeat_that_went_without_a_beat_for_too_long_is_not_resumed(
    runtime: ManualRuntime, storage: CountingStorage
) -> None:
    first = started(storage, ManualRuntime())
    runtime.advance(119)
    assert Heartbeat.resume(storage, first.record, runtime) is not None
    other = started(storage, ManualRuntime(), instant=OTHER)
    runtime.freeze(120)
    assert Heartbeat.resume(storage, other.record, runtime) is None
    assert Heartbeat.resume(storage, other.record, runtime) is None, "the first look must not make it fresh again"


def test_a_heartbeat_that_is_gone_or_not_the_same_is_not_resumed(runtime: ManualRuntime, storage: CountingStorage) -> None:
    first = started(storage, ManualRuntime())
    storage.delete([first.key])
    assert Heartbeat.resume(storage, first.record, runtime) is None
    storage.put(first.key, b"")
    assert Heartbeat.resume(storage, first.record, runtime) is None
    assert runtime.repeating == []


def test_two_processes_that_resume_at_once_both_go_on(runtime: ManualRuntime, storage: CountingStorage) -> None:
    first = started(storage, ManualRuntime())
    found = storage.get(first.key)
    assert found is not None
    beat_in_between = Rule(op="put_if_match", fault=None, meanwhile=lambda: storage.put(first.key, found.data))
    assert Heartbeat.resume(FaultyStorage(storage, [beat_in_between]), first.record, runtime) is not None


@pytest.mark.parametrize("fault", list(Fault))
def test_a_commit_goes_on_beating_where_a_task_beats_at_the_same_moment(runtime: ManualRuntime, fault: Fault) -> None:
    storage = FaultyStorage(MemoryStorage(), [Rule(op="put_if_match", nth=nth, fault=fault) for nth in (1, 2)])
    first = started(storage, runtime)
    resumed = Heartbeat.resume(storage, first.record, runtime)
    assert resumed is not None and resumed.alive()


@dataclass
class Job:
    """The tasks of one job, each in a process with a clock of its own, and its heartbeat file."""

    storage: Storage
    runtime: ManualRuntime
    record: HeartbeatRecord

    def task(self) -> SharedHeartbeat:
        joined = SharedHeartbeat.join(self.storage, self.record, self.runtime)
        assert joined is not None
        return joined

    def judged(self) -> LivenessState:
        return judge_all(TableIO(self.storage, self.runtime), SETTINGS, [])[INSTANT].state


@pytest.fixture
def job(runtime: ManualRuntime, storage: CountingStorage) -> Job:
    begun = started(storage, runtime)
    begun.stop(delete=False)
    storage.reset()
    return Job(storage, runtime, begun.record)


def writes(storage: CountingStorage) -> int:
    return sum(count for op, count in storage.requests.items() if op.startswith("put"))


def test_two_hundred_tasks_do_not_all_write_the_heartbeat(runtime: ManualRuntime, storage: CountingStorage, job: Job) -> None:
    tasks = [job.task() for _ in range(200)]
    assert dict(storage.requests) == {"get": 200}
    for minute in range(1, 11):
        runtime.advance(60)
        assert all(task.alive() for task in tasks)
        assert writes(storage) <= 4 * minute and storage.requests["get"] <= 200 * (2 * minute + 4)
    assert job.judged() is LivenessState.ALIVE


@pytest.mark.waits
def test_tasks_that_begin_at_one_moment_on_a_slow_storage_write_little(tmp_path: Path) -> None:
    """With real threads: what counts is how many look before the first beat is there."""
    counting = CountingStorage(LocalStorage(tmp_path))
    slow = FaultyStorage(counting, [Rule(fault=None, nth=None, meanwhile=lambda: SystemRuntime().sleep(0.01))])
    begun = started(counting, SystemRuntime(), interval_s=128, misses=1)
    begun.stop(delete=False)
    SystemRuntime().sleep(0.02)
    counting.reset()
    tasks = [SharedHeartbeat.join(slow, begun.record, SystemRuntime()) for _ in range(40)]
    deadline_s = SystemRuntime().monotonic_s() + 30
    while counting.requests["get"] < 80 and SystemRuntime().monotonic_s() < deadline_s:
        SystemRuntime().sleep(0.05)
    for task in tasks:
        assert task is not None
        task.ensure_alive()
        task.stop(delete=False)
    assert counting.requests["get"] >= 80
    assert 1 <= writes(counting) <= 10


@pytest.mark.parametrize("fault", list(Fault))
def test_an_answer_that_others_write_too_fails_no_task(
    runtime: ManualRuntime, storage: CountingStorage, job: Job, fault: Fault
) -> None:
    """409 and 503 come as no definite answer, 412 as None."""
    lost = [Rule(op="put_if_match", nth=nth, fault=fault) for nth in range(1, 100, 2)]
    job.storage = FaultyStorage(storage, lost)
    tasks = [job.task() for _ in range(20)]
    for _ in range(100):
        runtime.advance(30)
        for task in tasks:
            task.ensure_alive()
        assert job.judged() is LivenessState.ALIVE


def test_a_task_that_never_may_write_lives_on_the_beats_of_the_others(
    runtime: ManualRuntime, storage: CountingStorage, job: Job
) -> None:
    refused = [Rule(op="put_if_match", nth=None)]
    throttled = SharedHeartbeat.join(FaultyStorage(storage, refused), job.record, runtime)
    assert throttled is not None
    other = job.task()
    runtime.advance(3600)
    assert throttled.alive()
    other.stop(delete=False)
    runtime.advance(121)
    with pytest.raises(RolledBackError, match="no reply to put_if_match"):
        throttled.ensure_alive()


def test_whichever_tasks_come_and_go_the_job_lives_until_the_last_has_gone(
    runtime: ManualRuntime, storage: CountingStorage, job: Job
) -> None:
    running: list[SharedHeartbeat] = []
    for _ in range(600):
        running += [job.task() for _ in range(runtime_choice(runtime, 4))]
        runtime.advance(1 + 20 * runtime.random())
        assert all(task.alive() for task in running)
        assert job.judged() is LivenessState.ALIVE
        while len(running) > 1 + runtime_choice(runtime, 6):
            running.pop(runtime_choice(runtime, len(running))).stop(delete=False)
    for task in running:
        task.stop(delete=False)
    runtime.advance(125)
    assert job.judged() is LivenessState.DEAD


def runtime_choice(runtime: ManualRuntime, below: int) -> int:
    return int(runtime.random() * below)


def test_tasks_too_short_for_a_look_keep_the_job_alive_by_what_they_write(
    runtime: ManualRuntime, storage: CountingStorage, job: Job
) -> None:
    for number in range(100):
        task = job.task()
        storage.put(f"marker-{number}", b"")
        marker, beat = storage.get(f"marker-{number}"), storage.get(layout.heartbeat(INSTANT))
        assert marker is not None and beat is not None
        task.wrote(beat, marker.modified_ms)
        task.stop(delete=False)
        runtime.advance(70)
        assert job.judged() is LivenessState.ALIVE


@pytest.mark.parametrize("fault", list(Fault))
def test_a_beat_at_the_end_of_a_task_may_fail(runtime: ManualRuntime, storage: CountingStorage, job: Job, fault: Fault) -> None:
    job.storage = FaultyStorage(storage, [Rule(op="put_if_match", nth=None, fault=fault)])
    beat = storage.get(layout.heartbeat(INSTANT))
    assert beat is not None
    job.task().wrote(beat, beat.modified_ms + 60_000)


def test_a_shared_heartbeat_that_was_removed_stays_so(runtime: ManualRuntime, storage: CountingStorage, job: Job) -> None:
    task = job.task()
    storage.delete([layout.heartbeat(INSTANT)])
    runtime.advance(60)
    with pytest.raises(RolledBackError, match="it was removed"):
        task.ensure_alive()
    assert storage.get(layout.heartbeat(INSTANT)) is None
    assert SharedHeartbeat.join(storage, job.record, runtime) is None


def test_tasks_do_not_revive_a_job_that_others_may_have_taken_for_dead(
    runtime: ManualRuntime, storage: CountingStorage, job: Job
) -> None:
    runtime.advance(119)
    task = job.task()
    runtime.advance(4)
    with pytest.raises(RolledBackError, match="it has been silent for too long"):
        task.ensure_alive()
    assert SharedHeartbeat.join(storage, job.record, runtime) is None
    assert Heartbeat.resume(storage, job.record, runtime) is None


def test_a_heartbeat_is_as_old_as_the_first_attempt_to_make_it(runtime: ManualRuntime) -> None:
    """The file may be that of the first, whose reply came too late."""

    class Slow(CountingStorage):
        """Its first answer and the reads after it get lost."""

        lost = 4

        def put_if_absent(self, key: str, data: bytes, *, durable: bool = True) -> str | None:
            made = super().put_if_absent(key, data, durable=durable)
            self._answer()
            return made

        def get(self, key: str) -> Stored | None:
            self._answer()
            return super().get(key)

        def _answer(self) -> None:
            if self.lost:
                self.lost -= 1
                runtime.advance(20)
                raise StorageUnavailable("no answer", hint="")

    heartbeat = started(Slow(MemoryStorage()), runtime)
    assert heartbeat.age_s() >= 80
    heartbeat.stop(delete=True)
