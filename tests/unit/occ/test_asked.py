"""The small grammar in which people ask about a conflict."""

from __future__ import annotations

import pytest

from lakelock.errors import InputError
from lakelock.occ.explain import ALIASES, OPERATIONS, AskedOperation, parse_operation


@pytest.mark.parametrize(
    ("text", "name", "scope"),
    [
        ("DELETE month=1", "DELETE", "month=1"),
        ("  upsert   month=1/day=2 ", "UPSERT", "month=1/day=2"),
        ("Delete where tail = 'N1' AND v > 3", "DELETE", "tail = 'N1' AND v > 3"),
        ("INSERT", "INSERT", ""),
        ("append month=1", "INSERT", "month=1"),
        ("INSERT_OVERWRITE month=1", "OVERWRITE", "month=1"),
        ("cluster", "OPTIMIZE", ""),
    ],
)
def test_an_operation_is_a_word_and_the_rest_its_scope(text, name, scope):
    assert parse_operation(text) == AskedOperation(name, scope)


@pytest.mark.parametrize("alias", ALIASES)
def test_every_other_name_means_an_operation_that_there_is(alias):
    assert parse_operation(alias).name in OPERATIONS


@pytest.mark.parametrize(("text", "nearest"), [("DELTE month=1", "DELETE"), ("upsrt", "UPSERT"), ("optimise", "OPTIMIZE")])
def test_a_misspelt_operation_is_told_the_nearest(text, nearest):
    with pytest.raises(InputError, match=f'did you mean "{nearest}"'):
        parse_operation(text)


@pytest.mark.parametrize("text", ["", "  ", "month=1", "20261121093515485"])
def test_a_text_without_an_operation_is_told_which_there_are(text):
    with pytest.raises(InputError) as caught:
        parse_operation(text)
    assert all(name in caught.value.hint for name in OPERATIONS)
