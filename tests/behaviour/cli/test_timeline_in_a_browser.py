"""What a browser makes of the page of `lakelock timeline`: its layout and colours, and that it asks the network for nothing."""

from __future__ import annotations

import random
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from tests.browser import seen

from lakelock.admin.timeline_page import Bar, bands_of, in_order, timeline_page
from lakelock.table.instants import format_instant

pytestmark = pytest.mark.waits

HOSTILE = 'Ann </title><script>document.title = "taken"</script>&amp; Bob'
ASKED = """(() => {
    const box = each => {
        const {left, right, top, bottom} = each.getBoundingClientRect()
        return {kind: each.className, text: each.innerText, left, right, top, bottom,
                colour: getComputedStyle(each).backgroundColor}
    }
    const all = what => [...document.querySelectorAll(what)].map(box)
    const why = document.querySelector(".why"), shown = () => why && getComputedStyle(why).display !== "none"
    const before = shown()
    document.querySelector("a.bar.rejected")?.click()
    return {
        bars: all(".bar"), parts: all(".bar i"), labels: all(".label"), bands: all(".band"), ticks: all(".tick span"),
        writers: all(".writer"), hits: all(".hit"), idle: all(".idle"), folds: all(".fold span"),
        page: getComputedStyle(document.body).backgroundColor,
        arrows: [...document.querySelectorAll("path.arrow")].map(each => each.getAttribute("d")),
        width: document.documentElement.scrollWidth, window: window.innerWidth, opened: [before, shown()],
        why: why?.innerText ?? "", title: document.title, scripts: document.querySelectorAll("script").length,
        asked_for: performance.getEntriesByType("resource").length,
    }
})()"""


def bar(number: int, began_ms: int, ended_ms: int, outcome: str = "committed", writer: str = "ingest", **more: Any) -> Bar:
    return Bar(f"2026010100000{number}000", began_ms, ended_ms, outcome, "UPSERT", writer, "3 inserted", **more)


BARS = in_order([
    bar(1, 0, 4000, waited_ms=1000, locked_ms=500, rows=1234),
    bar(2, 1000, 2000, writer=HOSTILE),
    bar(3, 2000, 8000, "rejected", "correction", rule="file-group", blocked_by="20260101000001000", why={"helps": "again"}),
    bar(4, 8500, 10000, "pending"),
    bar(5, 3_600_000, 3_601_000),
])  # fmt: skip


