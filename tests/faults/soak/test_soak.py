"""The soak in its short form; `make soak` runs it for as long as one likes."""

from __future__ import annotations

import pytest
from tests.faults.soak.load import first_rows, operations, replay
from tests.faults.soak.run import Soak
from tests.faults.soak.usage import FILES, LONG_ENOUGH, MEMORY_MB, Usage, growth


@pytest.mark.in_ci
@pytest.mark.slow
def test_eight_seconds_of_mixed_load_with_kills_and_pauses_equal_the_serial_replay(tmp_path):
    soak = Soak(tmp_path, seconds=8, writers=3, quiet=True)
    summary = soak.run()
    print(summary)
    assert soak.problems == []
    assert soak.told["committed"] > 4 and soak.told["killed"] + soak.told["paused"] > 0


def test_the_replay_of_a_transfer_keeps_the_sum_of_all_accounts():
    model = {(where, key): value for key, value, where in first_rows()}
    done = [next(o for o in operations(writer, 0) if o.kind == "transfer") for writer in ("a", "b", "c")]
    for operation in done:
        replay(model, operation)
    accounts = [value for (where, _), value in model.items() if where == "accounts"]
    assert sum(accounts) == 6000 and len(set(accounts)) > 1


def test_writers_do_different_things_and_each_the_same_again():
    first = [next(operations(writer, 0)).rows for writer in ("a", "b")]
    assert first == [next(operations(writer, 0)).rows for writer in ("a", "b")] and first[0] != first[1]


FLAT = [Usage(200.0, 20)] * LONG_ENOUGH


def test_a_process_that_stays_as_it_is_has_not_grown():
    assert growth([FLAT, FLAT]) == (200.0, 20, [])


def test_what_a_process_takes_while_it_starts_and_gives_back_when_it_ends_is_no_growth():
    starting = [Usage(50.0, 3)] * (LONG_ENOUGH // 4)
    assert growth([[*starting, *FLAT, Usage(0.0, 0)]])[2] == []


@pytest.mark.parametrize(("more_mb", "more_files"), [(MEMORY_MB + 10, 0), (0, 3 * FILES)])
def test_a_process_that_takes_more_and_more_is_reported(more_mb, more_files):
    shares = [number / (2 * LONG_ENOUGH) for number in range(2 * LONG_ENOUGH)]
    rising = [Usage(200.0 + 3 * more_mb * share, 20 + round(3 * more_files * share)) for share in shares]
    most_mb, most_files, grown = growth([FLAT, rising])
    assert most_mb > 200.0 or most_files > 20
    assert len(grown) == 1 and grown[0].startswith("a writer grew by ")


def test_a_process_that_was_not_there_long_enough_is_measured_and_not_judged():
    rising = [Usage(200.0 + 10 * number, 20 + number) for number in range(LONG_ENOUGH - 1)]
    assert growth([rising]) == (200.0 + 10 * (LONG_ENOUGH - 2), 20 + LONG_ENOUGH - 2, [])
