"""What a process knows of the decision of its own transaction: the one place that says when files may be removed.

| state | what is known | who may remove its files |
|---|---|---|
| `UNTRIED` | nothing was sent, and nobody else decides this commit | its process, at once |
| `ADOPTED` | another process of the job had it, and may have decided it | whoever decides its rollback in the log |
| `TRYING` | sent, and not answered yet | whoever decides its rollback |
| `BEATEN` | the number is another's now, and may have been its own before | whoever decides its rollback |
| `DOUBTED` | sent, and no answer excludes that it is decided | whoever decides its rollback |
| `DECIDED` | it is in the log | nobody, unless another engine has rolled it back |
| `REFUSED` | sent at some time, and certain never to be visible | whoever decides its rollback, which is certain to win |

| | `COMMITS` | `SENDS` | `LOSES` | `HEARS_NOTHING` | `COLLECTED` | `WINS` | `FOUND` | `REJECTED` | `UNCOLLECTED` |
|---|---|---|---|---|---|---|---|---|---|
| `UNTRIED` | `UNTRIED` | `TRYING` | | | | | `DECIDED` | `UNTRIED` | `UNTRIED` |
| `ADOPTED` | `UNTRIED` | | | | | | | | |
| `TRYING` | | | `BEATEN` | `DOUBTED` | `DOUBTED` | `DECIDED` | | | |
| `BEATEN` | | | | | | | `DECIDED` | `REFUSED` | `UNTRIED` |
| `DOUBTED` | | `DOUBTED` | `DOUBTED` | `DOUBTED` | `DOUBTED` | `DECIDED` | `DECIDED` | `REFUSED` | `DOUBTED` |
| `DECIDED` | | | | | | | | `REFUSED` | |

A doubt ends only when the decision is found, or when something excludes it for ever: losing a later number says nothing about
the number that was not answered. Whoever is beaten may have had the number, too: published and collected by others, and taken
again by a late request. A look at the log that finds nothing of its window collected excludes that. Any other transition raises
`IllegalTransition`, in production and in the simulator.
"""

from __future__ import annotations

from enum import Enum


class Certainty(Enum):
    """See the first table of the module."""

    UNTRIED = "untried"
    ADOPTED = "adopted"
    TRYING = "trying"
    BEATEN = "beaten"
    DOUBTED = "doubted"
    DECIDED = "decided"
    REFUSED = "refused"


class News(Enum):
    """What a process does or learns about its decision."""

    COMMITS = "begins to commit: a job commits once, so no other process of it has"
    SENDS = "sends the decision under a number"
    LOSES = "the number is another's"
    HEARS_NOTHING = "storage gave no answer"
    COLLECTED = "the number had been used and collected before, so the record means nothing"
    WINS = "the number is its own"
    FOUND = "its decision, or its completed instant, was found"
    REJECTED = "it conflicts, or has been rolled back"
    UNCOLLECTED = "nothing of its window was collected, so a number that is another's has never been its own"


_C, _N = Certainty, News

TRANSITIONS: dict[tuple[Certainty, News], Certainty] = {
    (_C.UNTRIED, _N.COMMITS): _C.UNTRIED,
    (_C.UNTRIED, _N.SENDS): _C.TRYING,
    (_C.UNTRIED, _N.FOUND): _C.DECIDED,
    (_C.UNTRIED, _N.REJECTED): _C.UNTRIED,
    (_C.UNTRIED, _N.UNCOLLECTED): _C.UNTRIED,
    (_C.ADOPTED, _N.COMMITS): _C.UNTRIED,
    (_C.TRYING, _N.LOSES): _C.BEATEN,
    (_C.TRYING, _N.HEARS_NOTHING): _C.DOUBTED,
    (_C.TRYING, _N.COLLECTED): _C.DOUBTED,
    (_C.TRYING, _N.WINS): _C.DECIDED,
    (_C.BEATEN, _N.FOUND): _C.DECIDED,
    (_C.BEATEN, _N.REJECTED): _C.REFUSED,
    (_C.BEATEN, _N.UNCOLLECTED): _C.UNTRIED,
    (_C.DOUBTED, _N.SENDS): _C.DOUBTED,
    (_C.DOUBTED, _N.LOSES): _C.DOUBTED,
    (_C.DOUBTED, _N.HEARS_NOTHING): _C.DOUBTED,
    (_C.DOUBTED, _N.COLLECTED): _C.DOUBTED,
    (_C.DOUBTED, _N.WINS): _C.DECIDED,
    (_C.DOUBTED, _N.FOUND): _C.DECIDED,
    (_C.DOUBTED, _N.REJECTED): _C.REFUSED,
    (_C.DOUBTED, _N.UNCOLLECTED): _C.DOUBTED,
    (_C.DECIDED, _N.REJECTED): _C.REFUSED,
}
"""The second table of the module."""


class IllegalTransition(AssertionError):
    """A bug of lakelock: nothing is removed then, and the log tells what is committed."""


class OwnDecision:
    """The certainty of one transaction, which owns it; its `Commit` tells it the news."""

    def __init__(self, *, adopted: bool = False) -> None:
        self.certainty = Certainty.ADOPTED if adopted else Certainty.UNTRIED

    def learn(self, news: News) -> None:
        """Go on to the next state; `IllegalTransition` when the table has none."""
        following = TRANSITIONS.get((self.certainty, news))
        if following is None:
            raise IllegalTransition(f"the decision of a transaction is {self.certainty.value}, and now: {news.value}")
        self.certainty = following

    @property
    def may_be_in_log(self) -> bool:
        """Whether only the log may withdraw it."""
        return self.certainty is not Certainty.UNTRIED

    @property
    def may_be_committed(self) -> bool:
        """Whether it is committed, or may be, for all that is known."""
        return self.certainty not in (Certainty.UNTRIED, Certainty.REFUSED)
