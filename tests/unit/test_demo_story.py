"""The demo's feed, the sentences made of it, and the two views."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from lakelock.clock import SystemRuntime
from lakelock.conflict import Conflict, ConflictRule, Party
from lakelock.demo.feed import Feed, FeedReader, Line, pid_in
from lakelock.demo.flights import DemoError
from lakelock.demo.lanes import LaneView, PlainView, open_view
from lakelock.demo.signals import Signals
from lakelock.demo.story import Cast, Step
from lakelock.demo.stream import forget_last_batch
from lakelock.events import Event, EventKind
from lakelock.identity import WriterIdentity

B = WriterIdentity("id", "demo", "host", 4711, "me")


@pytest.fixture
def cast() -> Cast:
    return Cast(1_000, pids={4711: "correction-a", 12: "late-feed"}, instants={"20260101": "late-feed"})


def test_what_was_told_is_read_once_and_in_order_of_time(tmp_path: Path):
    one, two = (Feed(tmp_path, name, SystemRuntime()) for name in ("one", "two"))
    reader = FeedReader(tmp_path)
    one.say("ready")
    two.event(Event(EventKind.CLAIMED, "t", "20260101", "UPSERT", {"groups": 3}))
    first = reader.new_lines()
    assert [(line.writer, line.kind, line.facts) for line in first] == [("one", "ready", {}), ("two", "claimed", {"groups": 3})]
    one.say("done")
    assert [line.kind for line in reader.new_lines()] == ["done"]
    assert reader.new_lines() == []


def test_half_a_line_waits_for_its_other_half(tmp_path: Path):
    text = Line(1, "w", "ready").to_json()
    (tmp_path / "w.jsonl").write_text(text[:10])
    reader = FeedReader(tmp_path)
    assert reader.new_lines() == []
    (tmp_path / "w.jsonl").write_text(text + "\n")
    assert reader.new_lines() == [Line(1, "w", "ready")]


def test_facts_that_are_no_plain_values_can_be_told(tmp_path: Path):
    conflict = Conflict.over(ConflictRule.FILE_GROUP, Party("1", "UPSERT", B), Party("2", "UPSERT"), ["month=1/a"])
    Feed(tmp_path, "w", SystemRuntime()).say("conflict", conflict=conflict, path=tmp_path)
    facts = FeedReader(tmp_path).new_lines()[0].facts
    assert facts["conflict"]["mine"]["writer"]["pid"] == 4711
    assert facts["path"] == str(tmp_path)


def test_the_process_is_found_in_the_text_of_an_identity():
    assert pid_in(Party("1", "UPSERT", B)) == 4711
    assert pid_in(Party("1", "UPSERT")) is None


def said(cast: Cast, kind: str, instant: str = "", **facts: object) -> str | None:
    step = cast.step(Line(2_500, "correction-b", kind, instant, "UPSERT", facts))
    return None if step is None else step.text


def test_an_early_conflict_names_the_other_writer_one_place_and_the_rule(cast: Cast):
    over = ["month=5/0123456789abcdef-0", "month=6/x-0"]
    other = str(Party("2", "UPSERT", B))
    text = said(cast, "early-conflict", "20260202", other=other, over=over, rule="file-group")
    assert text == "early conflict with correction-a over month=5/012345678… and 1 more (rule file-group)"


def test_what_one_writer_does_for_another_names_the_other(cast: Cast):
    assert said(cast, "finished-for-another", "20260101", decision=7) == "publish #7 for late-feed, which was killed"
    assert said(cast, "rolled-back", "20260101", files=2) == "roll back late-feed, which is dead: 2 files removed"


def test_removing_its_own_attempt_is_not_cleaning_up_after_another(cast: Cast):
    assert said(cast, "began", "20260909") == "begin upsert"
    assert said(cast, "rolled-back", "20260909", files=1) == "remove 1 file of its own attempt"


def test_a_commit_tells_its_number_and_rows_and_a_retry_which_attempt_comes(cast: Cast):
    assert said(cast, "committed", "1", decision=3, rows=12_000) == "commit #3, 12,000 rows written"
    assert said(cast, "retry", attempt=1, of=15) == "attempt 2 of 15"


@pytest.mark.parametrize("kind", list(EventKind))
def test_no_event_is_too_bare_to_be_told(cast: Cast, kind: EventKind):
    said(cast, str(kind))


def test_what_is_said_again_and_again_is_told_once(cast: Cast):
    assert said(cast, "waiting-for-lock", holder=f"late-feed ({B})") == "wait for the lock of correction-a"
    assert said(cast, "waiting-for-lock", holder=f"late-feed ({B})") is None
    assert said(cast, "committed", "1", decision=3, files=2) == "commit #3, 2 files written"
    assert said(cast, "waiting-for-lock", holder=f"late-feed ({B})") is not None


def test_a_kind_that_is_not_known_is_left_out(cast: Cast):
    assert said(cast, "something-new") is None


def test_steps_carry_the_seconds_since_the_beginning(cast: Cast):
    step = cast.step(Line(2_500, "stream", "writing"))
    assert step is not None and step.at_s == 1.5


STEPS = [Step(1.0, "stream", "ready", "wait", milestone=False), Step(2.0, "stream", "commit #1", "good")]


def test_plain_lines_tell_milestones_and_phases_without_colour():
    out = io.StringIO()
    with open_view(Console(file=out), {"stream": "appends"}, plain=False) as view:
        view.show(STEPS, 1.0, "all write")
        view.show([], 2.0, "all write")
    assert out.getvalue() == "   1.0 s  all write\n   2.0 s  stream        commit #1\n"


def test_no_color_and_plain_turn_the_live_view_off(monkeypatch: pytest.MonkeyPatch):
    console = Console(file=io.StringIO(), force_terminal=True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert isinstance(open_view(console, {}, plain=False), LaneView)
    assert isinstance(open_view(console, {}, plain=True), PlainView)
    monkeypatch.setenv("NO_COLOR", "1")
    assert isinstance(open_view(console, {}, plain=False), PlainView)


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


def test_a_passing_step_is_replaced_by_the_next_one():
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with LaneView(console, {"stream": ""}) as view:
        view.show(STEPS, 5.0, "x")
        with console.capture() as captured:
            console.print(view.picture(5.0, "x"))
    assert "commit #1" in captured.get() and "ready" not in captured.get()


def test_a_signal_that_never_comes_is_waited_for_within_bounds(tmp_path: Path):
    signals = Signals(tmp_path, SystemRuntime())
    with pytest.raises(DemoError, match="'loaded' did not happen within 0 s"):
        signals.wait_for("loaded", 0.1)
    signals.give("loaded")
    signals.give("loaded")
    signals.wait_for("loaded", 0.1)


def test_forgetting_the_last_batch_removes_the_newest_commit_of_the_checkpoint(tmp_path: Path):
    commits = tmp_path / "commits"
    commits.mkdir()
    for number in (2, 9, 10):
        (commits / str(number)).touch()
        (commits / f".{number}.crc").touch()
    assert forget_last_batch(tmp_path) == 10
    assert sorted(p.name for p in commits.iterdir()) == [".2.crc", ".9.crc", "2", "9"]
