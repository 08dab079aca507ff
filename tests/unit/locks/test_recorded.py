"""The settings that name a lock that a table has on record."""

from __future__ import annotations

import pytest
from tests.api import MemoryStorage

from lakelock.providers.registry import as_settings, settings_of
from lakelock.providers.zookeeper.session import parse_place


@pytest.mark.parametrize(
    ("identity", "settings"),
    [
        ("storage:.hoodie/.locks/table_lock.json", 'lock.provider to "storage:.hoodie/.locks/table_lock.json"'),
        ("dynamodb://locks/a%20b?region=eu-1", 'lock.provider to "dynamodb://locks/a%20b", lock.options.region_name to "eu-1"'),
        (
            "dynamodb://locks/t?region=eu-1&endpoint=h:8000",
            'lock.provider to "dynamodb://locks/t", lock.options.region_name to "eu-1", lock.options.endpoint_url to "http://h:8000"',
        ),
        (
            "dynamodb://locks/t?region=eu-1&endpoint=dynamo.example.org",
            'lock.provider to "dynamodb://locks/t", lock.options.region_name to "eu-1", '
            'lock.options.endpoint_url to "https://dynamo.example.org"',
        ),
        ("redis://h:6379/0?key=t", 'lock.provider to "redis://h:6379/0?key=t"'),
    ],
)
def test_a_hint_names_settings_that_are_accepted(identity: str, settings: str) -> None:
    assert as_settings(identity) == settings


def test_a_path_of_zookeeper_with_unusual_characters_is_named_as_a_setting_has_it() -> None:
    storage = MemoryStorage()
    place = parse_place("zookeeper://h/locks/50%25%3F%20of", storage)
    assert place.path == "/locks/50%? of"
    assert parse_place(settings_of(place.identity)["lock.provider"], storage) == place