def crowd() -> tuple[Bar, ...]:
    """300 commits of 8 writers, with rejections and hours without any between them."""
    chosen, bars, now_ms = random.Random(5), list[Bar](), 1_763_712_000_000
    free_ms = dict.fromkeys((f"orders-job-{n} (etl@node-{n}, pid {4000 + n})" for n in range(8)), 0)
    for number in range(300):
        writer = chosen.choice(sorted(free_ms))
        now_ms += chosen.randint(100, 3000) + (3_600_000 if number % 40 == 39 else 0)
        began_ms = max(now_ms, free_ms[writer])
        free_ms[writer] = began_ms + chosen.choice([150, 900, 9000])
        instant, operation = format_instant(began_ms + number), chosen.choice(["INSERT", "UPSERT", "INSERT_OVERWRITE_TABLE"])
        bars.append(Bar(instant, began_ms, free_ms[writer], "committed", operation, writer, "told", rows=12 ** (number % 7)))
        if number % 10 == 9:
            lost = format_instant(began_ms + 1000 + number)
            told = {"why": {"helps": "run it again " * 40}, "blocked_by": instant, "rule": "file-group"}
            bars.append(Bar(lost, began_ms, free_ms[writer], "rejected", "UPSERT", "other", "told", **told))
    return in_order(bars)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A commit that took the lock, one of another writer, one rejected because of the first, one that runs, one later."""
    found: dict[str, Any] = seen(timeline_page("s3://lake/trips", BARS), ASKED, tmp_path_factory.mktemp("page"))
    return found


def of(shown: dict[str, Any], what: str, kind: str = "") -> list[dict[str, Any]]:
    return [box for box in shown[what] if kind in box["kind"].split() or not kind]


def apart(one: dict[str, Any], other: dict[str, Any]) -> bool:
    sideways = one["right"] <= other["left"] + 1 or other["right"] <= one["left"] + 1
    return sideways or one["bottom"] <= other["top"] + 1 or other["bottom"] <= one["top"] + 1


def test_each_transaction_is_a_bar_as_long_as_it_took_within_its_band(shown: dict[str, Any]) -> None:
    first, second, _ = of(shown, "bars", "committed")
    [rejected], [pending], band = of(shown, "bars", "rejected"), of(shown, "bars", "pending"), shown["bands"][0]
    assert first["right"] - first["left"] == pytest.approx(4 * (second["right"] - second["left"]), abs=2)
    assert rejected["left"] == pytest.approx(second["right"], abs=2) and pending["left"] > rejected["right"]
    assert all(band["left"] <= box["left"] and box["right"] <= band["right"] + 1 for box in shown["bars"])
    assert [label["text"] for label in shown["labels"]][:2] == ["UPSERT 1,234", "UPSERT"]


def test_an_hour_without_a_transaction_is_folded(shown: dict[str, Any]) -> None:
    assert len(shown["bands"]) == 2 and [each["text"] for each in shown["idle"]] == ["59 min 50 s without a transaction"]


def test_a_long_transaction_is_folded_where_nothing_else_happens_so_that_short_ones_beside_it_are_seen(tmp_path: Path) -> None:
    short = [bar(n % 10, 600_000 + 1000 * n, 600_500 + 1000 * n, writer=f"job {n}", rows=1) for n in range(10)]
    bars = in_order([bar(0, 0, 620_000, writer="slow", waited_ms=1000, locked_ms=1000), *short])
    for width in (1400, 390):
        found = seen(timeline_page("s3://lake/trips", bars), ASKED, tmp_path, width=width)
        assert [each["text"] for each in found["folds"]] == ["10 min 0 s, folded"]
        band, [long, *others] = found["bands"][0], found["bars"]
        assert (long["left"], long["right"]) == (pytest.approx(band["left"], abs=1), pytest.approx(band["right"], abs=1))
        assert all(each["right"] - each["left"] > 0.02 * width * 0.9 for each in others), "half a second of twenty"
        [waited], [locked] = of(found, "parts", "waited"), of(found, "parts", "locked")
        assert locked["right"] - locked["left"] == pytest.approx(2 * (others[0]["right"] - others[0]["left"]), abs=3)
        assert waited["right"] == pytest.approx(locked["left"], abs=1)
        assert all(each["left"] >= 0 and each["right"] <= width for each in found["folds"])


def test_waiting_for_the_lock_and_holding_it_are_the_end_of_the_bar_in_colours_of_their_own(shown: dict[str, Any]) -> None:
    [waited], [locked], first = of(shown, "parts", "waited"), of(shown, "parts", "locked"), of(shown, "bars", "committed")[0]
    assert (waited["right"], locked["right"]) == (pytest.approx(locked["left"], abs=1), pytest.approx(first["right"], abs=1))
    colours = {box["kind"]: box["colour"] for box in (*shown["bars"], *shown["parts"])}
    assert len(set(colours.values())) == len(colours) == 5


def test_the_arrow_leads_from_the_end_of_the_rejected_bar_to_the_end_of_the_one_that_it_met(shown: dict[str, Any]) -> None:
    [arrow], [hit], band = shown["arrows"], shown["hits"], shown["bands"][0]
    [rejected], met = of(shown, "bars", "rejected"), of(shown, "bars", "committed")[0]
    x, y = map(float, arrow.split(" L")[0].removeprefix("M").split())
    assert band["left"] + x / 100 * (band["right"] - band["left"]) == pytest.approx(rejected["right"], abs=2)
    assert rejected["top"] < band["top"] + y < rejected["bottom"]
    assert (hit["left"] + hit["right"]) / 2 == pytest.approx(met["right"], abs=2)
    assert met["top"] < (hit["top"] + hit["bottom"]) / 2 < met["bottom"]


def test_a_click_on_a_rejected_bar_opens_why(shown: dict[str, Any]) -> None:
    assert shown["opened"] == [False, True] and "again" in shown["why"]


def test_a_name_that_looks_like_a_script_is_text_and_the_page_asks_the_network_for_nothing(shown: dict[str, Any]) -> None:
    assert HOSTILE in [each["text"] for each in shown["writers"]]
    assert (shown["title"], shown["scripts"], shown["asked_for"]) == ("s3://lake/trips", 1, 0), "the one script is the test's"


@pytest.mark.parametrize("width", [1400, 390])
def test_300_commits_of_8_writers_fit_the_screen_and_no_text_or_bar_lies_on_another(tmp_path: Path, width: int) -> None:
    found = seen(timeline_page("s3://lake/orders", crowd()), ASKED, tmp_path, width=width)
    assert found["width"] <= found["window"] == width and (tmp_path / "page.png").stat().st_size > 0
    assert len(found["bars"]) == 330 and len(found["bands"]) == len(bands_of(crowd()))
    found["ticks"] = [each for each in found["ticks"] if each["right"] > each["left"]]
    edges = [each for what in ("bars", "labels", "ticks", "writers") for each in found[what]]
    assert all(each["left"] >= 0 and each["right"] <= width for each in edges)
    for kind in ("bars", "ticks"):
        assert all(apart(*two) for two in combinations(found[kind], 2)), kind
    labels = [each for each in found["labels"] if "on" not in each["kind"].split()]
    assert all(apart(label, box) for label in labels for box in found["bars"])


def test_a_screen_at_night_gets_a_dark_page(tmp_path: Path) -> None:
    dark = seen(timeline_page("s3://lake/trips", BARS), ASKED, tmp_path, dark=True)
    assert dark["page"] == "rgb(13, 17, 23)"
