"""Of a statement in SQL of any shape each piece comes back as it was written."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from tests.property.statements import gaps, statements, written
from tests.sizes import examples

from lakelock.spark_plugin.sql_changes import statement_of
from lakelock.spark_plugin.sql_operations import Insert, Merge, Statement


@given(statements, gaps)
@settings(max_examples=examples(40, 100))
def test_every_piece_of_a_statement_comes_back_as_it_was_written(statement: Statement, gap: str) -> None:
    found = statement_of(written(statement, gap))
    if isinstance(found, Insert | Merge):
        found = replace(found, reads=())
    assert found == statement
