"""What a transaction knows of its own decision changes as the table in `lakelock.occ.ending` says, and in no other way."""

from __future__ import annotations

from collections import Counter
from itertools import chain, islice, product

import pytest
from tests.simulation.planted.kinds import ANY, family
from tests.simulator.run import run
from tests.simulator.scenarios.swarm import scenario_of
from tests.sizes import examples

from lakelock.occ import ending
from lakelock.occ.ending import TRANSITIONS, Certainty, IllegalTransition, News, OwnDecision

KNOWN = (183, 3735, 2407)
"""They meet all of it. When the protocol has changed and they do not, `MOST` others of each kind are tried."""
LEAST, MOST = examples(3, 25), 150
"""How many seeds of each kind: of any, of those whose decisions often get no reply, of twins, and of paused collectors. At most
as many as it takes to meet everything that can be met."""
KINDS = (ANY, family("doubtful"), family("twinned"), family("stormy"))

UNMET = {
    (Certainty.UNTRIED, News.FOUND),
    (Certainty.BEATEN, News.FOUND),
    (Certainty.BEATEN, News.REJECTED),
    (Certainty.DOUBTED, News.SENDS),
    (Certainty.DOUBTED, News.HEARS_NOTHING),
    (Certainty.DOUBTED, News.COLLECTED),
    (Certainty.DECIDED, News.REJECTED),
}
"""What needs several faults in one commit, or a foreign rollback between decision and publication: these seeds lack it."""


def in_state(state: Certainty) -> OwnDecision:
    own = OwnDecision()
    own.certainty = state
    return own


@pytest.mark.parametrize(
    ("state", "news"), [pair for pair in product(Certainty, News) if pair not in TRANSITIONS], ids=lambda each: each.name
)
def test_a_transition_that_the_table_lacks_is_refused_and_changes_nothing(state: Certainty, news: News) -> None:
    own = in_state(state)
    with pytest.raises(IllegalTransition, match=state.value):
        own.learn(news)
    assert own.certainty is state


def test_the_table_of_the_docstring_is_the_table_of_the_code() -> None:
    rows = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in (ending.__doc__ or "").splitlines()]
    header = next(row for row in rows if row[1:2] == ["COMMITS"])
    shown = {
        (row[0], news): following
        for row in rows[rows.index(header) + 2 :]
        for news, following in zip(header[1:], row[1:], strict=False)
        if following
    }
    assert shown == {(state.name, news.name): following.name for (state, news), following in TRANSITIONS.items()}


@pytest.mark.in_ci
def test_simulated_commits_go_through_the_table_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    met: Counter[tuple[Certainty, News]] = Counter()
    learn = OwnDecision.learn

    def recorded(own: OwnDecision, news: News) -> None:
        met[own.certainty, news] += 1
        learn(own, news)

    monkeypatch.setattr(OwnDecision, "learn", recorded)
    of_each_kind = islice(zip(*(kind.scenarios() for kind in KINDS), strict=False), MOST)
    for number, scenario in enumerate(chain(map(scenario_of, KNOWN), chain.from_iterable(of_each_kind))):
        if number >= len(KNOWN) + LEAST * len(KINDS) and TRANSITIONS.keys() - met.keys() <= UNMET:
            break
        broken = [str(violation) for violation in run(scenario).violations]
        assert not [each for each in broken if IllegalTransition.__name__ in each], f"seed {scenario.seed}"
    assert met.keys() <= TRANSITIONS.keys()
    assert TRANSITIONS.keys() - met.keys() <= UNMET


def test_an_illegal_transition_is_told_as_a_bug_and_not_as_an_unknown_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(TRANSITIONS, (Certainty.TRYING, News.WINS))
    broken = [violation for violation in run(scenario_of(0)).violations if IllegalTransition.__name__ in violation.detail]
    assert {violation.promise for violation in broken} == {"no error but lakelock's own"}
