"""A build's sample: the same for one commit, each promise and place in each build, and everything over a number of commits."""

from __future__ import annotations

import pytest
from tests.sampling import ONE_IN, PLACES, VARIABLE, Case, header, sample, seed_of_this_run

COMMITS = [f"{number:040x}" for number in range(60)]
STEPS = [f"step{number}" for number in range(30)]
EACH_RUN = [Case(f"tests/test_a.py::test_p{n}[storage]", f"p{n}") for n in range(5)]
ELSEWHERE = [Case(f"tests/test_a.py::test_p{n}[{place}]", f"p{n}", ONE_IN) for n in range(5) for place in PLACES]
NOWHERE_ELSE = [Case(f"tests/test_b.py::test_q[{step}]", "q", ONE_IN) for step in STEPS]
RARE = [Case(f"tests/test_c.py::test_seed[{number}]", "seeds", 10) for number in range(50)]
CASES = [*EACH_RUN, *ELSEWHERE, *NOWHERE_ELSE, *RARE]


@pytest.mark.parametrize("commit", COMMITS[:10])
def test_what_each_run_shows_is_never_left_out(commit: str) -> None:
    assert sample(CASES, commit) >= {case.node for case in EACH_RUN}


@pytest.mark.parametrize("commit", COMMITS[:10])
def test_a_commit_has_one_sample_whatever_the_order_and_whatever_else_is_collected(commit: str) -> None:
    chosen = sample(CASES, commit)
    assert sample(CASES[::-1], commit) == chosen
    again = [case for case in CASES if case.node in chosen]
    assert sample(again, commit) == chosen, "what failed and runs again is not left out then"
    assert sample(NOWHERE_ELSE, commit) == chosen & {case.node for case in NOWHERE_ELSE}


def test_each_promise_and_each_place_is_met_with_each_commit() -> None:
    few = [*EACH_RUN, *ELSEWHERE[: len(PLACES)], *NOWHERE_ELSE[:2], *RARE[:3]]
    for commit in COMMITS:
        chosen = [case for case in few if case.node in sample(few, commit)]
        assert {case.promise for case in chosen} == {case.promise for case in few}
        assert {place for case in chosen for place in case.places} == set(PLACES)


def test_all_are_met_over_a_number_of_commits_and_few_with_each() -> None:
    samples = [sample(CASES, commit) for commit in COMMITS]
    assert frozenset().union(*samples) == {case.node for case in CASES}
    some = len(ELSEWHERE) + len(NOWHERE_ELSE)
    for chosen in samples:
        seeds = sum("test_seed" in node for node in chosen)
        assert some / ONE_IN / 2 < len(chosen) - len(EACH_RUN) - seeds < some / ONE_IN * 2 + len(PLACES)
        assert 0 < seeds <= len(RARE) / 10 * 2.5


def test_a_test_that_is_named_alone_runs_with_any_commit() -> None:
    assert all(sample([case], commit) == {case.node} for case in CASES for commit in COMMITS[:5])


def test_the_commit_chooses_unless_the_variable_repeats_a_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    commit = seed_of_this_run()
    assert commit and commit == seed_of_this_run()
    monkeypatch.setenv(VARIABLE, "another")
    assert seed_of_this_run() == "another"
    assert f"{VARIABLE}='another'" in header("another")
