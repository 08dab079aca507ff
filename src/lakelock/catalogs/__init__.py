"""The catalogs in which other engines find a table by its name, and how commits update them."""

from lakelock.catalogs.base import Catalog, Column, Entry, TableName
from lakelock.catalogs.syncing import Synced, open_catalog

__all__ = ["Catalog", "Column", "Entry", "Synced", "TableName", "open_catalog"]
