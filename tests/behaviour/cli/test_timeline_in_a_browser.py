"""What a browser makes of the page of `lakelock timeline`: its layout and colours, and that it asks the network for nothing."""

from __future__ import annotations

from typing import Any

import pytest
from tests.browser import seen

from lakelock.admin.timeline_page import Bar, in_order, timeline_page

pytestmark = pytest.mark.waits

HOSTILE = 'Ann </title><script>document.title = "taken"</script>&amp; Bob'
ASKED = """{
    boxes: [...document.querySelectorAll("rect")].map(each => {
        const {left, right, top, bottom} = each.getBoundingClientRect()
        return {kind: each.getAttribute("class"), colour: getComputedStyle(each).fill, left, right, top, bottom}
    }),
    arrows: [...document.querySelectorAll("path.arrow")].map(each => {
        const from = each.getPointAtLength(0), to = each.getPointAtLength(each.getTotalLength())
        return [from.x, from.y, to.x, to.y]
    }),
    frame: document.querySelector("svg").getBoundingClientRect(),
    writers: [...document.querySelectorAll("text.writer")].map(each => each.firstChild.textContent),
    seen_of_writers: [...document.querySelectorAll("text.writer")].map(each => {
        const {left, right, top, bottom} = each.getBoundingClientRect(), middle = (top + bottom) / 2
        const own = x => document.elementFromPoint(x, middle) === each
        return [...Array(600).keys()].map(x => left + x).filter(own).length
    }),
    times: [...document.querySelectorAll("text[text-anchor]")].map(each => {
        const {left, right} = each.getBoundingClientRect()
        return [left, right]
    }),
    title: document.title,
    scripts: document.querySelectorAll("script").length,
    asked_for: performance.getEntriesByType("resource").length,
}"""


def bar(number: int, began_ms: int, ended_ms: int, outcome: str = "committed", writer: str = "ingest", **more: Any) -> Bar:
    return Bar(f"2026010100000{number}000", began_ms, ended_ms, outcome, "UPSERT", writer, "3 inserted", **more)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A commit that took the lock, one of another writer, one that was rejected because of the first, and one that runs."""
    bars = in_order([
        bar(1, 0, 4000, waited_ms=1000, locked_ms=500),
        bar(2, 1000, 2000, writer=HOSTILE),
        bar(3, 2000, 8000, "rejected", "correction", rule="file-group", blocked_by="20260101000001000"),
        bar(4, 9000, 10000, "pending"),
    ])  # fmt: skip
    found: dict[str, Any] = seen(timeline_page("s3://lake/trips", bars), ASKED, tmp_path_factory.mktemp("page"))
    return found


def boxes(shown: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [box for box in shown["boxes"] if box["kind"] == kind]


def test_each_transaction_is_a_bar_as_long_as_it_took_within_the_frame(shown: dict[str, Any]) -> None:
    first, second = boxes(shown, "committed")
    [rejected], [pending] = boxes(shown, "rejected"), boxes(shown, "pending")
    assert first["right"] - first["left"] == pytest.approx(4 * (second["right"] - second["left"]), abs=1)
    assert rejected["left"] == pytest.approx(second["right"], abs=1) and pending["left"] > rejected["right"]
    frame = shown["frame"]
    assert all(frame["left"] <= box["left"] and box["right"] <= frame["right"] for box in shown["boxes"])
    assert all(frame["top"] <= box["top"] and box["bottom"] <= frame["bottom"] for box in shown["boxes"])


def test_the_times_are_whole_and_a_long_name_ends_before_the_bars(shown: dict[str, Any]) -> None:
    frame = shown["frame"]
    assert all(frame["left"] < left and right < frame["right"] for left, right in shown["times"])
    _, long, _ = shown["seen_of_writers"]
    assert 200 < long <= min(box["left"] for box in shown["boxes"]) - frame["left"]


def test_waiting_for_the_lock_and_holding_it_are_the_end_of_the_bar_in_colours_of_their_own(shown: dict[str, Any]) -> None:
    [waited], [locked], first = boxes(shown, "waited"), boxes(shown, "locked"), boxes(shown, "committed")[0]
    assert (waited["right"], locked["right"]) == (pytest.approx(locked["left"], abs=1), pytest.approx(first["right"], abs=1))
    colours = {box["kind"]: box["colour"] for box in shown["boxes"]}
    assert len(set(colours.values())) == len(colours) == 5 and "rgb(0, 0, 0)" not in colours.values()


def test_the_arrow_leads_from_the_end_of_the_rejected_bar_to_the_end_of_the_one_that_it_met(shown: dict[str, Any]) -> None:
    [arrow], frame = shown["arrows"], shown["frame"]
    for (x, y), box in ((arrow[:2], boxes(shown, "rejected")[0]), (arrow[2:], boxes(shown, "committed")[0])):
        assert x + frame["left"] == pytest.approx(box["right"], abs=2)
        assert box["top"] < y + frame["top"] < box["bottom"]


def test_a_name_that_looks_like_a_script_is_text_and_the_page_asks_the_network_for_nothing(shown: dict[str, Any]) -> None:
    assert HOSTILE in shown["writers"]
    assert (shown["title"], shown["scripts"], shown["asked_for"]) == ("s3://lake/trips", 1, 0), "the one script is the test's"
