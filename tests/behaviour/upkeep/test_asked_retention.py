"""Retention that somebody asks for: what it would delete goes, or it is refused with the name of whoever needs it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.api import FileGroupId
from tests.behaviour.foreign import Peer
from tests.behaviour.upkeep.upkeep_tables import KEEPING_TWO, PARTITION, AgingTable

from lakelock.errors import InputError, SettingsError
from lakelock.occ.clean import Cleaned, asked_retention
from lakelock.settings import CleanSettings

SETTINGS = replace(KEEPING_TWO, clean=CleanSettings(readers_s=0))
"""They keep a week."""
EACH = [{"keep_hours": 0}, {"keep_commits": 1}, {"keep_versions": 1}]


def clean(table: AgingTable, *, dry_run: bool = False, readers_s: float = 0, **given: float) -> Cleaned:
    settings = replace(SETTINGS, clean=replace(SETTINGS.clean, readers_s=readers_s))
    asked = asked_retention(settings.clean, **given)  # type: ignore[arg-type]
    return table.coordinator(settings=settings).clean(dry_run=dry_run, asked=asked)


def refused(table: AgingTable, *, readers_s: float = 0, **given: float) -> InputError:
    """The refusal of a clean, which changed nothing."""
    before = table.names("")
    for dry_run in (True, False):
        with pytest.raises(InputError) as caught:
            clean(table, dry_run=dry_run, readers_s=readers_s, **given)
    assert table.names("") == before
    return caught.value


@pytest.mark.parametrize("given", EACH)
def test_what_is_asked_for_takes_the_place_of_the_settings(given: dict[str, float]) -> None:
    table = AgingTable()
    written = table.write_many(4)
    table.runtime.advance(5)
    assert clean(table).files == 0 and clean(table, dry_run=True, **given).files > 0
    assert clean(table, **given).files > 0 and table.slices() in (written[-1:], written[-2:])
    assert clean(table, **given).files == 0


@pytest.mark.parametrize("given", EACH)
def test_a_retention_that_a_running_transaction_does_not_allow_is_refused_with_its_instant(given: dict[str, float]) -> None:
    table = AgingTable()
    table.write_many(2)
    slow = table.coordinator().begin("UPSERT")
    for _ in range(3):
        table.runtime.advance(1)
        table.write("a")
    base = table.slices()[1]
    error = refused(table, **given)
    assert slow.instant in error.message and "still running" in error.message and "lakelock commits ls" in error.hint
    assert clean(table).held_by == "" and base in table.slices(), "what nobody asked for is no error"
    slow.abort()
    assert clean(table, **given).files > 0 and base not in table.slices()


def test_automatic_upkeep_goes_on_beside_what_it_has_to_keep_and_says_for_whom() -> None:
    table = AgingTable()
    first = table.write_many(4)[0]
    slow = table.coordinator().begin("UPSERT")
    for _ in range(3):
        table.runtime.advance(1)
        table.write("a")
    done = table.coordinator().upkeep()
    assert done.problems == () and done.cleaned.files > 0 and slow.instant in done.cleaned.held_by
    assert first not in table.slices()
    slow.abort()


@pytest.mark.parametrize("given", EACH)
def test_a_retention_that_a_savepoint_does_not_allow_is_refused_with_its_name(given: dict[str, float]) -> None:
    table = AgingTable()
    written = table.write_many(5)
    table.coordinator().savepoint("release 7", as_of=written[1])
    table.runtime.advance(5)
    error = refused(table, **given)
    assert f"kept for the savepoint 'release 7' of {written[1]}" in error.message
    assert f"lakelock savepoint rm {table.storage.uri} {written[1]}" in error.hint
    table.coordinator().delete_savepoint("release 7")
    assert clean(table, **given).files > 0 and written[1] not in table.slices()


def test_a_savepoint_whose_files_would_stay_anyway_refuses_nothing() -> None:
    table = AgingTable()
    written = table.write_many(5)
    table.coordinator().savepoint("now", as_of=written[-1])
    table.write("b")
    assert clean(table, keep_versions=1).files == 4 and table.slices() == written[-1:]


@pytest.mark.parametrize("given", EACH)
def test_a_retention_shorter_than_readers_are_given_is_refused(given: dict[str, float]) -> None:
    table = AgingTable()
    written = table.write_many(4)
    table.runtime.advance(5)
    error = refused(table, readers_s=600, **given)
    assert "clean.readers_s" in error.message and written[0] in error.message
    table.runtime.advance(600)
    assert clean(table, readers_s=600, **given).files > 0


def test_files_that_another_engine_plans_to_cluster_refuse_it_too() -> None:
    table = AgingTable()
    table.write_many(3)
    plan = Peer(table.storage).plan_clustering(FileGroupId(PARTITION, "a"))
    table.write_many(3, "b")
    assert plan in refused(table, keep_commits=1).message


def test_one_retention_is_asked_for_and_within_its_bounds() -> None:
    with pytest.raises(InputError, match="keep_hours and keep_versions exclude each other"):
        asked_retention(CleanSettings(), keep_hours=1, keep_versions=1)
    with pytest.raises(SettingsError, match=r"clean\.keep_versions"):
        asked_retention(CleanSettings(), keep_versions=0)
    assert asked_retention(CleanSettings()) is None
