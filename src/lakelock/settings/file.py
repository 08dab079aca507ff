"""A settings file as keys and raw values: our TOML, or the Hudi properties file of a Java writer."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from lakelock.errors import CorruptTableError, SettingsError
from lakelock.parsing import parse_java_properties
from lakelock.settings.fields import FileSettings
from lakelock.settings.hudi import from_hudi_properties

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read_settings_file(file: str | Path) -> FileSettings:
    """The settings in a `.toml` or `.properties` file on this machine, or `SettingsError` that says what is wrong."""
    path = Path(str(file).removeprefix("file://"))
    data = _bytes(path)
    if path.suffix == ".toml":
        return _settings(path, _toml(path, data))
    if path.suffix in (".properties", ".conf"):
        try:
            return from_hudi_properties(str(path), parse_java_properties(data, str(path)))
        except CorruptTableError as error:
            raise SettingsError(error.message, hint="correct that line") from error
    raise SettingsError(
        f"settings file {path} is neither .toml nor .properties",
        hint="give a TOML file like those in configs/, or the Hudi properties file of the Java writer",
    )


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        hint = "give the path of a file on the driver's machine"
        raise SettingsError(f"no settings file {path} (looked in {Path.cwd()})", hint=hint) from None
    except OSError as error:
        raise SettingsError(f"cannot read settings file {path}: {error.strerror}", hint="check path and permissions") from error


def _toml(path: Path, data: bytes) -> Mapping[str, object]:
    try:
        return tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        raise SettingsError(f"settings file {path} is not UTF-8 text: {error}", hint="save it as UTF-8") from error
    except RecursionError:
        raise _nested(path) from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"settings file {path} is not valid TOML: {error}", hint="correct that line") from error


def _settings(path: Path, table: Mapping[str, object]) -> FileSettings:
    try:
        return FileSettings(str(path), _flat(table))
    except RecursionError:
        raise _nested(path) from None


def _nested(path: Path) -> SettingsError:
    return SettingsError(f"settings file {path} is nested too deeply", hint="settings are `name = value` below one [section]")


def _flat(table: Mapping[str, object], prefix: str = "") -> dict[str, tuple[object, str]]:
    flat: dict[str, tuple[object, str]] = {}
    for name, value in table.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{key}.")
        else:
            flat[key] = (value, key)
    return flat
