"""A timeline that is followed shows what a listing of the whole shows, whatever happens on it between two looks."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.api import Action, Instant, MemoryStorage, State, Timeline, format_instant, layout

from lakelock.storage import Listed
from lakelock.storage.base import Changes
from lakelock.storage.location import TableIO
from lakelock.table.history_files import HistoryFile
from lakelock.table.timeline import FollowedTimeline

FEW = 6
START_MS = 1_700_000_000_000
ACTIONS = [Action.COMMIT, Action.REPLACE_COMMIT, Action.CLEAN, Action.ROLLBACK, Action.RESTORE]
ASKED = (
    "commits", "pending", "pending_services", "rollbacks", "cleanings", "savepoints", "restores", "actions", "oldest_writes",
    "completed_instants", "newest_time", "newest_completion",
)  # fmt: skip


def names_of(instant: Instant) -> list[str]:
    """The files of an instant that has come so far."""
    states = [replace_state(instant, state) for state in State if state < instant.state]
    return [layout.timeline(each.file_name) for each in (*states, instant)]


def replace_state(instant: Instant, state: State) -> Instant:
    return Instant(instant.requested, instant.action, state)


def at(second: int) -> str:
    return format_instant(START_MS + 1000 * second)


def done(second: int, action: Action = Action.COMMIT) -> Instant:
    return Instant(at(second), action.value, State.COMPLETED, at(second + 1))


instants = st.builds(
    lambda second, action, state, took: Instant(
        at(second), action.value, state, at(second + took) if state is State.COMPLETED else None
    ),
    st.integers(0, 60),
    st.sampled_from([*ACTIONS, Action.SAVEPOINT]),
    st.sampled_from([State.COMPLETED, State.COMPLETED, State.COMPLETED, *State]),
    st.integers(1, 9),
)


@given(st.lists(instants, max_size=30), st.integers(0, 61), st.lists(st.integers(0, 61), max_size=2))
def test_a_timeline_in_two_parts_is_the_timeline(made: list[Instant], border: int, archived: list[int]) -> None:
    keys = {key for instant in made for key in names_of(instant)}
    keys |= {HistoryFile(at(0), at(last), 0, 1).key for last in archived}
    files = [Listed(key, 1, 0) for key in sorted(keys)]
    whole = Timeline.from_listing(files)
    assume(all(i.is_completed for i in whole.instants if i.requested < at(border)))
    older = whole.requested_before(at(border))
    after = f"{layout.TIMELINE}/{at(border)}"
    parts = older.followed_by(file for file in files if file.key > after)
    assert parts == whole
    for name in ASKED:
        assert getattr(parts, name) == getattr(whole, name), name
    for second in range(62):
        assert parts.write_at(at(second)) == whole.write_at(at(second))
        assert parts.is_visible(at(second)) == whole.is_visible(at(second))
        assert parts.requested_from(at(second)) == whole.requested_from(at(second))
    for most in (1, 3, 50):
        assert parts.latest(most) == whole.latest(most)
    known = older.followed_by(file for file in files if after < file.key < f"{layout.TIMELINE}/{at(border + 3)}")
    assert set(parts.commits_since(known)) == {i for i in whole.commits if not known.has_commit(i.requested)}


class Table:
    """A timeline on storage, and one that follows it. If storage tells, it says what has changed, as a local disk does."""

    def __init__(self, *, tells: bool) -> None:
        self.storage, self.changes = MemoryStorage(), list[str]()
        self.listings = 0
        self.followed = FollowedTimeline(TableIO(_Telling(self) if tells else self.storage), few=FEW)

    def put(self, instant: Instant) -> None:
        for key in names_of(instant):
            if self.storage.put_if_absent(key, b"content") is not None:
                self.changes.append(key)

    def remove(self, instant: Instant) -> None:
        for key in names_of(instant):
            self.storage.delete([key])
            self.changes.append(key)

    def look(self) -> Timeline:
        found = self.followed.look()
        if found is None:
            self.listings += 1
            mark = self.followed.begin_listing()
            files = list(self.storage.list(layout.TIMELINE))
            found = Timeline.from_listing(files)
            self.followed.listed(mark, files, found)
        known = self.followed.files(found)
        assert known is None or list(known) == list(self.storage.list(layout.TIMELINE))
        return found

    @property
    def whole(self) -> Timeline:
        return Timeline.from_listing(self.storage.list(layout.TIMELINE))


class _Telling(MemoryStorage):
    def __init__(self, table: Table) -> None:
        super().__init__()
        self._table = table

    def changed(self, prefix: str, since: int) -> tuple[int, Changes | None]:
        now = {item.key: item for item in self._table.storage.list(prefix)}
        mark = 1 + len(self._table.changes)
        return mark, {key: now.get(key) for key in self._table.changes[since - 1 :]} if since else None


happening = st.lists(
    st.tuples(
        st.sampled_from(["begin", "finish", "finish", "give up", "come late", "archive", "look", "look"]), st.integers(0, 99)
    ),
    max_size=150,
)


@pytest.mark.parametrize("tells", [False, True])
@given(happening)
def test_each_look_shows_what_there_is(tells: bool, events: list[tuple[str, int]]) -> None:
    table, pending = Table(tells=tells), list[Instant]()
    for second, (event, number) in enumerate(events):
        if event == "look":
            assert table.look() == table.whole
        elif event == "come late":
            table.put(done(-1 - number, Action.REPLACE_COMMIT))
        elif event == "archive":
            for oldest in table.whole.instants[: number % 4]:
                if oldest.is_completed:
                    table.remove(oldest)
        elif event == "begin" or not pending:
            action = ACTIONS[number % len(ACTIONS)] if number % 7 == 0 else Action.COMMIT
            pending.append(Instant(at(second), action.value, State.REQUESTED))
            table.put(pending[-1])
        else:
            instant = pending.pop(number % len(pending))
            if event == "finish":
                table.put(Instant(instant.requested, instant.action, State.COMPLETED, at(second)))
            else:
                table.remove(instant)


def following(*, tells: bool) -> Table:
    """A table that follows fifty commits, one in each second."""
    table = Table(tells=tells)
    for second in range(100, 150):
        table.put(done(second))
        table.look()
    return table


@pytest.fixture(params=["by listings", "by what storage tells"])
def table(request: pytest.FixtureRequest) -> Table:
    return following(tells=request.param == "by what storage tells")


def test_a_long_timeline_is_listed_whole_only_once(table: Table) -> None:
    before = table.listings
    for second in range(150, 200):
        table.put(done(second))
        assert table.look() == table.whole
    assert table.listings == before


def test_a_pending_instant_is_watched_however_old_it_gets(table: Table) -> None:
    early = Instant(at(149), Action.REPLACE_COMMIT.value, State.REQUESTED)
    table.put(early)
    for second in range(150, 250):
        table.put(done(second))
        table.look()
    before = table.listings
    table.put(Instant(early.requested, early.action, State.COMPLETED, at(250)))
    assert table.look() == table.whole
    assert table.listings == before


def test_what_appears_as_if_it_were_old_is_found_at_once(table: Table) -> None:
    for second in (50, 110, 149):
        table.put(done(second, Action.REPLACE_COMMIT))
        assert table.look() == table.whole
        assert table.look().state_of(at(second)) is State.COMPLETED


def test_what_is_archived_is_not_shown(table: Table) -> None:
    table.remove(done(100))
    assert table.look() == table.whole


@pytest.mark.parametrize("action", [Action.RESTORE, Action.ROLLBACK])
def test_what_a_restore_or_a_rollback_removes_is_not_shown(table: Table, action: Action) -> None:
    table.put(Instant(at(150), action.value, State.INFLIGHT))
    table.look()
    table.remove(done(110))
    table.put(done(150, action))
    assert table.look() == table.whole
