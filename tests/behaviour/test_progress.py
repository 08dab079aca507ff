"""A long write shows on a terminal what it does and whom it waits for; a short one, and one elsewhere, shows nothing."""

from __future__ import annotations

import io
import select
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr
from pathlib import Path

import pytest
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from tests.api import ArrowEngine, Coordinator, StorageLocation, SystemRuntime
from tests.terminal import BOUND_S, seen_until, terminal
from tests.waiting import eventually

import lakelock
from lakelock.events import Doing, Event, EventKind, Events, Notebook, Progress, Tasks, current, shown, text_of
from lakelock.occ.retry import run_over

pytestmark = pytest.mark.waits


def test_a_write_that_waits_for_a_lock_says_whose_it_is_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    lakelock.create(path, schema="id bigint", key="id").close()
    other = Coordinator.open(StorageLocation.of(path), application="orders-backfill")
    table = lakelock.open(path, settings={"lock.wait_s": 60}, application="orders-stream")
    with terminal(columns=80) as screen, ThreadPoolExecutor(1) as pool:
        with other.table.locked(operation="TEST"):
            written = pool.submit(table.insert, [{"id": 1}])
            told = seen_until(screen, "waiting for the lock of job orders-backfill, 2 s")
        assert written.result(BOUND_S).rows_inserted == 1
        assert "lakelock: INSERT " in told and "\x1b[2K" in seen_until(screen, "\x1b[2K")


def test_a_short_write_shows_nothing(tmp_path: Path) -> None:
    table = lakelock.create(str(tmp_path / "t"), schema="id bigint", key="id")
    with terminal() as screen:
        table.insert([{"id": 1}])
        assert not select.select([screen], [], [], 0)[0]


@pytest.fixture
def cell() -> Iterator[list[tuple[dict[str, str], bool]]]:
    """What is shown below a cell of a notebook, and whether it takes the place of what was shown before."""
    seen: list[tuple[dict[str, str], bool]] = []

    class Shown(DisplayPublisher):  # type: ignore[misc]
        def publish(self, data: dict[str, str], *_: object, update: bool = False, **__: object) -> None:
            seen.append((data, update))

    class Shell(InteractiveShell):  # type: ignore[misc]
        kernel = "as in a kernel of Jupyter"

    shell = Shell.instance(display_pub_class=Shown)
    yield seen
    shell.history_manager.end_session()
    Shell.clear_instance()


