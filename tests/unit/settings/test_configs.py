"""The example files are what users copy, so they must load, and say what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelock.providers import provider_names
from lakelock.settings import Settings, settings_reference

CONFIGS = Path(__file__).parents[3] / "configs"


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.toml")), ids=lambda path: path.name)
def test_every_example_loads_without_a_warning(path: Path) -> None:
    assert Settings.resolve(file=path).warnings == ()


def test_the_default_file_lists_every_setting_with_its_default_meaning_and_bounds() -> None:
    path = CONFIGS / "default.toml"
    resolved = Settings.resolve(file=path)
    text = path.read_text()
    assert resolved.settings == Settings()
    for row in settings_reference():
        assert resolved.origins[row.key].origin == f"file {path}", f"{row.key} is not in {path.name}"
        section, _, name = row.key.partition(".")
        of_section = text.partition(f"\n[{section}]\n")[2]
        above = of_section.partition(f"\n{name} = ")[0].rpartition(" = ")[2]
        assert f"# {row.doc}" in above, f"{path.name} explains {row.key} in other words"
        limits = row.type_name if row.choices else row.bounds
        assert not limits or f"({limits})" in above, f"{path.name} gives other limits for {row.key}"


def test_every_provider_has_an_example() -> None:
    assert {path.stem for path in CONFIGS.glob("*.toml")} == {*provider_names(), "default"}


def test_the_storage_example_chooses_the_lock_next_to_the_table() -> None:
    resolved = Settings.resolve(file=CONFIGS / "storage.toml")
    assert resolved.settings.lock.provider == "storage:"
    assert resolved.origins["lock.provider"].origin.startswith("file ")


def test_the_dynamodb_example_names_table_key_and_region() -> None:
    settings = Settings.resolve(file=CONFIGS / "dynamodb.toml").settings
    assert settings.lock.provider == "dynamodb://hudi_locks/flights"
    assert settings.lock_options == {"region_name": "eu-central-1"}


def test_the_zookeeper_example_names_the_path_of_its_lock() -> None:
    assert Settings.resolve(file=CONFIGS / "zookeeper.toml").settings.lock.provider.endswith("/hudi/locks/flights")
