"""`lock.options`: what a lock service's driver understands is passed to the driver, by the driver's own names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from lakelock.errors import SettingsError
from lakelock.settings.fields import Section, SettingRow, parse, section_rows
from lakelock.texts import did_you_mean

PREFIX = "lock.options."

Own = TypeVar("Own", bound=Section)


def read_options(
    own: type[Own],
    given: Mapping[str, object],
    service: str,
    *drivers: Callable[..., object] | Mapping[str, object],
    reserved: Mapping[str, str],
) -> tuple[Own, dict[str, Any]]:
    """The options that lakelock reads itself, and those that go to the driver, checked against the signatures of `drivers`
    (or names and defaults).

    Text is converted to the type of the parameter's default. `reserved` are parameters that lakelock gives itself, with what
    to do instead. An option that is neither is a `SettingsError` with the name that was probably meant. An option
    `name.part` is the entry `part` of the parameter `name`, a mapping.
    """
    rows = {row.key.removeprefix(PREFIX): row for row in section_rows(own)}
    accepted = {name: default for driver in drivers for name, default in _parameters(driver).items() if name not in rows}
    mine: dict[str, Any] = {}
    theirs: dict[str, Any] = {}
    for key, raw in given.items():
        name, _, part = key.partition(".")
        if key in rows:
            mine[key] = parse(rows[key], raw)
        elif name in reserved:
            raise SettingsError(f"{PREFIX}{key} is set, but lakelock gives it itself", hint=reserved[name], key=PREFIX + key)
        elif name not in accepted:
            known = sorted({*rows, *accepted} - reserved.keys())
            raise SettingsError(
                f"{PREFIX}{key} is no option of {service}{did_you_mean(key, known)}",
                hint=f"the options are {', '.join(known)}",
                key=PREFIX + key,
            )
        elif part:
            theirs.setdefault(name, {})[part] = raw
        else:
            theirs[name] = _converted(key, raw, accepted[name])
    return own(**mine), theirs


def refuse_unused(given: Mapping[str, object], names: tuple[str, ...], why: str, *, instead: str, key: str) -> None:
    """`SettingsError` about `key` if one of these options is given, `why` it does nothing, and what to do `instead`."""
    found = next((PREFIX + name for name in names if given.get(name)), None)
    if found is not None:
        raise SettingsError(f"{found} is set, but {why}", hint=f"{instead}, or leave {found} out", key=key)


def _parameters(driver: Callable[..., object] | Mapping[str, object]) -> dict[str, object]:
    """Name and default of each parameter, also of those that a class hands up to its bases."""
    if isinstance(driver, Mapping):
        return dict(driver)
    classes = driver.__mro__ if isinstance(driver, type) else ()
    makers = [each.__dict__["__init__"] for each in classes if "__init__" in each.__dict__ and each is not object] or [driver]
    found: dict[str, object] = {}
    for maker in makers:
        for name, parameter in inspect.signature(maker).parameters.items():
            if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY) and name != "self":
                found.setdefault(name, parameter.default)
    return found


def _converted(name: str, raw: object, default: object) -> object:
    """The value in the type of the default; unchanged where the default tells no type."""
    kind = next((kind for kind in (bool, int, float) if type(default) is kind), None)
    return raw if kind is None else parse(SettingRow(PREFIX + name, kind, default, "what the driver takes"), raw)
