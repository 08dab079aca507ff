"""The demo's feed and signals, and the two views."""

import io
from pathlib import Path

import pytest
from rich.console import Console
from tests.api import SystemRuntime
from tests.demo.feed import FeedReader, Line
from tests.demo.flights import DemoError
from tests.demo.lanes import LaneView, PlainView, open_view
from tests.demo.signals import Signals


def test_half_a_line_waits_for_its_other_half(tmp_path: Path):
    text = Line(1, "w", "ready").to_json()
    (tmp_path / "w.jsonl").write_text(text[:10])
    reader = FeedReader(tmp_path)
    assert reader.new_lines() == []
    (tmp_path / "w.jsonl").write_text(text + "\n")
    assert reader.new_lines() == [Line(1, "w", "ready")]


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
