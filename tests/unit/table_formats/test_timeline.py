"""Instants and the timeline: what is there, how far it is, and whose files count."""

from __future__ import annotations

import time
from datetime import datetime, timezone

import pytest
from tests.api import Action, Instant, MemoryStorage, State, Timeline, format_instant, layout, parse_instant, read_timeline

from lakelock.errors import CorruptTableError, InputError
from lakelock.storage import Listed
from lakelock.table.instants import as_of_time, later_than, parse_file_name, time_of


def at(second: int) -> str:
    return f"202611210000{second:02}000"


def completed(second: int, action: str = "commit", completion: str = "") -> str:
    return f"{at(second)}_{completion or at(second)}.{action}"


def timeline_of(*names: str, size_bytes: int = 9, archive: tuple[str, ...] = ("history/_version_",)) -> Timeline:
    return Timeline.from_listing(Listed(layout.timeline(name), size_bytes, 0) for name in (*names, *archive))


@pytest.mark.parametrize(
    ("name", "instant"),
    [
        (f"{at(1)}.commit.requested", Instant(at(1), Action.COMMIT, State.REQUESTED)),
        (f"{at(1)}.inflight", Instant(at(1), Action.COMMIT, State.INFLIGHT)),
        (f"{at(1)}_{at(2)}.commit", Instant(at(1), Action.COMMIT, State.COMPLETED, at(2))),
        (f"{at(1)}.replacecommit.inflight", Instant(at(1), Action.REPLACE_COMMIT, State.INFLIGHT)),
        (f"{at(1)}.clustering.requested", Instant(at(1), Action.CLUSTERING, State.REQUESTED)),
        (f"{at(1)}.savepoint.inflight", Instant(at(1), Action.SAVEPOINT, State.INFLIGHT)),
        ("20261121000001.rollback.requested", Instant("20261121000001", Action.ROLLBACK, State.REQUESTED)),
    ],
)
def test_a_file_name_says_which_instant_is_in_which_state(name: str, instant: Instant) -> None:
    assert parse_file_name(name) == instant
    assert instant.file_name == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "hoodie.properties",
        "history",
        "manifest_1",
        f"{at(1)}",
        f"{at(1)}.commit",
        f"{at(1)}.commit.inflight",
        f"{at(1)}.commit.requested.crc",
        f".{at(1)}.commit.requested.crc",
        f"{at(1)}_{at(2)}.commit.requested",
        f"{at(1)}_{at(2)}.inflight",
        f"{at(1)}_{at(2)}.clustering",
        f"{at(1)}_{at(2)}.compaction",
        f"{at(1)}.somethingnew.requested",
        f"{at(1)}_{at(2)}.commit\n",
        "2026112100000100.commit.requested",
        "".join(map(chr, range(0xFF11, 0xFF18))) * 2 + "123.inflight",
    ],
)
def test_other_files_are_no_instants(name: str) -> None:
    assert parse_file_name(name) is None


def test_instant_times_are_utc_to_the_millisecond() -> None:
    assert format_instant(1_795_253_257_397) == "20261121092737397"
    assert parse_instant("20261121092737397") == 1_795_253_257_397
    assert parse_instant("20261121092737") == 1_795_253_257_999
    assert format_instant(0) == "19700101000000000"


@pytest.mark.parametrize(
    "text", ["", "2026", "20261321092737397", "20260230000000000", "2026112109273739x", "99999999999999999"]
)
def test_what_is_no_time_is_corrupt(text: str) -> None:
    with pytest.raises(CorruptTableError, match="is not an instant time"):
        parse_instant(text)


def test_a_new_instant_time_is_after_everything_and_never_waits_for_a_clock_behind() -> None:
    now_ms = parse_instant(at(5))
    assert later_than(now_ms, None) == later_than(now_ms, "") == later_than(now_ms, at(4)) == at(5)
    assert later_than(now_ms, at(5)) == "20261121000005001"
    assert later_than(now_ms, "20261121010000999") == "20261121010001000"
    assert later_than(now_ms, "20261231235959999") == "20270101000000000"
    with pytest.raises(CorruptTableError, match="no later instant time"):
        later_than(now_ms, "99991231235959999")


