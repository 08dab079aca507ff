"""Options that are true or false, and options that are there without a value."""

from __future__ import annotations

from collections.abc import Mapping

from lakelock.errors import SettingsError

_NEVER_EMPTY = ("as_of", "partition", "since", "until", "txn_app_id", "txn_version")


def true_or_false(name: str, text: str) -> bool:
    """What the text of an option means, in any case; `SettingsError` for anything but true and false."""
    value = text.lower()
    if value not in ("true", "false"):
        raise SettingsError(f"the option {name} is {value!r}", hint="use true or false")
    return value == "true"


def refuse_empty(given: Mapping[str, str]) -> None:
    """`SettingsError` for an option that chooses rows or numbers a write, and is an empty text, as of a variable not set."""
    for name in _NEVER_EMPTY:
        if name in given and not given[name].strip():
            raise SettingsError(f"the option {name} is an empty text", hint="give it a value, or leave it out", key=name)
