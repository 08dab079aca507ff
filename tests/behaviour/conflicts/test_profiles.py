"""Every cell of docs/reference-conflicts.md, by transactions of the real engine, and what a rejection is called."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.api import (
    AppTransaction,
    ArrowEngine,
    ConflictRule,
    Coordinator,
    LocalStorage,
    MemoryStorage,
    Storage,
    TableSchema,
    Transaction,
    WriteRequest,
    WriteStat,
    layout,
)
from tests.behaviour.tables import (
    QUICK,
    SCHEMA,
    ScriptedRead,
    insert,
    leftovers,
    memory_table,
    new_table,
    put_file,
    writer,
)
from tests.conflict_pairs import matrix
from typer.testing import CliRunner

from lakelock import errors
from lakelock.cli.main import app
from lakelock.conflict import Conflict, Party
from lakelock.errors import ConflictError, SettingsError, TableError
from lakelock.occ.footprint import CLUSTER
from lakelock.occ.recorded_lock import move_recorded, recorded_guard
from lakelock.occ.rules import rejection
from lakelock.settings import ConcurrencySettings, Settings


def with_profile(profile: str, isolation: str = "Serializable") -> Settings:
    return replace(QUICK, concurrency=ConcurrencySettings(profile=profile, isolation=isolation))  # type: ignore[arg-type]


DELTA = with_profile("delta")


MATRIX = matrix()
OVERLAP = MATRIX.Overlap


def begin(coordinator: Coordinator, operation: str) -> Transaction:
    if operation == "OPTIMIZE":
        return coordinator.begin(WriteRequest(CLUSTER, overwrites=True))
    return coordinator.begin("INSERT_OVERWRITE" if operation == "OVERWRITE" else operation)


def commit(tx: Transaction, storage: Storage, operation: str, partition: str, group: str, new: str) -> None:
    """Do what the operation does, to one file group or, as an overwrite, to all of the partition."""
    stats: list[WriteStat] = []
    replaced: dict[str, Sequence[str]] | None = None
    if operation in MATRIX.READS:
        stats.append(put_file(tx, storage, partition, group))
    if operation != "UPDATE":
        stats.append(put_file(tx, storage, partition, new))
    if operation == "OPTIMIZE":
        replaced = {partition: [group]}
    if operation == "OVERWRITE":
        tx.overwrites([partition])
        replaced = {partition: ["mine", "theirs"]}
    tx.commit(stats, replaced=replaced)


def rejected(case) -> str:
    """The error by which the case ends; empty if both commit."""
    storage = memory_table()
    for partition in ("month=1", "month=2"):
        for file_id in ("mine", "theirs"):
            insert(writer(storage), storage, partition, file_id)
    settings = with_profile(case.profile, str(case.level))
    mine = begin(writer(storage, settings), case.mine)
    with begin(writer(storage, settings), case.other) as other:
        if case.other in MATRIX.READS:
            other.reads(ScriptedRead(()))
        partition = "month=2" if case.overlap is OVERLAP.NOTHING else "month=1"
        commit(other, storage, case.other, partition, "mine" if case.overlap is OVERLAP.FILE_GROUP else "theirs", "added")
    sees = {"added", "theirs", "mine"} if case.overlap in (OVERLAP.ROWS, OVERLAP.FILE_GROUP) else ()
    if case.mine in MATRIX.READS:
        mine.reads(ScriptedRead(sees, ["month=1"], MATRIX.READS[case.mine]))
    try:
        commit(mine, storage, case.mine, "month=1", "mine", "new")
    except ConflictError as error:
        assert leftovers(storage) == []
        return type(error).__name__
    return ""


@pytest.mark.in_ci
@pytest.mark.sampled
@pytest.mark.parametrize(("profile", "level"), MATRIX.LEVELS, ids=str)
def test_the_engine_answers_each_cell_of_the_page_as_the_rules_do(profile: str, level: str) -> None:
    asked = [case for case in MATRIX.cases() if case[:2] == (profile, level)]
    wrong = [case for case in asked if bool(rejected(case)) != case.collides]
    assert len(asked) > 80 and wrong == []


CONFLICTS_IN_DELTA = {
    # docs.delta.io, "Concurrency control": pairs in one partition that can conflict, by level.
    ("INSERT", "INSERT"): (False, False),
    ("UPDATE", "INSERT"): (True, False),
    ("INSERT", "UPDATE"): (False, False),
    ("UPDATE", "UPDATE"): (True, True),
    ("OPTIMIZE", "INSERT"): (False, False),
    ("OPTIMIZE", "UPDATE"): (True, True),
    ("UPDATE", "OPTIMIZE"): (True, True),
    ("MERGE", "INSERT"): (True, False),
    ("INSERT", "MERGE"): (False, False),
    ("MERGE", "UPDATE"): (True, True),
    ("UPDATE", "MERGE"): (True, True),
    ("MERGE", "MERGE"): (True, True),
    ("MERGE", "OPTIMIZE"): (True, True),
    ("OPTIMIZE", "MERGE"): (True, True),
    ("OPTIMIZE", "OPTIMIZE"): (True, True),
}


@pytest.mark.parametrize(("mine", "other"), CONFLICTS_IN_DELTA)
def test_the_profile_delta_has_deltas_own_matrix_for_both_levels(mine: str, other: str) -> None:
    levels = [level for profile, level in MATRIX.LEVELS if profile == "delta"]
    found = tuple(MATRIX.cell("delta", level, mine, other) != "no" for level in levels)
    assert found == CONFLICTS_IN_DELTA[mine, other]


@pytest.mark.parametrize(
    ("mine", "other", "overlap", "name"),
    [
        ("UPDATE", "INSERT", "PARTITION", "ConcurrentAppendException"),
        ("UPSERT", "INSERT", "PARTITION", "ConcurrentAppendException"),
        ("OVERWRITE", "INSERT", "PARTITION", "ConcurrentAppendException"),
        ("MERGE", "INSERT", "PARTITION", "ConcurrentAppendException"),
        ("MERGE", "UPDATE", "PARTITION", "ConcurrentAppendException"),
        ("UPDATE", "UPDATE", "FILE_GROUP", "ConcurrentAppendException"),
        ("UPDATE", "UPDATE", "PARTITION", "ConcurrentAppendException"),
        ("UPDATE", "OPTIMIZE", "FILE_GROUP", "ConcurrentDeleteReadException"),
        ("OPTIMIZE", "OPTIMIZE", "FILE_GROUP", "ConcurrentDeleteDeleteException"),
        ("OVERWRITE", "OVERWRITE", "PARTITION", "ConcurrentDeleteDeleteException"),
    ],
)
def test_a_conflict_has_deltas_name(mine: str, other: str, overlap: str, name: str) -> None:
    profile, level = MATRIX.LEVELS[1]
    assert rejected(MATRIX.Case(profile, level, mine, other, OVERLAP[overlap])) == name


def _of_two_deletes(level: str, mine: pc.Expression | pa.Table, other: pc.Expression) -> type[ConflictError]:
    """What the later of two deletes in a file of three rows is told, if each looked before the other committed."""
    storage, settings = memory_table(), with_profile("delta", level)
    late = replace(settings, concurrency=replace(settings.concurrency, early_conflict_detection=False))
    one, two = ArrowEngine(writer(storage, late)), ArrowEngine(writer(storage, late))
    one.insert(pa.table([["a", "b", "c"], [1, 5, 9], ["1"] * 3], schema=SCHEMA))
    tx = one.coordinator.begin("DELETE")
    two.delete(other)
    delete = one.delete_keys_in if isinstance(mine, pa.Table) else one.delete_where_in
    with pytest.raises(ConflictError) as caught:
        delete(tx, mine)
    assert leftovers(storage) == []
    return type(caught.value)


@pytest.mark.parametrize("level", ["Serializable", "WriteSerializable"])
def test_who_deletes_the_last_rows_of_a_file_has_deleted_what_others_read(level: str) -> None:
    """Delta removes the file; here one without rows is left, which is no row that was added."""
    for mine in (pc.field("v") > 4, pa.table([["b"], [0], ["1"]], schema=SCHEMA)):
        assert _of_two_deletes(level, mine, pc.field("v") > 0) is errors.ConcurrentDeleteReadException


@pytest.mark.parametrize("level", ["Serializable", "WriteSerializable"])
def test_of_two_deletes_in_a_file_the_later_read_what_the_other_rewrote(level: str) -> None:
    added = _of_two_deletes(level, pc.field("v") == 9, pc.field("v") == 1)  # the new file may hold a 9
    assert added is errors.ConcurrentAppendException
    told = _of_two_deletes(level, pc.field("v") == 9, pc.field("v") == 9)  # none of its rows is above 5
    assert told is errors.ConcurrentDeleteReadException


def test_another_claim_of_the_same_file_group_has_deltas_name_and_is_early() -> None:
    storage = memory_table()
    insert(writer(storage), storage, "month=1", "a")
    group = writer(storage).snapshot().files[0].group
    one, two = writer(storage, DELTA).begin("UPSERT"), writer(storage, DELTA).begin("UPSERT")
    one.claim([group])
    two.reads(ScriptedRead(()))
    with pytest.raises(errors.ConcurrentDeleteReadException) as caught:
        two.claim([group])
    assert caught.value.conflict.early
    one.abort()
    two.abort()


def test_in_the_profile_delta_any_change_of_the_columns_is_metadata_changed() -> None:
    storage = memory_table()
    wider = TableSchema.from_arrow(SCHEMA.append(pa.field("w", pa.int64())))
    mine, usual = writer(storage, DELTA).begin("INSERT"), writer(storage).begin("INSERT")
    with writer(storage).begin("INSERT") as other:
        other.commit([put_file(other, storage, "month=1", "a")], schema=wider)
    with pytest.raises(errors.MetadataChangedException, match="w"):
        mine.commit([put_file(mine, storage, "month=1", "b")])
    usual.commit([put_file(usual, storage, "month=1", "c")])
    assert writer(storage).schema() == wider


def test_a_version_that_is_applied_is_a_concurrent_transaction() -> None:
    storage, application = memory_table(), AppTransaction("stream", 7)
    insert(writer(storage), storage, "month=1", "a", application=application)
    with pytest.raises(errors.ConcurrentTransactionException, match="stream"):
        writer(storage, DELTA).begin(WriteRequest("INSERT", application=application))


@pytest.mark.parametrize("rule", ConflictRule)
def test_every_rule_has_a_name_in_the_profile_delta_that_survives_a_process_boundary(rule: ConflictRule) -> None:
    conflict = Conflict.over(rule, Party("2", "UPSERT"), Party("1", "INSERT"), ["month=1"])
    error = pickle.loads(pickle.dumps(rejection(ConcurrencySettings(profile="delta"), conflict)))
    assert isinstance(error, ConflictError) and type(error) is not ConflictError
    assert error.conflict == replace(conflict, profile="delta", level="Serializable")
    assert type(rejection(ConcurrencySettings(), conflict)) is ConflictError


def test_a_level_without_the_profile_that_has_it_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"set concurrency\.profile to delta"):
        ConcurrencySettings(profile="strict", isolation="WriteSerializable").check_together()


FROM_STRONG_TO_WEAK = [
    [("strict", "Serializable"), ("delta", "Serializable")],
    [("delta", "WriteSerializable")],
    [("hive", "Serializable")],
    [("hudi", "Serializable")],
]


@pytest.mark.parametrize("required", range(len(FROM_STRONG_TO_WEAK)))
def test_a_writer_with_a_weaker_profile_than_the_table_requires_is_refused_before_any_work(required: int) -> None:
    storage = memory_table()
    for profile, isolation in FROM_STRONG_TO_WEAK[required]:
        writer(storage).require_profile(profile, isolation)
        before = [item.key for item in storage.list("")]
        for weakness, group in enumerate(FROM_STRONG_TO_WEAK):
            for name, level in group:
                one = writer(storage, with_profile(name, level))
                if weakness > required:
                    with pytest.raises(SettingsError, match=rf"requires the profile {profile}.* this writer has {name}"):
                        one.begin("INSERT")
                    assert [item.key for item in storage.list("")] == before
                else:
                    one.begin("INSERT").abort()


def test_a_required_profile_moves_with_the_lock_and_can_be_released() -> None:
    storage = memory_table()
    operator = writer(storage)
    operator.require_profile("strict", "Serializable")
    provider = recorded_guard(storage).provider
    assert move_recorded(storage, operator.table.log, provider, "memory:elsewhere")
    assert move_recorded(storage, operator.table.log, "memory:elsewhere", provider)
    with pytest.raises(SettingsError, match="requires the profile strict"):
        writer(storage, with_profile("hudi")).begin("INSERT")
    writer(storage).require_profile("")
    writer(storage, with_profile("hudi")).begin("INSERT").abort()


def test_a_profile_of_a_later_release_is_stronger_than_any_that_this_one_has() -> None:
    storage = memory_table()
    writer(storage).require_profile("prophetic", "Serializable")
    with pytest.raises(SettingsError, match="requires the profile prophetic"):
        writer(storage).begin("INSERT")


def test_the_command_line_shows_sets_and_releases_the_required_profile(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path / "table"))
    new_table(storage)

    def told(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["profile", str(tmp_path / "table"), *arguments])
        assert done.exit_code == 0, done.output
        return done.stdout.strip()

    assert told() == "required profile: none: writers may have any"
    assert told("--require", "delta", "--isolation", "WriteSerializable") == "required profile: delta (WriteSerializable)"
    with pytest.raises(SettingsError):
        writer(storage, with_profile("hive")).begin("INSERT")
    assert json.loads(told("--release", "--json"))["required"] is None
    writer(storage, with_profile("hive")).begin("INSERT").abort()


def test_a_record_of_the_lock_by_a_newer_release_stops_a_writer() -> None:
    storage = MemoryStorage()
    storage.put(layout.LOCK_IDENTITY, b'{"format": 2, "provider": "storage:x"}')
    with pytest.raises(TableError, match="of a newer lakelock"):
        recorded_guard(storage)