@pytest.mark.parametrize(
    ("spoken", "instant"),
    [
        ("20261121092737397", "20261121092737397"),
        (" 2026-11-21 ", "20261121000000000"),
        ("2026-11-21 09:27", "20261121092700000"),
        ("2026-11-21T09:27:37.397", "20261121092737397"),
        ("2026-11-21 09:27:37.3974", "20261121092737397"),
        ("2026-11-21T09:27:37Z", "20261121092737000"),
        ("2026-11-21 00:27:37 +02:00", "20261120222737000"),
        ("2026-11-21 23:27:37.5-0130", "20261122005737500"),
    ],
)
def test_people_may_say_a_time_in_their_way(spoken: str, instant: str) -> None:
    assert as_of_time(spoken) == instant


@pytest.mark.parametrize("spoken", ["", "yesterday", "2026-13-01", "2026-11-21 25:00", "2026112109", "0001-01-01 00:00 +14:00"])
def test_a_time_that_nobody_understands_is_an_input_error(spoken: str) -> None:
    with pytest.raises(InputError, match="neither an instant time nor a date"):
        as_of_time(spoken)


def test_each_instant_counts_once_in_its_most_advanced_state() -> None:
    timeline = timeline_of(
        f"{at(2)}.commit.requested",
        completed(1, completion=at(3)),
        f"{at(1)}.inflight",
        f"{at(1)}.commit.requested",
        f"{at(2)}.inflight",
        f"{at(4)}.clustering.requested",
        f"{at(5)}.replacecommit.requested",
        f"{at(6)}.rollback.inflight",
    )
    assert [str(i) for i in timeline.instants] == [
        f"commit {at(1)} (completed)",
        f"commit {at(2)} (inflight)",
        f"clustering {at(4)} (requested)",
        f"replacecommit {at(5)} (requested)",
        f"rollback {at(6)} (inflight)",
    ]
    assert [i.requested for i in timeline.commits] == [at(1)] and timeline.completed_instants == {at(1)}
    assert [i.requested for i in timeline.pending] == [at(2), at(5)]
    assert [i.requested for i in timeline.pending_services] == [at(4)]
    assert [i.requested for i in timeline.rollbacks] == [at(6)]
    assert timeline.state_of(at(2)) is State.INFLIGHT and timeline.state_of(at(6)) is None
    assert timeline.newest_time == at(6)


def test_a_completed_clustering_is_not_pending_under_its_plan() -> None:
    timeline = timeline_of(
        f"{at(1)}.clustering.requested", f"{at(1)}.clustering.inflight", completed(1, "replacecommit", at(2))
    )
    assert not timeline.pending_services and len(timeline.commits) == len(timeline.instants) == 1
    assert timeline.newest_time == at(2)


def test_of_two_completions_the_first_counts() -> None:
    for names in (
        [completed(1, completion=at(3)), completed(1, completion=at(2))],
        [completed(1), completed(1, completion=at(2))],
    ):
        (instant,) = timeline_of(*names).commits
        assert instant.file_name == min(names)


def test_an_empty_completed_commit_is_refused_by_name() -> None:
    with pytest.raises(CorruptTableError, match=f"{at(1)}_{at(1)}.commit is empty") as caught:
        timeline_of(completed(1), size_bytes=0)
    assert caught.value.details["file"] == layout.timeline(completed(1)) and caught.value.hint
    assert timeline_of(f"{at(1)}.commit.requested", f"{at(1)}.inflight", completed(2, "clean"), size_bytes=0).pending


def test_an_empty_timeline_shows_nothing() -> None:
    timeline = timeline_of()
    assert (timeline.first_active, timeline.newest_time, timeline.commits) == ("", "", ())
    assert not timeline.is_visible(at(1))


def test_files_count_when_their_instant_is_completed_or_was_archived() -> None:
    timeline = timeline_of(
        f"{at(1)}.clean.requested", completed(3), f"{at(4)}.inflight", completed(6), f"{at(7)}.clustering.inflight"
    )
    visible = {second: timeline.is_visible(at(second)) for second in range(1, 9)}
    assert visible == {1: True, 2: True, 3: True, 4: False, 5: False, 6: True, 7: False, 8: False}


def test_where_nothing_was_archived_only_what_is_completed_counts() -> None:
    # A rolled back writer that was paused, or one with a slow clock that has just begun, may have files older than all commits.
    timeline = timeline_of(completed(3), f"{at(4)}.inflight", archive=())
    assert timeline.is_visible(at(3)) and not timeline.is_visible(at(2))


