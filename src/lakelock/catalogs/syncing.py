"""Makes a catalog's entry of a table say what the table says: idempotent, and safe while others do the same.

The settings name the catalog (`open_catalog`). The catalog is read before the table is: each value in it came from a
commit that the table shows by then. So no partition is dropped that another writer has just added. The entry learns of
the newest commit last, so an interrupted writer leaves one that says that it is behind. At the end the table is looked at
once more: a writer who was overtaken while it told its own commit tells the later one as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lakelock.catalogs.base import Catalog, Described, Entry, TableName, without_sync
from lakelock.catalogs.glue import GlueCatalog
from lakelock.catalogs.metastore import MetastoreCatalog
from lakelock.clock import Runtime
from lakelock.errors import InputError, SettingsError
from lakelock.providers.hive_metastore.requests import listed
from lakelock.settings import Settings
from lakelock.storage.location import canonical_uri
from lakelock.texts import counted

ROUNDS = 3
"""How often one writer begins again because others committed meanwhile; they tell the catalog, too."""


@dataclass(frozen=True, repr=False)
class Synced:
    """What was written to a catalog. `instant`: the newest commit that its entry knows; counts are partitions."""

    name: str
    instant: str
    created: bool = False
    columns_changed: bool = False
    added: int = 0
    dropped: int = 0

    def __repr__(self) -> str:
        what = "registered" if self.created else "columns changed" if self.columns_changed else "up to date"
        changed = f"{counted(self.added, 'partition')} added, {self.dropped:,} dropped"
        return f"{self.name} {what} as of {self.instant or 'no commit'}: {changed}"


def sync(
    catalog: Catalog,
    name: TableName,
    look: Callable[[], Described],
    *,
    create_database: bool = True,
    keeps_spelling: bool = True,
) -> Synced:
    """Tell the catalog; `look` reads the table as it is. `InputError` if another table has the name.

    `keeps_spelling`: an entry that spells the path in another way, such as `s3:` for `s3a:`, goes on to do so.
    """
    created = changed = False
    added = dropped = 0
    for _ in range(ROUNDS):
        found = catalog.find(name)
        listed = catalog.partitions(name) if found is not None and found.partition_columns else {}
        table = look()
        entry = table.entry
        if found is None:
            catalog.create(name, without_sync(entry), with_database=create_database)
            created, found = True, catalog.find(name)
        if found is not None:
            # Also a new one: another writer may have been faster, and for another table.
            require_same_table(name, found, entry)
            changed = changed or (found.columns, found.partition_columns) != (entry.columns, entry.partition_columns)
            if keeps_spelling:
                table = table.at(found.location)
                entry = table.entry
        gone = listed.keys() - table.partitions.keys()
        # A table that was made anew at this place may have other folders for the same values.
        moved = {values for values, where in listed.items() if values not in gone and _moves(where, table.partitions[values])}
        new = {values: where for values, where in table.partitions.items() if values not in listed or values in moved}
        if (new or gone) and found is not None and not without_sync(entry).is_in(found):
            # Before the partitions, and without the newest commit: who is interrupted leaves an entry that is behind.
            catalog.update(name, without_sync(entry))
        if moved:
            catalog.drop(name, entry, moved)
        if new:
            catalog.add(name, entry, new)
        if gone:
            catalog.drop(name, entry, gone)
        if found is None or not entry.is_in(found):
            catalog.update(name, entry)
        added, dropped = added + len(new), dropped + len(gone) + len(moved)
        if look().last_completion == table.last_completion:
            break
    return Synced(str(name), table.last_commit, created, changed, added, dropped)


def require_same_table(name: TableName, found: Entry, entry: Entry) -> None:
    """`InputError` unless the name in the catalog is that of the table that `entry` describes."""
    if _place(found.location) != _place(entry.location):
        raise InputError(
            f"{name} is another table in the catalog: {found.location or 'one without a location'}, and not {entry.location}",
            hint="choose another name with catalog.table, or drop that table in the catalog",
            name=str(name),
            location=found.location,
        )


def _moves(known: str, wanted: str) -> bool:
    """Whether a partition is to be at another place than the catalog says, if it says one."""
    return known not in ("", wanted) and _place(known) != _place(wanted)


def _place(location: str) -> str:
    try:
        return canonical_uri(location)
    except SettingsError:
        return location


def open_catalog(settings: Settings, runtime: Runtime, user: str) -> Catalog:
    """The catalog of `catalog.*`; nothing is contacted yet. `SettingsError` when they name none."""
    catalog = settings.catalog
    if catalog.type == "glue":
        return GlueCatalog(runtime, catalog)
    if catalog.type == "none":
        raise SettingsError(
            "catalog.type names no catalog",
            hint='set catalog.type to hive_metastore (and catalog.uris = "thrift://host:9083") or to glue',
            key="catalog.type",
        )
    uris, key = (catalog.uris, "catalog.uris") if catalog.uris else (settings.hive_metastore.uris, "hive_metastore.uris")
    if not uris.strip():
        raise SettingsError(
            "catalog.type is hive_metastore, but nothing says where the metastore is",
            hint='set catalog.uris = "thrift://host:9083"',
            key="catalog.uris",
        )
    return MetastoreCatalog(runtime, settings, listed(uris, key), user)


def location_of(uri: str, settings: Settings) -> str:
    """The table's URI as readers of the catalog spell it: Hadoop has local paths with one slash, and S3 by s3a."""
    catalog = settings.catalog
    if uri.startswith("file://"):
        return "file:" + uri.removeprefix("file://")
    by_hadoop = catalog.type == "hive_metastore" if catalog.s3_scheme == "auto" else catalog.s3_scheme == "s3a"
    return "s3a://" + uri.removeprefix("s3://") if by_hadoop and uri.startswith("s3://") else uri
