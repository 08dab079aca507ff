"""The demo's feed and signals, what is told of them, and the two views."""

import io
from pathlib import Path

import pytest
from rich.console import Console
from tests.demo.feed import FeedReader, Line
from tests.demo.flights import DemoError
from tests.demo.lanes import LaneView, PlainView, open_view
from tests.demo.signals import Signals
from tests.demo.story import Cast, Step

from lakelock.clock import SystemRuntime
from lakelock.events import EventKind
from lakelock.identity import WriterIdentity

B = WriterIdentity("id", "demo", "host", 4711, "me")


@pytest.fixture
def cast() -> Cast:
    return Cast(1_000, pids={4711: "correction-a", 12: "late-feed"}, instants={"20260101": "late-feed"})


def test_half_a_line_waits_for_its_other_half(tmp_path: Path):
    text = Line(1, "w", "ready").to_json()
    (tmp_path / "w.jsonl").write_text(text[:10])
    reader = FeedReader(tmp_path)
    assert reader.new_lines() == []
    (tmp_path / "w.jsonl").write_text(text + "\n")
    assert reader.new_lines() == [Line(1, "w", "ready")]


def said(cast: Cast, kind: str, instant: str = "", **facts: object) -> str | None:
    step = cast.step(Line(2_500, "correction-b", kind, instant, "UPSERT", facts))
    return None if step is None else step.text


def test_what_one_writer_does_for_another_names_the_other(cast: Cast):
    assert said(cast, "finished-for-another", "20260101", decision=7) == "publish #7 for late-feed, which was killed"
    assert said(cast, "rolled-back", "20260101", files=2) == "roll back late-feed, which is dead: 2 files removed"


@pytest.mark.parametrize("kind", list(EventKind))
def test_no_event_is_too_bare_to_be_told(cast: Cast, kind: EventKind):
    said(cast, str(kind))


def test_no_color_and_plain_turn_the_live_view_off(monkeypatch: pytest.MonkeyPatch):
    console = Console(file=io.StringIO(), force_terminal=True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert isinstance(open_view(console, {}, plain=False), LaneView)
    assert isinstance(open_view(console, {}, plain=True), PlainView)
    monkeypatch.setenv("NO_COLOR", "1")
    assert isinstance(open_view(console, {}, plain=False), PlainView)


def test_a_signal_that_never_comes_is_waited_for_within_bounds(tmp_path: Path):
    signals = Signals(tmp_path, SystemRuntime())
    with pytest.raises(DemoError, match="'loaded' did not happen within 0 s"):
        signals.wait_for("loaded", 0.1)
    signals.give("loaded")
    signals.give("loaded")
    signals.wait_for("loaded", 0.1)


def test_a_lane_shows_the_newest_steps_that_fit_into_its_width():
    console = Console(file=io.StringIO(), force_terminal=True, width=60, record=True)
    with LaneView(console, {"stream": "appends the rest", "erasure": "deletes"}) as view:
        view.show([Step(n, "stream", f"step number {n}") for n in range(9)], 5.0, "all write")
        picture = view.picture(5.0, "all write")
    with console.capture() as captured:
        console.print(picture)
    text = captured.get()
    assert "step number 8" in text and "step number 1" not in text
    assert "deletes" in text and "not started" in text