def test_where_nothing_is_completed_nothing_was_archived() -> None:
    # An archive always leaves completed commits. An older file is that of a writer with a slow clock, or of one rolled back.
    timeline = Timeline.of(
        [Instant(at(4), Action.COMMIT, State.INFLIGHT), Instant(at(5), Action.DELTA_COMMIT, State.REQUESTED)]
    )
    assert timeline.first_active == ""
    assert not timeline.is_visible(at(2)) and not timeline.is_visible(at(4))


def test_a_pending_instant_is_where_the_active_timeline_starts() -> None:
    # Nothing that was requested after a pending instant is ever archived, so what is missing there was never committed.
    timeline = timeline_of(f"{at(2)}.inflight", completed(5))
    assert timeline.first_active == at(2)
    assert timeline.is_visible(at(1)) and not timeline.is_visible(at(2)) and not timeline.is_visible(at(3))


def test_a_pending_instant_that_is_older_than_the_end_of_the_archive_does_not_hide_what_was_archived() -> None:
    # A writer with a slow clock has just begun; it sees the later commits and takes another instant.
    archive = ("history/_version_", f"history/{at(2)}_{at(4)}_0.parquet")
    timeline = timeline_of(f"{at(1)}.inflight", completed(6), archive=archive)
    assert timeline.first_active == at(6)
    assert not timeline.is_visible(at(1)) and timeline.is_visible(at(2)) and timeline.is_visible(at(4))
    assert timeline_of(f"{at(1)}.inflight", completed(4), completed(6), archive=archive).is_visible(at(3))


def test_a_saved_commit_does_not_hide_what_was_archived_after_it() -> None:
    timeline = timeline_of(completed(1), completed(1, "savepoint"), completed(5))
    assert timeline.first_active == at(5) and timeline.is_visible(at(3)) and timeline.is_visible(at(1))


def test_what_was_archived_shows_although_every_later_commit_is_saved() -> None:
    saved = [name for second in (4, 5) for name in (completed(second), completed(second, "savepoint"))]
    timeline = timeline_of(*saved, f"{at(7)}.inflight", archive=("history/_version_", f"history/{at(1)}_{at(3)}_0.parquet"))
    visible = {second: timeline.is_visible(at(second)) for second in range(1, 8)}
    assert visible == {1: True, 2: True, 3: True, 4: True, 5: True, 6: False, 7: False}
    assert timeline.first_active == at(4)


def test_a_look_at_the_past_hides_what_was_requested_later() -> None:
    timeline = timeline_of(completed(3), completed(5), f"{at(6)}.inflight")
    past = timeline.as_of(at(4))
    assert [i.requested for i in past.commits] == [at(3)] and not past.pending
    assert [past.is_visible(at(second)) for second in (2, 3, 4, 5)] == [True, True, False, False]
    assert [timeline.as_of(at(2)).is_visible(at(second)) for second in (1, 2, 3)] == [True, True, False]


def test_commits_can_be_asked_for_by_completion() -> None:
    timeline = timeline_of(completed(1, completion=at(9)), completed(2, completion=at(4)), completed(3, completion=at(5)))
    assert [i.requested for i in timeline.completed_after(at(4))] == [at(3), at(1)]
    assert [i.requested for i in timeline.completed_after("", at(5))] == [at(2), at(3)]


def test_the_timeline_is_one_listing_without_the_archive() -> None:
    storage = MemoryStorage()
    for name in (f"{at(1)}.commit.requested", completed(2), f"history/{at(1)}_{at(1)}_0.parquet", f"history/{completed(7)}"):
        storage.put(layout.timeline(name), b"x")
    timeline = read_timeline(storage)
    assert [i.requested for i in timeline.instants] == [at(1), at(2)]


def test_a_time_is_told_in_the_zone_of_the_tables_instants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert as_of_time("2026-11-21 09:27", "LOCAL") == "20261121042700000"
        assert as_of_time("20261121092737397", "LOCAL") == "20261121092737397"
        shown = time_of("20261121042700000", "LOCAL")
        assert shown == datetime(2026, 11, 21, 9, 27, tzinfo=timezone.utc)
    finally:
        monkeypatch.undo()
        time.tzset()
