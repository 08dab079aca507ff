"""Options that are true or false."""

from __future__ import annotations

from lakelock.errors import SettingsError


def true_or_false(name: str, text: str) -> bool:
    """What the text of an option means, in any case; `SettingsError` for anything but true and false."""
    value = text.lower()
    if value not in ("true", "false"):
        raise SettingsError(f"the option {name} is {value!r}", hint="use true or false")
    return value == "true"
