"""Where the time of a write went: told by its event, its report and the history."""

from __future__ import annotations

import pyarrow as pa
from tests.api import ArrowEngine
from tests.behaviour.tables import SCHEMA, Recorder, memory_table, writer

from lakelock.metrics import commit_report
from lakelock.occ.committed import Phase, Phases
from lakelock.testing.runtime import ManualRuntime


def test_the_time_of_an_inner_phase_is_not_that_of_the_outer_one() -> None:
    runtime = ManualRuntime()
    phases = Phases(runtime)
    with phases.during(Phase.VALIDATE):
        runtime.sleep(1)
        with phases.during(Phase.LOCK_WAIT):
            runtime.sleep(3)
        runtime.sleep(0.5)
        assert phases.seconds() == {"lock-wait": 3.0, "validate": 1.5}
    runtime.sleep(7)
    assert phases.seconds() == {"lock-wait": 3.0, "validate": 1.5}


def test_a_phase_that_took_less_than_half_a_millisecond_is_told() -> None:
    runtime = ManualRuntime()
    phases = Phases(runtime)
    with phases.during(Phase.PUBLISH):
        runtime.sleep(0.0002)
    assert phases.seconds() == {"publish": 0.0}


def test_an_upsert_tells_its_phases_in_its_result_event_report_and_history() -> None:
    storage, recorder = memory_table(), Recorder()
    coordinator = writer(storage, listener=recorder)
    engine = ArrowEngine(coordinator)
    many = pa.table([[f"k{n}" for n in range(20_000)], [1] * 20_000, ["1"] * 20_000], schema=SCHEMA)
    engine.insert(many)
    done = engine.upsert(many)
    assert {"look-up", "write", "validate"} <= done.phases.keys()
    assert sum(done.phases.values()) <= done.took_s + 0.01
    [told] = [e for e in recorder.events if e.kind.value == "committed" and e.instant == done.instant]
    assert told.facts["phases"] == done.phases
    assert commit_report(told)["metrics"]["write-duration"]["total-duration"] == round(done.phases["write"] * 1e9)
    entry = coordinator.history(1)[0]
    assert entry.phases["write"] == done.phases["write"]
    assert "publish" not in entry.phases, "the history is written before the publication"
