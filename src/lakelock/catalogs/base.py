"""What a catalog holds about a table, and what every catalog can do."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from lakelock.errors import SettingsError

_NAME = re.compile(r"[A-Za-z0-9_]{1,128}")
Values = tuple[str, ...]
"""The text of each partition column, which identifies a partition."""


@dataclass(frozen=True)
class TableName:
    """A table's name in a catalog. Catalogs do not tell upper case from lower case; names are kept in lower case."""

    database: str
    table: str

    @classmethod
    def parse(cls, text: str, own: str = "") -> TableName:
        """`sales.orders`; or `sales`, where the table is called `own`. `SettingsError` for anything else."""
        parts = [part.strip().strip("`") for part in text.split(".")]
        if len(parts) == 1 and own:
            parts.append(own)
        if len(parts) != 2 or not all(_NAME.fullmatch(part) for part in parts):
            raise SettingsError(
                f"{'.'.join(parts)[:300]!r} is not the name of a table in a catalog",
                hint='write database.table, in letters, digits and _: catalog.table = "sales.orders"',
                key="catalog.table",
            )
        return cls(parts[0].lower(), parts[1].lower())

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


@dataclass(frozen=True)
class Column:
    """A column with its type as Hive writes types; its name is in lower case."""

    name: str
    type: str


@dataclass(frozen=True)
class Entry:
    """A table as catalogs hold it. Partition columns are not among the `columns`, and stand for the last ones of the table."""

    location: str
    columns: tuple[Column, ...]
    partition_columns: tuple[Column, ...]
    parameters: Mapping[str, str]
    input_format: str
    output_format: str
    serde: str
    serde_parameters: Mapping[str, str]

    def is_in(self, found: Entry) -> bool:
        """Whether `found` says all that this entry says; it may have other parameters, too."""
        return (
            (self.location, self.columns, self.partition_columns) == (found.location, found.columns, found.partition_columns)
            and (self.input_format, self.output_format, self.serde) == (found.input_format, found.output_format, found.serde)
            and self.parameters.items() <= found.parameters.items()
            and self.serde_parameters.items() <= found.serde_parameters.items()
        )


class Catalog(Protocol):
    """One catalog. Every call is bounded in time; `CatalogError` when it does not answer, or refuses."""

    def find(self, name: TableName) -> Entry | None:
        """The entry of a table, None if there is none of the name."""

    def create(self, name: TableName, entry: Entry, *, with_database: bool) -> None:
        """Make the entry, and `with_database` its database; nothing happens if somebody made it meanwhile."""

    def update(self, name: TableName, entry: Entry) -> None:
        """Make the entry of an existing table say this; what it says besides stays."""

    def partitions(self, name: TableName) -> frozenset[Values]:
        """The partitions that the catalog has."""

    def add(self, name: TableName, entry: Entry, partitions: Mapping[Values, str]) -> None:
        """Add partitions, given with their locations; those that are there already stay as they are."""

    def drop(self, name: TableName, entry: Entry, partitions: Collection[Values]) -> None:
        """Take partitions out of the catalog; their files stay, and those that are gone already are passed over."""

    def close(self) -> None:
        """Let go of the connection. Never raises."""
