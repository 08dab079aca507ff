"""Settings of the catalog that gives the table its name for other engines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Literal

from lakelock.errors import SettingsError
from lakelock.settings.fields import Section, setting

_NAME = re.compile(r"[A-Za-z0-9_]{1,128}(\.[A-Za-z0-9_]{1,128})?")


@dataclass(frozen=True)
class CatalogSettings(Section):
    """The catalog in which engines find the table by its name; it is told of each commit."""

    section: ClassVar[str] = "catalog"
    type: Literal["none", "hive_metastore", "glue"] = setting(
        "none", "Which catalog is told: a Hive metastore, AWS Glue's data catalog, or none"
    )
    table: str = setting(
        "", "The table's name there, such as sales.orders; sales alone takes the name that the table has itself"
    )
    uris: str = setting(
        "",
        "Metastores as Hive lists them (thrift://host:port, separated by commas); empty means hive_metastore.uris. The section "
        "hive_metastore says how to log in",
        in_repr=False,
    )
    timeout_s: float = setting(
        10.0, "How long telling the catalog may take after a commit; the next commit tells the rest", unit="s", at_least=0.1,
        at_most=3_600,
    )  # fmt: skip
    create_database: bool = setting(True, "Make the database when it is missing")
    s3_scheme: Literal["auto", "s3", "s3a"] = setting(
        "auto", "How the catalog spells paths on S3: auto is s3a in a metastore, which has Hadoop's client, and s3 in Glue"
    )
    region: str = setting("", "AWS region of Glue; empty means that of the environment or profile, as for the AWS tools")
    endpoint_url: str = setting("", "Endpoint of Glue to use instead of the region's, for VPC endpoints and for tests")
    catalog_id: str = setting("", "Account whose Glue catalog is used; empty means the account of the credentials")

    def check_together(self) -> None:
        if self.table and not _NAME.fullmatch(self.table):
            raise SettingsError(
                f"catalog.table is {self.table[:300]!r}, which is not the name of a table in a catalog",
                hint="write database.table, in letters, digits and _, such as sales.orders",
                key="catalog.table",
            )
        if self.table and self.type == "none":
            raise SettingsError(
                f"catalog.table is {self.table}, but catalog.type names no catalog",
                hint="set catalog.type to hive_metastore or glue",
                key="catalog.type",
            )
