"""Tells the catalog that gives the table its name: on request, and after each commit.

Nothing is remembered of what was told: the catalog's entry knows its newest commit, and each time everything that it lacks is
told. So a commit that could not tell it leaves that to the next one, of whatever writer.
"""

from __future__ import annotations

from functools import partial

from lakelock.catalogs import Synced, TableName, open_catalog
from lakelock.catalogs.base import Described, described
from lakelock.catalogs.syncing import location_of, sync
from lakelock.errors import InputError, LakelockError, TableError
from lakelock.events import Event, EventKind
from lakelock.occ.committing.schemas import SchemaHistory
from lakelock.occ.open_table import OpenTable
from lakelock.table.properties import TableProperties


def register(table: OpenTable, name: str = "") -> Synced:
    """Make the catalog say what the table says, under `name` or that of the settings; this process goes on to do so.

    `CatalogError` if the catalog does not answer or refuses, `InputError` if the name is another table's or no name,
    `SettingsError` if the settings name no catalog, `TableError` for a merge-on-read table.
    """
    synced = sync_catalog(table, name)
    table.observed.name = name or table.observed.name
    return synced


def sync_catalog(table: OpenTable, name: str = "") -> Synced:
    """Tell the catalog what it lacks, once. Raises as `register` does."""
    properties, settings = table.properties(), table.settings
    if properties.is_merge_on_read:
        raise TableError(
            f"{properties.name} is a merge-on-read table: lakelock would tell the catalog of its base files only",
            hint="let its Java writers register it, with their own sync (hoodie.datasource.meta_sync.enable=true)",
        )
    wanted = name or table.observed.name or settings.catalog.table
    if not wanted:
        raise InputError("the table has no name in a catalog", hint="give one, such as sales.orders, or set catalog.table")
    found = TableName.parse(wanted, properties.name)
    catalog = open_catalog(settings, table.runtime, table.writer.user)
    try:
        synced = sync(
            catalog,
            found,
            partial(_look, table, properties),
            create_database=settings.catalog.create_database,
            keeps_spelling=settings.catalog.s3_scheme == "auto",
        )
    finally:
        catalog.close()
    facts = {"name": synced.name, "as_of": synced.instant, "added": synced.added, "dropped": synced.dropped}
    table.events.emit(Event(EventKind.NAMED, table.storage.uri, facts=facts))
    return synced


def tell_catalog(table: OpenTable) -> None:
    """After a commit: tell the catalog, if there is one. The commit stands whatever goes wrong; the next one tells it all."""
    if not (table.settings.catalog.table or table.observed.name):
        return
    try:
        sync_catalog(table)
    except Exception as error:  # noqa: BLE001  an error would contradict the table
        why = f"{error.message} ({error.hint})" if isinstance(error, LakelockError) else f"{type(error).__name__}: {error}"
        name = table.observed.name or table.settings.catalog.table
        problem = f"the catalog was not told of {name}: {why}. The next commit, or lakelock register, tells it all"
        table.emit(EventKind.ALERT, operation="CATALOG", problem=problem)


def _look(table: OpenTable, properties: TableProperties) -> Described:
    snapshot, timeline = table.shown_now()
    schema = SchemaHistory(table).at(timeline, properties)
    return described(location_of(table.storage.uri, table.settings), properties, schema, snapshot.partitions, timeline)
