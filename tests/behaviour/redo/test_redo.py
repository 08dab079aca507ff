"""A write that is rejected after it has written does again only what collided, and the table is as if it had run as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.api import ArrowEngine, DataFile, LocalStorage, MemoryStorage
from tests.behaviour.tables import QUICK, SCHEMA, Recorder, leftovers, new_table, writer
from tests.sizes import but

from lakelock.errors import ConflictError
from lakelock.settings import ConcurrencySettings, HeartbeatSettings, LockSettings, Settings
from lakelock.table.properties import COPY_ON_WRITE, MERGE_ON_READ
from lakelock.table.rewriting import Kernels

EARLY = replace(
    QUICK, heartbeat=HeartbeatSettings(interval_s=60), lock=LockSettings(wait_s=60, lease_s=60, renew_s=20, poll_s=0.02)
)
"""Nobody is taken for dead on a slow machine."""
LATE = replace(EARLY, concurrency=ConcurrencySettings(early_conflict_detection=False))
"""Conflicts are found when the files are written."""


def rows(*values: tuple[str, int, str]) -> pa.Table:
    return pa.table([list(column) for column in zip(*values, strict=True)], schema=SCHEMA)


def content(table: pa.Table) -> list[tuple[str, int, str]]:
    return sorted(zip(*(table.column(n).to_pylist() for n in SCHEMA.names), strict=True))


class Watched(Kernels):
    """Counts what is done, and runs what others do meanwhile: each once, when the task of its number is about to write."""

    def __init__(self, **meanwhile: Callable[[], object]) -> None:
        self.done: Counter[str] = Counter()
        self._meanwhile = {name.replace("_", " "): act for name, act in meanwhile.items()}

    def _note(self, what: str, count: int = 1) -> None:
        self.done[what] += count
        act = self._meanwhile.pop(f"{what} {self.done[what]}", None)
        if act is not None:
            act()

    def new_file(self, *args, **kwargs):
        self._note("written")
        return super().new_file(*args, **kwargs)

    def restamp(self, *args):
        self._note("copied")
        super().restamp(*args)

    def tag(self, keyed, files, storage):
        self._note("looked", len(files))
        return super().tag(keyed, files, storage)

    def example(self, *args):
        self._note("looked")
        return super().example(*args)


@pytest.fixture(params=but(["memory", "local", "merge-on-read"], {"memory"}, {"merge-on-read"}))
def storage(request, tmp_path):
    made = LocalStorage(str(tmp_path / "t")) if request.param == "local" else MemoryStorage()
    new_table(made, table_type=MERGE_ON_READ if request.param == "merge-on-read" else COPY_ON_WRITE)
    return made


def engine(storage, kernels=None, settings: Settings = LATE, listener: Recorder | None = None) -> ArrowEngine:
    """One that leaves no write of its own to a group."""
    settings = replace(settings, write=replace(settings.write, group_commit=False))
    return ArrowEngine(writer(storage, settings, listener=listener), kernels or Kernels())


MONTHS = [str(number) for number in range(1, 6)]


@pytest.fixture
def five(storage):
    """A table with the rows a and b in each of five months, a file group each."""
    engine(storage).insert(rows(*((key, 1, month) for month in MONTHS for key in "ab")))
    return storage


def everywhere(key: str, value: int) -> pa.Table:
    return rows(*((key, value, month) for month in MONTHS))


def base(**changed: int) -> list[tuple[str, int, str]]:
    """The rows of `five` with other values: `a3=7` is the row a of month 3."""
    return sorted((key, changed.get(f"{key}{month}", changed.get(key, 1)), month) for month in MONTHS for key in "ab")


def test_an_upsert_over_several_groups_of_which_one_collides_writes_only_that_one_again(five):
    kernels, heard = Watched(written_2=lambda: engine(five).upsert(rows(("a", 7, "3")))), Recorder()
    done = engine(five, kernels, listener=heard).upsert(everywhere("b", 2))
    assert (done.attempts, done.files, done.files_kept, done.rows_updated) == (2, 5, 4, 5)
    assert kernels.done == {"written": 6, "copied": 4, "looked": 6}
    (event,) = (e for e in heard.events if e.kind.value == "set-aside")
    assert (event.facts["collided"], event.facts["kept"]) == (1, 4)
    assert content(engine(five).read()) == base(b=2, a3=7)
    assert leftovers(five) == []


def test_two_upserts_of_different_keys_of_one_file_group_both_commit(five):
    others = []
    kernels = Watched(written_1=lambda: others.append(engine(five).upsert(rows(("a", 7, "1")))))
    mine = engine(five, kernels).upsert(rows(("b", 2, "1"), ("b", 2, "2")))
    assert (others[0].attempts, mine.attempts, mine.files_kept) == (1, 2, 1)
    assert kernels.done["written"] == 3
    assert content(engine(five).read()) == base(a1=7, b1=2, b2=2)


def test_a_delete_by_key_does_again_only_what_collided(five):
    kernels = Watched(written_2=lambda: engine(five).upsert(rows(("a", 7, "3"))))
    done = engine(five, kernels).delete(everywhere("b", 0))
    assert (done.attempts, done.files_kept, done.rows_deleted) == (2, 4, 5)
    assert content(engine(five).read()) == [row for row in base(a3=7) if row[0] == "a"]
    assert leftovers(five) == []


def test_a_condition_is_evaluated_again_on_what_others_wrote_and_on_nothing_else(five):
    def others() -> None:
        engine(five).upsert(rows(("a", 9, "1"), ("a", 9, "3")))
        engine(five).insert(rows(("new", 1, "2"), ("new", 5, "3")))

    kernels = Watched(written_2=others)
    done = engine(five, kernels).delete(pc.field("v") == 1)
    assert (done.attempts, done.files_kept, done.rows_deleted) == (2, 3, 9)
    # Five files at first and four of others; two more when the commit asked whether it conflicts.
    assert kernels.done["written"] == 5 + 3
    assert content(engine(five).read()) == [("a", 9, "1"), ("a", 9, "3"), ("new", 5, "3")]
    assert leftovers(five) == []


def test_a_new_row_whose_key_others_brought_is_merged_and_the_other_new_files_are_kept(five):
    kernels = Watched(written_2=lambda: engine(five).insert(rows(("n", 7, "3"), ("x", 7, "4"))))
    done = engine(five, kernels).upsert(everywhere("n", 2))
    assert (done.attempts, done.files, done.files_kept) == (2, 5, 4)
    assert (done.rows_inserted, done.rows_updated) == (4, 1)
    assert content(engine(five).read()) == sorted([*base(), *(("n", 2, month) for month in MONTHS), ("x", 7, "4")])


def test_a_row_that_others_deleted_becomes_a_new_one(five):
    kernels = Watched(written_2=lambda: engine(five).delete(rows(("b", 0, "3"))))
    done = engine(five, kernels).upsert(everywhere("b", 2))
    assert (done.attempts, done.files_kept, done.rows_inserted, done.rows_updated) == (2, 4, 1, 4)
    assert content(engine(five).read()) == base(b=2)
    assert leftovers(five) == []


def test_a_group_that_others_replaced_is_looked_up_in_what_replaced_it(five):
    kernels = Watched(written_2=lambda: engine(five).overwrite_partitions(rows(("b", 7, "3"), ("c", 7, "3"))))
    done = engine(five, kernels).upsert(everywhere("b", 2))
    assert (done.attempts, done.files_kept) == (2, 4)
    expected = [row for row in base(b=2) if row[2] != "3"]
    assert content(engine(five).read()) == sorted([*expected, ("b", 2, "3"), ("c", 7, "3")])


def test_a_redo_that_loses_again_is_itself_redone(five):
    other = engine(five)
    kernels = Watched(
        written_2=lambda: other.upsert(rows(("a", 7, "3"))),
        copied_1=lambda: other.upsert(rows(("a", 8, "3"), ("a", 8, "4"))),
        copied_6=lambda: other.upsert(rows(("a", 9, "5"))),
    )
    done = engine(five, kernels).upsert(everywhere("b", 2))
    assert (done.attempts, done.files_kept) == (4, 4)
    assert kernels.done["written"] == 5 + 1 + 2 + 1
    assert content(engine(five).read()) == base(b=2, a3=8, a4=8, a5=9)
    assert leftovers(five) == []


@pytest.mark.in_ci
def test_redos_do_not_count_as_attempts_and_end_at_their_bound(five):
    settings = replace(LATE, retry=replace(LATE.retry, attempts=2, redo_attempts=2))
    other, values = engine(five), iter(range(100, 200))

    def hit() -> None:
        other.upsert(rows(("a", next(values), "3")))

    # Rejected as a whole, two redos rejected, then a second attempt as a whole.
    kernels = Watched(written_2=hit, copied_1=hit, copied_5=hit)
    done = engine(five, kernels, settings).upsert(everywhere("b", 2))
    assert (done.attempts, done.files_kept) == (4, 0)
    assert kernels.done["written"] == 5 + 1 + 1 + 5
    kernels = Watched(written_2=hit, copied_1=hit, copied_5=hit, written_12=hit)
    with pytest.raises(ConflictError):
        engine(five, kernels, settings).upsert(everywhere("b", 3))
    assert content(engine(five).read()) == base(b=2, a3=106)
    assert leftovers(five) == []


@pytest.mark.parametrize("off", [{"redo_attempts": 0}, {"attempts": 1}], ids=str)
def test_without_redos_or_retries_nothing_is_set_aside(five, off):
    settings, heard = replace(LATE, retry=replace(LATE.retry, **off)), Recorder()
    kernels = Watched(written_2=lambda: engine(five).upsert(rows(("a", 7, "3"))))
    mine = engine(five, kernels, settings, heard)
    if "attempts" in off:
        with pytest.raises(ConflictError):
            mine.upsert(everywhere("b", 2))
    else:
        assert mine.upsert(everywhere("b", 2)).files_kept == 0
    assert "set-aside" not in heard.kinds()
    assert leftovers(five) == []


def test_an_overwrite_runs_as_a_whole_again(five):
    kernels, heard = Watched(written_2=lambda: engine(five).upsert(rows(("a", 7, "3")))), Recorder()
    done = engine(five, kernels, listener=heard).overwrite_partitions(everywhere("z", 9))
    assert (done.attempts, done.files_kept) == (2, 0)
    assert "set-aside" not in heard.kinds()
    assert content(engine(five).read()) == sorted(("z", 9, month) for month in MONTHS)


def test_a_change_of_the_columns_in_between_leaves_nothing_to_keep(five):
    wider = replace(LATE, write=replace(LATE.write, merge_schema=True))
    more = rows(("a", 7, "3")).append_column("more", pa.array([1]))
    kernels = Watched(written_2=lambda: engine(five, settings=wider).upsert(more))
    keeping = replace(LATE, write=replace(LATE.write, missing_columns="keep"))
    done = engine(five, kernels, keeping).upsert(everywhere("b", 2))
    assert (done.attempts, done.files_kept) == (2, 0)
    found = engine(five).read()
    assert content(found.select(SCHEMA.names)) == base(b=2, a3=7)
    assert [v for v in found.column("more").to_pylist() if v is not None] == [1]


def test_files_of_the_earlier_attempt_that_are_gone_are_written_again(five):
    def removed() -> None:
        unseen = [f for item in five.list("") if (f := DataFile.parse(item.key)) is not None and f.key not in seen]
        earlier = min(f.instant for f in unseen)
        five.delete(f.key for f in unseen if f.instant == earlier)

    def other() -> None:
        engine(five).upsert(rows(("a", 7, "3")))
        seen.update(f.key for f in writer(five).snapshot().files)

    seen = {f.key for f in writer(five).snapshot().files}
    kernels = Watched(written_2=other, copied_1=removed)
    done = engine(five, kernels).upsert(everywhere("b", 2))
    assert done.attempts == 2
    assert done.files_kept <= 1
    assert content(engine(five).read()) == base(b=2, a3=7)
    assert leftovers(five) == []


def test_an_attempt_that_meets_an_early_conflict_keeps_what_it_found_out_about_keys(five):
    holder = writer(five, EARLY).begin("UPSERT")
    holder.claim(f.group for f in holder.snapshot().files if f.partition == "month=3")

    class Listener(Recorder):
        def __call__(self, event) -> None:
            super().__call__(event)
            if event.kind.value == "retry":
                holder.abort("the holder gives up")

    kernels = Watched()
    done = engine(five, kernels, EARLY, Listener()).upsert(everywhere("b", 2))
    assert (done.attempts, done.files_kept, [c.early for c in done.conflicts]) == (2, 0, [True])
    assert kernels.done == {"looked": 5, "written": 5}
    assert content(engine(five).read()) == base(b=2)


def test_the_history_tells_how_many_files_were_kept_and_changes_are_those_of_the_commit(five):
    kernels = Watched(written_2=lambda: engine(five).upsert(rows(("a", 7, "3"))))
    done = engine(five, kernels).upsert(everywhere("b", 2))
    newest, other, first = writer(five).history()
    assert (newest.instant, newest.files, newest.files_kept) == (done.instant, 5, 4)
    assert (other.files_kept, first.files_kept) == (0, 0)


def test_every_row_of_a_redone_upsert_bears_its_instant_and_a_number_of_its_own(five):
    import pyarrow.parquet as pq

    kernels = Watched(written_2=lambda: engine(five).upsert(rows(("a", 7, "3"))))
    done = engine(five, kernels).upsert(everywhere("b", 2))
    found = []
    for file in writer(five).snapshot().files:
        with five.open_input(file.key) as opened:
            table = pq.read_table(pa.BufferReader(opened.read()))
        found += table.to_pylist()
        assert set(table.column("_hoodie_file_name").to_pylist()) == {file.name}
    assert {row["_hoodie_commit_time"] for row in found if row["id"] == "b"} == {done.instant}
    assert len({row["_hoodie_commit_seqno"] for row in found}) == len(found) == 10


def test_hudi_rs_and_the_engine_read_the_same_after_a_redo(tmp_path):
    hudi = pytest.importorskip("hudi")
    storage = LocalStorage(str(tmp_path / "t"))
    new_table(storage)
    engine(storage).insert(rows(*((key, 1, month) for month in MONTHS for key in "ab")))
    kernels = Watched(written_2=lambda: engine(storage).upsert(rows(("a", 7, "3"))))
    assert engine(storage, kernels).upsert(rows(*((key, 2, month) for month in MONTHS for key in "bn"))).files_kept == 9
    seen = pa.Table.from_batches(hudi.HudiTable(str(tmp_path / "t")).read())
    assert content(seen.select(SCHEMA.names).cast(SCHEMA)) == content(engine(storage).read())
