"""Settings for tests: those of users, and constants of the sections that no user can set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from lakelock.settings import Settings


def settings_of(options: Mapping[str, object], file: str | Path | None = None) -> Settings:
    """What `Settings.resolve` gives, where `options` may name constants, too: `{"decisions.collect_above": 2}`."""
    constants = {key: value for key, value in options.items() if _is_constant(key)}
    settings = Settings.resolve({key: value for key, value in options.items() if key not in constants}, file=file).settings
    for key, value in constants.items():
        section, _, name = key.partition(".")
        changed: Any = {section: replace(getattr(settings, section), **{name: value})}
        settings = replace(settings, **changed)
    return settings


def _is_constant(key: str) -> bool:
    section, _, name = key.partition(".")
    found: Any = getattr(Settings(), section, None)
    if section == "storage" or found is None or not name or isinstance(found, Mapping):
        return False
    return any(each.name == name and each.metadata.get("constant") for each in fields(found))
