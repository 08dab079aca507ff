"""What the demo must have shown before it may call itself good."""

import pytest
from tests.demo.bookings.verdict import promises_of_moves
from tests.demo.commits import TableCommit
from tests.demo.compare import Comparison
from tests.demo.feed import Line
from tests.demo.plan import (
    AGENT_A,
    AGENT_B,
    AGENT_C,
    AUDITOR,
    CHUNKS,
    CORRECTION_A,
    CORRECTION_B,
    ERASURE,
    LATE_FEED,
    LOADER,
    RECOUNT,
    STREAM,
    Operation,
)
from tests.demo.promise import Promise
from tests.demo.replay import Applied
from tests.demo.story import Cast
from tests.demo.verdict import Verdict, promises_of_the_feed, promises_of_the_table

CAST = Cast(0, pids={7: CORRECTION_A, 8: RECOUNT}, instants={"1": LATE_FEED, "2": RECOUNT})
TOLD = [
    Line(1, CORRECTION_B, "early-conflict", "3", "UPSERT", {"other": "UPSERT 2 by a (me@host, pid 7)"}),
    Line(2, STREAM, "replayed", facts={"number": 4}),
    Line(3, LATE_FEED, "killed"),
    Line(4, RECOUNT, "killed"),
    Line(5, STREAM, "finished-for-another", "1"),
    Line(6, ERASURE, "rolled-back", "2", facts={"files": 2}),
    Line(7, LOADER, "upkept", facts={"files": 9, "problems": []}),
    Line(8, AGENT_A, "killed"),
    Line(9, AGENT_B, "killed"),
]
MOVES = Cast(0, instants={"bookings/1": AGENT_A, "seats/1": AGENT_A, "bookings/2": AGENT_B, "seats/3": AGENT_B})


def ended(part: str, *, published: bool) -> Line:
    facts = {"part": part, "table": part.partition("/")[0], "published": published}
    return Line(2, AGENT_C, "move-ended", facts=facts)


MOVED = [
    Line(1, AGENT_C, "moved", facts={"booking": "B01", "there": "UA 15, seat 1A"}),
    ended("bookings/1", published=False),
    ended("seats/1", published=False),
    ended("seats/3", published=True),
    Line(3, AUDITOR, "audited", facts={"looks": 9, "wrong": 0, "torn": 3}),
]


def applied(*writers: str) -> list[Applied]:
    commit = TableCommit(1, "1", "2", "", 1, None, {}, frozenset())
    return [Applied(commit, Operation(writer, "insert", ""), ()) for writer in writers]


COMMITTED = [LOADER, CORRECTION_A, CORRECTION_B, LATE_FEED, ERASURE, *[STREAM] * CHUNKS]


def test_a_run_that_showed_everything_kept_its_promises():
    assert all(promise.kept for promise in (*promises_of_the_feed(TOLD, CAST), *promises_of_the_table(applied(*COMMITTED))))


@pytest.mark.parametrize("missing", range(len(TOLD)))
def test_each_thing_that_was_not_shown_breaks_one_promise(missing: int):
    told = [line for number, line in enumerate(TOLD) if number != missing]
    assert [promise.kept for promise in promises_of_the_feed(told, CAST)].count(False) == 1


def test_moves_that_were_ended_in_both_tables_and_never_seen_by_halves_kept_their_promises():
    assert [promise.kept for promise in promises_of_moves(MOVED, MOVES)] == [True] * 3


@pytest.mark.parametrize("missing", range(len(MOVED)))
def test_a_move_that_was_not_ended_or_not_looked_at_breaks_one_promise(missing: int):
    told = [line for number, line in enumerate(MOVED) if number != missing]
    assert [promise.kept for promise in promises_of_moves(told, MOVES)].count(False) == 1


def test_two_that_withdraw_the_same_move_at_once_break_no_promise():
    twice = Line(2, AGENT_B, "move-ended", facts={"part": "seats/1", "table": "seats", "published": False})
    assert all(promise.kept for promise in promises_of_moves([*MOVED, twice], MOVES))


def test_half_a_move_that_was_seen_once_breaks_a_promise():
    seen = Line(3, AUDITOR, "audited", facts={"looks": 9, "wrong": 1, "torn": 3})
    assert not promises_of_moves([*MOVED[:-1], seen], MOVES)[0].kept


def test_on_a_merge_on_read_table_whichever_correction_decides_second_finds_the_collision():
    second = Line(1, CORRECTION_A, "conflict", "3", "UPSERT", {"other": "UPSERT 2 by a (me@host, pid 9)"})
    cast = Cast(0, pids={7: CORRECTION_A, 9: CORRECTION_B}, instants=CAST.instants)
    assert promises_of_the_feed([second, *TOLD[1:]], cast, has_logs=True)[0].kept
    assert promises_of_the_feed(TOLD, CAST, has_logs=True)[0].kept
    assert not promises_of_the_feed(TOLD[1:], CAST, has_logs=True)[0].kept


def test_a_collision_with_somebody_else_is_not_the_promised_one():
    other = Line(1, CORRECTION_B, "early-conflict", "3", "UPSERT", {"other": "UPSERT 2 by a (me@host, pid 8)"})
    assert not promises_of_the_feed([other, *TOLD[1:]], CAST)[0].kept


@pytest.mark.parametrize("lost", [ERASURE, STREAM, LATE_FEED])
def test_a_writer_or_a_batch_that_is_not_in_the_table_breaks_a_promise(lost: str):
    writers = list(COMMITTED)
    writers.remove(lost)
    assert not all(promise.kept for promise in promises_of_the_table(applied(*writers)))


def test_a_commit_of_the_writer_that_died_before_deciding_breaks_a_promise():
    assert not all(promise.kept for promise in promises_of_the_table(applied(*COMMITTED, RECOUNT)))


def test_a_verdict_is_good_only_if_promises_are_kept_and_readers_agree():
    kept, broken = Promise(True, ""), Promise(False, "")
    same, different = Comparison("r", 1, 0, 0), Comparison("r", 1, 1, 0)
    assert Verdict((), (kept,), (same,), 0, 1, 1.0).good
    assert not Verdict((), (kept, broken), (same,), 0, 1, 1.0).good
    assert not Verdict((), (kept,), (same, different), 0, 1, 1.0).good
