"""Opens the catalog that the settings name, and spells the table's path as it does."""

from __future__ import annotations

from lakelock.catalogs.base import Catalog
from lakelock.catalogs.glue import GlueCatalog
from lakelock.catalogs.metastore import MetastoreCatalog
from lakelock.clock import Runtime
from lakelock.errors import SettingsError
from lakelock.providers.hive_metastore.place import listed
from lakelock.settings import Settings


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
