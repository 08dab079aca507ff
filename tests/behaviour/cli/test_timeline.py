"""`lakelock timeline`: a page of bars and arrows, from what a table has on record."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.api import LocalStorage
from tests.behaviour.cli.command_line import run, writer
from tests.behaviour.tables import insert, put_file

from lakelock.admin.timeline_page import Bar, lanes_of, timeline_page
from lakelock.errors import ConflictError


def kinds(page: str) -> list[str]:
    return re.findall(r'class="bar (\w+)"', page)


def test_the_page_shows_commits_and_who_was_rejected_because_of_whom(storage: LocalStorage, path: str, tmp_path: Path) -> None:
    coordinator = writer(storage)
    insert(coordinator, storage, "month=1", "f")
    loser, winner = coordinator.begin("UPSERT"), writer(storage).begin("DELETE")
    with winner:
        won = winner.commit([put_file(winner, storage, "month=1", "f", token="1-1-0")])
    with pytest.raises(ConflictError), loser:
        loser.commit([put_file(loser, storage, "month=1", "f")])
    open_one = coordinator.begin("INSERT")
    html = tmp_path / "page.html"
    ended = run("timeline", path, "--html", str(html), "--json")
    open_one.abort()
    bars = {bar["instant"]: bar for bar in ended.json["transactions"]}
    assert sorted(bar["outcome"] for bar in bars.values()) == ["committed", "committed", "pending", "rejected"]
    assert (bars[loser.instant]["blocked_by"], bars[loser.instant]["rule"]) == (won.instant, "file-group")
    page = html.read_text()
    assert (kinds(page).count("committed"), kinds(page).count("rejected")) == (2, 1)
    assert page.count('class="arrow"') == 1 and f"{loser.instant} met {won.instant}" in page
    assert f'id="{loser.instant}"' in page and "<dt>helps</dt>" in page


def test_a_table_without_commits_has_a_page_without_bars(path: str, tmp_path: Path) -> None:
    html = tmp_path / "page.html"
    assert "0 transactions" in run("timeline", path, "--html", str(html)).out
    assert kinds(html.read_text()) == []


def bar(instant: str, began_ms: int, ended_ms: int, writer: str = "w", operation: str = "INSERT") -> Bar:
    return Bar(instant, began_ms, ended_ms, "committed", operation, writer, "1 inserted")


def test_texts_of_a_table_that_an_attacker_made_are_shown_and_not_run() -> None:
    hostile = '"><script>alert(1)</script>'
    page = timeline_page(f"file:///{hostile}", [bar("1", 0, 5, hostile, hostile)])
    assert "<script" not in page and kinds(page) == ["committed"]


def test_bars_that_overlap_are_in_different_lanes_and_those_of_a_writer_together() -> None:
    bars = [bar("1", 0, 10), bar("2", 5, 15, "other"), bar("3", 6, 12), bar("4", 11, 20)]
    assert lanes_of(bars) == {"1": 0, "3": 1, "4": 0, "2": 2}


def test_the_data_needs_no_page_and_a_page_that_cannot_be_written_is_said(storage: LocalStorage, path: str) -> None:
    insert(writer(storage), storage, "month=1", "f")
    ended = run("timeline", path, "--json")
    assert ended.code == 0 and len(ended.json["transactions"]) == 1
    for html in ("/nowhere/page.html", path):
        ended = run("timeline", path, "--html", html)
        assert ended.code != 0 and "cannot write" in ended.err and "Traceback" not in ended.err
    assert "add --html FILE" in run("timeline", path).err
