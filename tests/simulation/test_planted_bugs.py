"""Each line of the protocol that matters is knocked out in turn, and the simulator finds it: so its green means something."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelock.simulator.planted import PLANTED, Planted, first_seed
from lakelock.simulator.planted_table import table


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_a_planted_bug_is_found(planted: Planted) -> None:
    found = first_seed(planted)
    assert found is not None, f"not found in {planted.within} seeds"


def test_planted_bugs_are_gone_afterwards() -> None:
    from lakelock.occ import commit, decisions

    before = vars(commit.Commit)["_under_lock"], vars(decisions.DecisionLog)["look"]
    for planted in PLANTED:
        with planted.planted():
            pass
    assert before == (vars(commit.Commit)["_under_lock"], vars(decisions.DecisionLog)["look"])


def test_a_planted_bug_whose_line_has_gone_is_an_error() -> None:
    gone = Planted("gone", "", "occ.commit:Commit._decide", "no such line", "pass")
    with pytest.raises(ValueError, match="no such line"), gone.planted():
        pass


def test_the_document_shows_every_planted_bug_and_the_seed_that_finds_it() -> None:
    page = (Path(__file__).parents[2] / "docs" / "robustness.md").read_text()
    assert table((planted, planted.seed) for planted in PLANTED) in page