def test_a_notebook_shows_one_line_below_the_cell_and_empties_it(
    cell: list[tuple[dict[str, str], bool]], tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    lakelock.create(path, schema="id bigint", key="id").close()
    other = Coordinator.open(StorageLocation.of(path), application="a<b")
    table = lakelock.open(path, settings={"lock.wait_s": 60})
    with redirect_stderr(io.StringIO()), ThreadPoolExecutor(1) as pool:
        with other.table.locked(operation="TEST"):
            written = pool.submit(table.insert, [{"id": 1}])
            eventually(lambda: any("waiting for the lock" in data["text/plain"] for data, _ in cell))
        assert written.result(BOUND_S).rows_inserted == 1
    assert [update for _, update in cell] == [False, *[True] * (len(cell) - 1)]
    assert any(data["text/html"].startswith("<progress></progress> lakelock: INSERT ") for data, _ in cell)
    assert any("of job a&lt;b" in data["text/html"] for data, _ in cell)
    assert cell[-1][0] == {"text/plain": "", "text/html": ""}


def test_a_notebook_has_a_bar_of_the_tasks(cell: list[tuple[dict[str, str], bool]]) -> None:
    Notebook().show("writing", Tasks(7, 3, 12))
    assert cell == [({"text/plain": "writing", "text/html": '<progress max="12" value="3"></progress> writing'}, False)]


@pytest.mark.parametrize("wanted", [True, False])
def test_it_is_shown_where_it_is_wanted_and_there_is_a_terminal(monkeypatch: pytest.MonkeyPatch, wanted: bool) -> None:
    def is_shown() -> bool:
        with shown("UPSERT", SystemRuntime(), Events(), wanted=wanted):
            return current() is not None

    with terminal():
        assert is_shown() == wanted
        for off in ("0", "false", "OFF"):
            monkeypatch.setenv("LAKELOCK_PROGRESS", off)
            assert not is_shown()
        monkeypatch.delenv("LAKELOCK_PROGRESS")
    with redirect_stderr(io.StringIO()):
        assert not is_shown()
    assert current() is None


@pytest.mark.parametrize(
    ("doing", "text"),
    [
        (Doing("rewriting 3 file groups", 9, 1_200_000), "rewriting 3 file groups, 1,200,000 rows"),
        (Doing("rewriting 3 file groups", 9, tasks=Tasks(7, 0, 12)), "rewriting 3 file groups, 0 of 12 tasks"),
        (Doing("writing", 9, 10, Tasks(7, 4, 12)), "writing, 4 of 12 tasks, 10 rows, about 10 s left"),
        (Doing("waiting for the lock of job a", 9, waits=True), "waiting for the lock of job a, 5 s"),
    ],
)
def test_the_line_has_what_is_known(doing: Doing, text: str) -> None:
    assert doing.line("UPSERT", 31.2, 14.2) == f"lakelock: UPSERT 31 s: {text}"


def test_events_say_what_a_write_does() -> None:
    held = Event(EventKind.WAITING_FOR_LOCK, "t", facts={"holder": "orders-backfill (etl@node-1, pid 3)"})
    again = Event(EventKind.RETRY, "t", facts={"attempt": 1, "of": 5, "cause": "both rewrite month=1"})
    assert text_of(held) == "waiting for the lock of job orders-backfill"
    assert text_of(again) == "trying again after attempt 1 of 5: both rewrite month=1"
    assert text_of(Event(EventKind.CHECKPOINTED, "t")) is None


@pytest.mark.parametrize("call", ["restore", "optimize", "transaction"])
def test_the_line_names_what_the_user_called(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, call: str) -> None:
    """And it follows the transactions that carry it out, which have Hudi's names."""
    told: list[tuple[str, str]] = []

    def tell(self: Progress, event: Event) -> None:
        before(self, event)
        called, _, doing = self._doing.line(self._called, 0, 0).removeprefix("lakelock: ").partition(" 0 s: ")
        told.append((called, doing))

    path = str(tmp_path / "t")
    table = lakelock.create(path, schema="id bigint", key="id")
    engine = ArrowEngine(Coordinator.open(StorageLocation.of(path)))
    first = table.insert([{"id": 1}]).instant
    table.insert([{"id": 2}])
    before = Progress.tell
    monkeypatch.setattr(Progress, "tell", tell)
    with terminal():
        if call == "restore":
            engine.restore(first)
        elif call == "optimize":
            assert engine.optimize().files_before == 2
        else:
            run_over([engine.coordinator], lambda tx: None)
    assert {called for called, _ in told} == {call.upper()}
    steps = {"reading the table's state"} if call == "transaction" else {"reading the table's state", "publishing"}
    assert {doing.partition(",")[0] for _, doing in told} >= steps


def test_without_spark_a_write_says_what_it_looks_for_and_how_many_file_groups_are_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said: list[str] = []

    def note(self: Progress, *_: object) -> None:
        line = self._doing.line(self._called, 0, self._doing.since_s)
        said.append(line.removeprefix("lakelock: UPSERT 0 s: ").partition(", about")[0])

    for method in (Progress.step, Progress.tasks):
        monkeypatch.setattr(Progress, method.__name__, _then(method, note))
    table = lakelock.create(str(tmp_path / "t"), schema="id bigint, part string, v int", key="id", partition_by="part")
    table.insert([{"id": number, "part": str(number), "v": 0} for number in range(3)])
    with terminal():
        table.upsert([{"id": number, "part": str(number), "v": 1} for number in range(3)])
    assert said[0] == "looking up keys, 3 rows"
    assert list(dict.fromkeys(said))[-4:] == [f"writing, {done} of 3 file groups, 3 rows" for done in range(4)]


def _then(method: Callable[..., None], note: Callable[[Progress], None]) -> Callable[..., None]:
    def call(self: Progress, *arguments: object) -> None:
        method(self, *arguments)
        note(self)

    return call
