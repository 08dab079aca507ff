"""Hudi's record index stays true, whatever is written and whoever is killed; `lakelock doctor` names what is wrong in it.

The tests with mistakes leave one rule out each, and show that this judge sees it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.api import Event, EventKind, LocalStorage, TableIO, layout, read_timeline
from tests.behaviour.beside_java.test_metadata_statistics import with_values
from tests.behaviour.beside_java.test_metadata_table import (
    ALONE,
    ONE_WRITER,
    SEVERAL,
    changed,
    engine,
    is_true,
    killed_at,
    nobody_is_killed,
    values,
)
from tests.behaviour.cli.command_line import run
from tests.behaviour.foreign import Peer
from tests.golden_tables import unpack
from tests.over_engines import transaction
from tests.sizes import in_ci

from lakelock.errors import CorruptTableError, RolledBackError, TableError
from lakelock.events import Step
from lakelock.occ import metadata_table as writing
from lakelock.occ.live_logs import slices_at
from lakelock.occ.metadata_upkeep import keep_metadata
from lakelock.occ.retention import Budget
from lakelock.settings import OptimizeSettings
from lakelock.storage import Storage
from lakelock.table import record_index
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.layout import FileGroupId
from lakelock.table.metadata_records import RECORD_INDEX, RecordSchema
from lakelock.table.metadata_table import MetadataTable, schemas_of
from lakelock.table.record_index import KeyChanges, answers, place_in, place_record, places_of
from lakelock.table.snapshot import DataFile

__all__ = ["nobody_is_killed"]


@pytest.fixture(params=["java12_metadata", "java10_metadata", "java12_mor_metadata", *in_ci("java10_mor_metadata")])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return unpack(request.param, tmp_path)


def metadata(table: Path) -> MetadataTable:
    storage = LocalStorage(str(table))
    return MetadataTable.look(TableIO(storage), read_timeline(storage))


def index(table: Path) -> dict[str, FileGroupId]:
    return {key: place_in(record) for key, record in metadata(table).records(RECORD_INDEX).items()}


def by_files(table: Path) -> dict[str, FileGroupId]:
    """What it should be: the file group of each key."""
    opened = engine(table).coordinator.table
    files = slices_at(opened, opened.timeline()).files
    return {key: file.group for file in files for key in record_index.keys_in(opened.storage, file)}


def problems(table: Path) -> list[str]:
    found = [check for check in run("doctor", str(table), "--json", *ALONE).json["checks"] if check["name"] == "metadata"]
    return [check["found"] for check in found if check["status"] == "failed"]


def test_records_are_those_of_java(table: Path) -> None:
    found = metadata(table)
    schema = RecordSchema.of(schemas_of(found)[0], "x")
    instants = {instant.requested for instant in found.data.commits}
    seen = 0
    for record in found.records(RECORD_INDEX).values():
        made = [place_record(place_in(record), instant) for instant in instants]
        seen += schema.encoded({**record, "_hoodie_file_name": None}) in map(schema.encoded, made)
    assert seen == len(by_files(table)) > 5


@pytest.mark.parametrize(
    "file_id", ["dead-0", "9F08C007-a0b0-4828-9a61-9c19c0b0a518-1", "9f08c007-a0b0-4828-9a61-9c19c0b0a518"]
)
def test_any_file_id_is_found_again(file_id: str) -> None:
    group = FileGroupId("region=Zü rich é", file_id)
    assert place_in(place_record(group, "20261129120017549")) == group


def test_each_key_is_where_its_row_is_after_each_write(table: Path) -> None:
    at = engine(table)
    rows = changed(table, "n1", "n2", "ключ", v=5)

    def holds() -> None:
        assert index(table) == by_files(table)
        is_true(table)

    at.insert(rows)
    holds()
    first = at.upsert(pa.concat_tables([changed(table, "k2", v=700), with_values(changed(table, "n3"), region="new")])).instant
    holds()
    at.delete(pc.field("id") == "k7")
    holds()
    assert "k7" not in index(table)
    at.insert(with_values(changed(table, "k7"), region="new"))
    holds()
    assert index(table)["k7"].partition == "region=new"
    with transaction(at) as tx:  # a row moves to another partition
        moved = with_values(changed(table, "k7"), region="eu")
        tx[at].delete(pc.field("id") == "k7")
        tx[at].insert(moved)
    holds()
    assert index(table)["k7"].partition == "region=eu"
    at.delete_keys(changed(table, "n1"))
    holds()
    at.optimize()
    holds()
    at.overwrite_partitions(with_values(changed(table, "o1", "n3"), region="new"))
    holds()
    at.update({"v": pc.scalar(7)}, pc.field("id") == "k2")
    holds()
    at.restore(first)
    holds()
    assert {"k2", "n1", "n3", "ключ"} <= index(table).keys() and "o1" not in index(table)


def test_an_update_in_its_place_writes_nothing_into_the_index(table: Path) -> None:
    before = sorted((table / ".hoodie/metadata/record_index").iterdir())
    engine(table).upsert(changed(table, "k2", v=700))
    assert sorted((table / ".hoodie/metadata/record_index").iterdir()) == before
    is_true(table)


def test_an_insert_writes_only_into_the_file_group_of_its_key(table: Path) -> None:
    before = set((table / ".hoodie/metadata/record_index").iterdir())
    engine(table).insert(changed(table, "n1"))
    (log,) = set((table / ".hoodie/metadata/record_index").iterdir()) - before
    groups = {path.name[:18] for path in before if path.name.startswith(".record-index")}
    assert log.name.startswith({10: ".record-index-0009", 2: ".record-index-0001"}[len(groups)])


@pytest.mark.parametrize("step", [Step.DECIDED, Step.METADATA_LOGGED, Step.METADATA_KEPT])
def test_whoever_finishes_an_overwrite_takes_out_the_keys_of_what_it_replaces(table: Path, step: Step) -> None:
    rows = changed(table, "k2", v=700)
    killed_at(step, lambda: engine(table).overwrite_partitions(rows))
    engine(table).insert(changed(table, "n1"))
    assert index(table) == by_files(table)
    assert len(index(table)) < 10
    is_true(table)


def test_who_began_earlier_than_another_commit_of_the_same_key_begins_again(table: Path) -> None:
    """Readers merge in the order of instants: the place that the other has written, or taken out, would count."""
    first, second = (engine(table, options=SEVERAL) for _ in range(2))
    row = with_values(changed(table, "k7"), region="new")
    with first.coordinator.begin("INSERT") as tx:
        second.delete(pc.field("id") == "k7")
        with pytest.raises(RolledBackError, match="same keys in Hudi's record index"):
            first.insert_in(tx, row)
    with first.coordinator.begin("INSERT") as tx:
        second.insert(with_values(changed(table, "n1"), region="new"))
        first.insert_in(tx, row)
    assert index(table) == by_files(table)
    assert index(table)["k7"].partition == "region=new"
    is_true(table)


def forgotten(table: Path, instant: str) -> None:
    """Take a commit out of the metadata table."""
    for path in (*table.glob(f".hoodie/metadata/.hoodie/timeline/{instant}*"), *table.glob(f".hoodie/metadata/*/.*{instant}*")):
        path.unlink()


def test_a_commit_that_it_lacks_is_brought_in_if_nothing_came_later(table: Path) -> None:
    at = engine(table)
    at.insert(changed(table, "n1"))
    forgotten(table, at.upsert(changed(table, "k2", "n2", v=7)).instant)
    assert any("n2" in problem or "not list" in problem for problem in problems(table))
    engine(table).insert(changed(table, "n3"))
    assert index(table) == by_files(table)
    is_true(table)


def told_of(act: Callable[[list[Event]], object]) -> list[str]:
    told: list[Event] = []
    act(told)
    return [str(event.facts["problem"]) for event in told if event.kind is EventKind.ALERT]


def is_removed(table: Path) -> None:
    assert not (table / ".hoodie/metadata/record_index").exists()
    assert RECORD_INDEX not in (table / ".hoodie/hoodie.properties").read_text()
    checks = run("doctor", str(table), "--json", *ALONE).json["checks"]
    (check,) = (check for check in checks if check["name"] == "metadata")
    assert check["status"] == "ok"
    if (table / layout.INDEX_DEFINITIONS).exists() and "isPartitioned" in (table / layout.INDEX_DEFINITIONS).read_text():
        assert "record index was removed" in check["found"]


def test_it_is_removed_where_a_commit_is_lacking_after_which_others_came(table: Path) -> None:
    at = engine(table)
    lost = at.insert(with_values(changed(table, "n1"), region="new")).instant
    at.insert(with_values(changed(table, "n2"), region="new"))
    forgotten(table, lost)
    (removed, late) = told_of(lambda told: engine(table, told).insert(changed(table, "n3")))
    assert "record index" in removed and lost in removed and "others have committed since" in removed and lost in late
    is_removed(table)
    engine(table).upsert(changed(table, "k2", v=8))
    is_removed(table)


def test_it_is_removed_where_a_file_that_was_replaced_is_gone(table: Path) -> None:
    lost = engine(table).delete(pc.field("id") == "k7").instant
    forgotten(table, lost)
    newest = read_timeline(LocalStorage(str(table)))
    stats = writing.read_commit(LocalStorage(str(table)), newest.commits[-1]).stats
    for stat in stats:
        layout_path = table / stat.partition_path / stat.prev_base_file  # type: ignore[operator]
        layout_path.unlink()
    assert any("record index" in text for text in told_of(lambda told: engine(table, told).insert(changed(table, "n3"))))
    is_removed(table)


def test_it_is_removed_by_a_commit_of_too_many_keys(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "MOST_KEYS", 2)
    engine(table).insert(changed(table, "n1", "n2"))
    is_true(table)
    (told,) = told_of(lambda told: engine(table, told).insert(changed(table, "n3", "n4", "n5")))
    assert "up to 3 keys, more than 2" in told
    is_removed(table)


@pytest.mark.parametrize("key", ["k" * 32_768, "ключ" * 8_000], ids=["ascii", "cyrillic"])
def test_it_is_removed_by_a_commit_with_a_key_that_it_cannot_hold(tmp_path: Path, key: str) -> None:
    """Else nobody could publish the commit once it is decided, and no other could follow it."""
    table = unpack("java12_metadata", tmp_path)
    engine(table).insert(changed(table, "k" * 32_767))
    is_true(table)
    (told,) = told_of(lambda told: engine(table, told).insert(changed(table, key)))
    assert "more than 32,767 bytes" in told
    is_removed(table)
    engine(table).insert(changed(table, "n1"))
    assert {key, "n1"} <= values(table).keys()


def test_an_index_of_keys_by_partition_is_refused_by_name(tmp_path: Path) -> None:
    table = unpack("java12_metadata", tmp_path)
    file = table / layout.INDEX_DEFINITIONS
    found = json.loads(file.read_text())
    found["indexDefinitions"][RECORD_INDEX]["indexOptions"]["isPartitioned"] = "true"
    file.write_text(json.dumps(found))
    rows, before = changed(table, "k2", v=700), values(table)
    with pytest.raises(TableError, match="record index knows a key by its partition"):
        engine(table).upsert(rows)
    assert values(table) == before


APPENDING = {**ONE_WRITER, "write.append_below": "1"}


@pytest.fixture
def merged(tmp_path: Path) -> Path:
    """A merge-on-read table of Java, with log files on it."""
    return unpack("java12_mor_metadata", tmp_path)


def logs(table: Path) -> set[str]:
    return {path.name for path in table.glob("region=*/.*.log.*")}


def test_a_log_file_takes_out_the_keys_that_it_deletes_and_adds_none(merged: Path) -> None:
    at, index_files = engine(merged, options=APPENDING), merged / ".hoodie/metadata/record_index"
    before, known = logs(merged), sorted(index_files.iterdir())
    at.upsert(changed(merged, "k6", v=700))
    at.update({"v": pc.scalar(8)}, pc.field("id") == "k7")
    assert len(logs(merged) - before) == 2
    assert sorted(index_files.iterdir()) == known
    at.delete(pc.field("id") == "k6")
    at.delete_keys(changed(merged, "k7"))
    assert len(logs(merged) - before) == 4
    assert not {"k6", "k7"} & index(merged).keys()
    assert index(merged) == by_files(merged)
    is_true(merged)


def rewritten(table: Path) -> None:
    engine(table, options={**ONE_WRITER, "write.append_below": "0"}).delete(pc.field("id") == "k7")


def rewritten_with_more(table: Path) -> None:
    engine(table, options={**ONE_WRITER, "write.append_below": "0"}).upsert(changed(table, "k4", "k7", "n1", v=9))


def compacted(table: Path) -> None:
    assert engine(table).optimize(sizes=OptimizeSettings(small_file_bytes=1)).compacted


def overwritten(table: Path) -> None:
    engine(table).overwrite_partitions(changed(table, "k4", "o1"))


@pytest.mark.parametrize("change", [rewritten, rewritten_with_more, compacted, overwritten])
def test_a_key_that_a_log_file_has_deleted_stays_where_it_was_inserted_again(
    merged: Path, change: Callable[[Path], None]
) -> None:
    at, before, then = engine(merged, options=APPENDING), logs(merged), by_files(merged)
    gone = changed(merged, "k6")
    first = at.upsert(changed(merged, "k4", v=3)).instant
    at.delete(pc.field("id") == "k6")
    assert len(logs(merged) - before) == 2
    at.insert(with_values(gone, region="new"))
    change(merged)
    assert index(merged) == by_files(merged)
    assert index(merged)["k6"].partition == "region=new"
    is_true(merged)
    at.restore(first)
    assert index(merged) == by_files(merged)
    assert index(merged).keys() == then.keys()
    is_true(merged)


@pytest.mark.parametrize("step", [Step.DECIDED, Step.METADATA_LOGGED, Step.METADATA_KEPT])
def test_whoever_finishes_log_files_takes_out_the_keys_that_they_delete(merged: Path, step: Step) -> None:
    before = logs(merged)
    killed_at(step, lambda: engine(merged, options=APPENDING).delete(pc.field("id") == "k6"))
    engine(merged).insert(with_values(changed(merged, "n1"), region="new"))
    assert len(logs(merged) - before) == 1
    assert index(merged) == by_files(merged)
    is_true(merged)


def test_a_deleting_log_file_that_the_metadata_table_lacks_is_brought_in(merged: Path) -> None:
    lost = engine(merged, options=APPENDING).delete(pc.field("id") == "k6").instant
    forgotten(merged, lost)
    assert "k6" in index(merged)
    engine(merged).insert(with_values(changed(merged, "n1"), region="new"))
    assert index(merged) == by_files(merged)
    is_true(merged)


def test_it_is_removed_where_another_engine_wrote_a_log_file_that_the_metadata_table_lacks(merged: Path) -> None:
    rows = changed(merged, "k6", v=5)
    Peer(LocalStorage(str(merged))).append(by_files(merged)["k6"], rows)
    (removed, _) = told_of(lambda told: engine(merged, told).insert(with_values(changed(merged, "n1"), region="new")))
    assert "record index" in removed and "another engine" in removed
    is_removed(merged)


Mutation = Callable[[pytest.MonkeyPatch], None]


def without_added_keys(patch: pytest.MonkeyPatch) -> None:
    known = record_index.changed_keys
    patch.setattr(writing, "changed_keys", lambda *a, **k: KeyChanges([], known(*a, **k).gone))


def without_keys_that_are_gone(patch: pytest.MonkeyPatch) -> None:
    known = record_index.changed_keys
    patch.setattr(writing, "changed_keys", lambda *a, **k: KeyChanges(known(*a, **k).added, []))


def without_keys_of_replaced_files(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(writing, "all_gone", lambda *_: KeyChanges([], []))


def without_log_files_below(patch: pytest.MonkeyPatch) -> None:
    known = record_index.stamped_keys
    patch.setattr(record_index, "stamped_keys", lambda storage, file: known(storage, file._replace(logs=())))


def believing_the_counts_of_a_restore(patch: pytest.MonkeyPatch) -> None:
    known = record_index.changed_keys

    def believed(storage: Storage, stat: WriteStat, before: DataFile | None, instant: str, *, counted: bool) -> KeyChanges:
        return known(storage, stat, before, instant, counted=True)

    patch.setattr(writing, "changed_keys", believed)


def taking_out_rows_that_move(patch: pytest.MonkeyPatch) -> None:
    known = writing.key_changes

    def again(*args: Any, **more: Any) -> list[tuple[str, KeyChanges]]:
        found = known(*args, **more)
        gone = {key for _, changes in found for key in changes.gone}
        return [(path, KeyChanges([key for key in each.added if key not in gone], each.gone)) for path, each in found]

    patch.setattr(writing, "key_changes", again)


@pytest.mark.parametrize(
    "mutation",
    [
        without_added_keys, without_keys_that_are_gone, without_keys_of_replaced_files, believing_the_counts_of_a_restore,
        taking_out_rows_that_move,
    ],
)  # fmt: skip
def test_each_planted_mistake_about_the_record_index_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutation: Mutation
) -> None:
    table = unpack("java12_metadata", tmp_path)
    with monkeypatch.context() as patch:
        mutation(patch)
        at = engine(table)
        first = at.insert(changed(table, "n1")).instant
        at.delete(pc.field("id") == "k7")
        if mutation is taking_out_rows_that_move:
            at.optimize()
        at.overwrite_partitions(with_values(changed(table, "o1"), region="eu"))
        if mutation is believing_the_counts_of_a_restore:
            at.restore(first)
    assert any("record index" in problem for problem in problems(table))


@pytest.mark.parametrize("mutation", [without_keys_that_are_gone, without_log_files_below])
def test_each_planted_mistake_about_log_files_is_found(
    merged: Path, monkeypatch: pytest.MonkeyPatch, mutation: Mutation
) -> None:
    with monkeypatch.context() as patch:
        mutation(patch)
        at, gone = engine(merged, options=APPENDING), changed(merged, "k6")
        at.delete(pc.field("id") == "k6")
        at.insert(with_values(gone, region="new"))
        rewritten(merged)
    assert any("record index" in problem for problem in problems(merged))


def test_the_index_is_asked_as_of_a_timeline_that_later_commits_do_not_change(table: Path) -> None:
    at = engine(table)
    at.insert(changed(table, "n1"))
    io, then, was = TableIO(LocalStorage(str(table))), at.coordinator.table.timeline(), by_files(table)
    asked = ["n1", "n2", "k2", "k7", "not there"]
    at.insert(changed(table, "n2"))
    at.delete(pc.field("id") == "k7")
    now = at.coordinator.table.timeline()
    assert places_of(io, then, asked) == {key: was[key] for key in ("n1", "k2", "k7")}
    assert places_of(io, now, asked) == {key: by_files(table)[key] for key in ("n1", "n2", "k2")}
    keep_metadata(at.coordinator.table, Budget.of(at.coordinator.table.runtime, 60), every=1)
    assert places_of(io, now, asked) == {key: by_files(table)[key] for key in ("n1", "n2", "k2")}
    with pytest.raises(CorruptTableError, match="compacted with"):
        places_of(io, then, asked)


def test_an_index_that_lacks_a_commit_gives_no_answer(table: Path) -> None:
    at = engine(table)
    lost = at.insert(changed(table, "n1")).instant
    forgotten(table, lost)
    with pytest.raises(CorruptTableError, match=f"lacks {lost}"):
        places_of(TableIO(LocalStorage(str(table))), at.coordinator.table.timeline(), ["n1"])


def test_an_answer_names_only_files_that_may_have_the_key() -> None:
    files = [DataFile("p", name, "0-0-0", "20261129120017549", 1) for name in ("a", "b")]
    groups = {name: FileGroupId("p", name) for name in ("a", "b", "c")}
    (found,) = answers({"k": groups["b"], "m": FileGroupId("q", "x")}, {"p": ["k", "m", "n"]}, {"p": files}).values()
    assert (found.files, found.keys) == (files[1:], {"k"})
    with pytest.raises(CorruptTableError, match="'m' in p/c"):
        answers({"m": groups["c"]}, {"p": ["k", "m"]}, {"p": files})
