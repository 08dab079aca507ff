"""The settings of a catalog: what cannot be a name is refused before any work, and so is a name that nobody is told."""

from __future__ import annotations

import pytest

from lakelock.catalogs import TableName
from lakelock.errors import SettingsError
from lakelock.settings import Settings


@pytest.mark.parametrize("name", ["a.b.c", "a b", "sales.", ".orders", "sales.or-ders", "x" * 129])
def test_what_is_not_the_name_of_a_table_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=r"catalog\.table is"):
        Settings.resolve({"catalog.type": "glue", "catalog.table": name})
    with pytest.raises(SettingsError, match="not the name of a table"):
        TableName.parse(name, "orders")


def test_a_name_without_a_catalog_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"catalog\.type names no catalog"):
        Settings.resolve({"catalog.table": "sales.orders"})


def test_a_name_is_in_lower_case_and_a_database_alone_takes_the_tables_own() -> None:
    assert str(TableName.parse("Sales.Orders")) == "sales.orders"
    assert str(TableName.parse("sales", "Orders")) == "sales.orders"
