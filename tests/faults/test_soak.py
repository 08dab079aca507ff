"""The soak in its short form; `make soak` runs it for as long as one likes."""

from __future__ import annotations

import pytest

from tests.faults.soak import Soak
from tests.faults.soak_load import first_rows, operations, replay


@pytest.mark.slow
def test_twenty_seconds_of_mixed_load_with_kills_and_pauses_equal_the_serial_replay(tmp_path):
    soak = Soak(tmp_path, seconds=20, writers=3, quiet=True)
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
