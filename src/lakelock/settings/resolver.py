"""Builds `Settings` from options, Spark conf and file (TOML, or Hudi properties), and keeps the origin of each value."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lakelock.errors import CorruptTableError, SettingsError
from lakelock.parsing import parse_java_properties
from lakelock.settings.fields import LOCK_OPTIONS, FileSettings, Refused, SettingRow, parse, section_rows
from lakelock.settings.hudi import HIVE_KEYS, from_hive, from_hudi_properties
from lakelock.settings.removed import REMOVED
from lakelock.settings.secrets import MASK, masked
from lakelock.settings.sections import (
    SECTIONS,
    ArchiveSettings,
    CatalogSettings,
    CheckpointSettings,
    CleanSettings,
    ConcurrencySettings,
    DataLockSettings,
    DecisionSettings,
    HeartbeatSettings,
    HiveMetastoreSettings,
    ListingSettings,
    LockSettings,
    OptimizeSettings,
    RetrySettings,
    StatisticsSettings,
    TransactionSettings,
    UpkeepSettings,
    WriteSettings,
    settings_reference,
)
from lakelock.texts import nearest

_log = logging.getLogger("lakelock")

SPARK_PREFIX = "spark.lakelock."
_STORAGE = "storage."
_FREE = (_STORAGE, LOCK_OPTIONS)
"""What follows these prefixes is an option of a store, or of the driver of a lock service, by its own name."""
_USUAL_STORAGE = ("storage.endpoint", "storage.region", "storage.access_key_id", "storage.secret_access_key")
_CONFIG = "config"
_HUDI = "hoodie."


@dataclass(frozen=True)
class Origin:
    """A value, which may be a secret, and where it came from: `option`, `spark conf`, `file X` or `default`."""

    value: object = field(repr=False)
    origin: str


@dataclass(frozen=True)
class Explained:
    """One line of `lakelock config explain`. `value` is safe to show."""

    key: str
    value: str
    origin: str
    default: str
    unit: str
    doc: str


@dataclass(frozen=True)
class Settings:
    """All settings of a writer or reader. Picklable.

    `lock_options` holds options of the lock service's driver as it names them, `storage` those of HDFS or obstore.
    """

    concurrency: ConcurrencySettings = field(default_factory=ConcurrencySettings)
    lock: LockSettings = field(default_factory=LockSettings)
    heartbeat: HeartbeatSettings = field(default_factory=HeartbeatSettings)
    retry: RetrySettings = field(default_factory=RetrySettings)
    data_locks: DataLockSettings = field(default_factory=DataLockSettings)
    decisions: DecisionSettings = field(default_factory=DecisionSettings)
    transaction: TransactionSettings = field(default_factory=TransactionSettings)
    checkpoint: CheckpointSettings = field(default_factory=CheckpointSettings)
    statistics: StatisticsSettings = field(default_factory=StatisticsSettings)
    listing: ListingSettings = field(default_factory=ListingSettings)
    write: WriteSettings = field(default_factory=WriteSettings)
    clean: CleanSettings = field(default_factory=CleanSettings)
    archive: ArchiveSettings = field(default_factory=ArchiveSettings)
    upkeep: UpkeepSettings = field(default_factory=UpkeepSettings)
    optimize: OptimizeSettings = field(default_factory=OptimizeSettings)
    hive_metastore: HiveMetastoreSettings = field(default_factory=HiveMetastoreSettings)
    catalog: CatalogSettings = field(default_factory=CatalogSettings)
    lock_options: Mapping[str, object] = field(default_factory=dict, repr=False)
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def resolve(
        cls,
        options: Mapping[str, object] | None = None,
        spark_conf: Mapping[str, str] | None = None,
        file: str | Path | None = None,
    ) -> Resolved:
        """Settings from all sources, with the origin of each; `SettingsError` names the key, the source and the fix.

        `options` are dotted (`lock.wait_s`) or snake case (`lock_wait_s`), in any case, or Hudi's keys (`hoodie.…`), which mean
        what they mean in a file; one without effect is an error here. `file` may also be the option `config`
        or the conf `spark.lakelock.config`, in this order. Warnings are also logged, because a caller may overlook them.
        """
        sources = _Sources({row.key: row for row in settings_reference()})
        hudis: dict[str, str] = {}
        for name, value in (options or {}).items():
            if name.lower() == _CONFIG:
                file = file or str(value)
            elif name.lower().startswith(_HUDI):
                hudis[name.lower()] = str(value)
            else:
                sources.offer(name, name, value, "option")
        _offer_hudis(sources, hudis)
        for full_name, name, value in _ours(spark_conf or {}, sources):
            if name.lower() == _CONFIG:
                file = file or value
            else:
                sources.offer(name, full_name, value, "spark conf")
        if file:
            _offer_file(sources, file)
        resolved = _built(sources)
        for warning in resolved.warnings:
            _log.warning("%s", warning)
        return resolved


@dataclass(frozen=True)
class Resolved:
    """Settings with the origin of each, and what a person should know about them (`warnings`)."""

    settings: Settings
    origins: Mapping[str, Origin]
    warnings: tuple[str, ...] = ()

    def explain(self) -> list[Explained]:
        """Every setting in effect, secrets masked."""
        rows = {row.key: row for row in settings_reference()}
        return [_explained(key, origin, rows.get(key)) for key, origin in self.origins.items()]


def _explained(key: str, found: Origin, row: SettingRow | None) -> Explained:
    value = masked(key, found.value, secret=row is not None and row.secret)
    if row is None:
        of = "the lock service's driver" if key.startswith(LOCK_OPTIONS) else "the storage"
        return Explained(key, value, found.origin, "", "", f"Option of {of}")
    return Explained(key, value, found.origin, str(row.default), row.unit, row.doc)


@dataclass
class _Sources:
    """Values by key as the sources are read, the strongest first: a value that is there is not replaced."""

    rows: Mapping[str, SettingRow]
    values: dict[str, Origin] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    schemes: dict[str, str] = field(default_factory=dict)
    """The lock service that each source names: the options of a lock in one source are for that service."""

    def offer(self, name: str, given: str, value: object, origin: str) -> None:
        """Take the value of setting `name`, which the user wrote as `given`; `SettingsError` if there is no such setting."""
        if name.strip().lower() in HIVE_KEYS:
            meant = from_hive(name.strip().lower(), value)
            if meant is None:
                return
            name, value = meant
            origin = origin if given in origin else f"{origin}, {given}"
        key = self.key_of(name)
        if key is None:
            gone = _removed(name)
            if gone is not None:
                raise SettingsError(f"the setting {gone} ({origin}) is gone", hint=REMOVED[gone], key=gone)
            raise _unknown(given, origin, name, self.rows)
        if key == "lock.provider":
            self.schemes.setdefault(_source(origin), str(value).partition(":")[0])
        if key not in self.values:
            self.values[key] = Origin(value, origin)
        elif _source(self.values[key].origin) == _source(origin) and self.values[key].value != value:
            raise SettingsError(
                f"{key} is given twice in {_source(origin)}, with different values",
                hint="keep one of the two spellings",
                key=key,
            )

    def drop_options_of_other_locks(self) -> None:
        """Leave out the options of a source that names another lock service than a stronger source does."""
        provider = self.values.get("lock.provider")
        if provider is None:
            return
        scheme = self.schemes[_source(provider.origin)]
        for key, found in list(self.values.items()):
            if key.startswith(LOCK_OPTIONS) and self.schemes.get(_source(found.origin), scheme) != scheme:
                del self.values[key]

    def key_of(self, name: str) -> str | None:
        lowered = name.strip().lower()
        if lowered in self.rows:
            return lowered
        for prefix in _FREE:
            for spelled in (prefix, prefix.replace(".", "_")):
                if lowered.startswith(spelled) and len(lowered) > len(spelled):
                    return prefix + lowered[len(spelled) :]
        return next((key for key in self.rows if key.replace(".", "_") == lowered), None)


def _removed(name: str) -> str | None:
    """The former setting that a name means, in any spelling."""
    lowered = name.strip().lower()
    return next((key for key in REMOVED if lowered in (key, key.replace(".", "_"))), None)


def setting_of(name: str) -> str | None:
    """The setting that a name means, in any spelling; None if there is none."""
    return _Sources({row.key: row for row in settings_reference()}).key_of(name)


def shown_value(name: str, value: object) -> str:
    """What was given for a setting, in any spelling of it, as text that is safe to show."""
    key = setting_of(name)
    if key is None:
        return MASK  # a name that is gone or misspelt may be that of a secret
    return masked(key, value, secret=any(row.secret for row in settings_reference() if row.key == key))


def _source(origin: str) -> str:
    """An origin without the key that was translated."""
    return origin.partition(", ")[0]


def _ours(conf: Mapping[str, str], sources: _Sources) -> Iterator[tuple[str, str, str]]:
    """The conf's settings for lakelock. A misspelt prefix would be silently ignored, so it is named."""
    for full_name, value in conf.items():
        lowered = full_name.lower()
        if lowered.startswith(SPARK_PREFIX):
            yield full_name, full_name[len(SPARK_PREFIX) :], value
        elif lowered.startswith(("lakelock.", "spark.hadoop.lakelock.", "spark.sql.lakelock.", "spark.lake_lock.")):
            name = full_name[lowered.index("lock.") + len("lock.") :]
            sources.warnings.append(f'{full_name} in the Spark conf has no effect; did you mean "{SPARK_PREFIX}{name}"?')


def _offer_hudis(sources: _Sources, options: Mapping[str, str]) -> None:
    read = from_hudi_properties("options", options)
    if read.warnings:
        them = "it" if len(read.warnings) == 1 else "them"
        hint = f"leave {them} out; docs/reference-settings.md lists Hudi's keys that have a counterpart"
        raise SettingsError("\n  ".join(read.warnings), hint=hint)
    for name, (value, given) in read.values.items():
        sources.offer(name, given, value, f"option, {given}")


def _offer_file(sources: _Sources, file: str | Path) -> None:
    read = read_settings_file(file)
    sources.warnings.extend(read.warnings)
    for name, (value, given) in read.values.items():
        origin = f"file {read.path}" if given == name else f"file {read.path}, {given}"
        sources.offer(name, given, value, origin)


def _built(sources: _Sources) -> Resolved:
    sources.drop_options_of_other_locks()
    origins: dict[str, Origin] = {}
    sections: dict[str, Any] = {}
    for section in SECTIONS:
        values: dict[str, Any] = {}
        for row in section_rows(section):
            found = sources.values.get(row.key, Origin(row.default, "default"))
            if isinstance(found.value, Refused):
                raise SettingsError(f"{row.key} ({found.origin}): {found.value.why}", hint=found.value.hint, key=row.key)
            value = parse(row, found.value, found.origin)
            values[row.key.partition(".")[2]] = value
            origins[row.key] = Origin(value, found.origin)
        sections[section.section] = section(**values)
    storage, options = (
        {key[len(prefix) :]: found for key, found in sources.values.items() if key.startswith(prefix)} for prefix in _FREE
    )
    origins |= {_STORAGE + name: Origin(str(found.value), found.origin) for name, found in storage.items()}
    origins |= {LOCK_OPTIONS + name: found for name, found in options.items()}
    settings = Settings(
        **sections,
        lock_options={name: found.value for name, found in options.items()},
        storage={name: str(found.value) for name, found in storage.items()},
    )
    return Resolved(settings, origins, tuple(sources.warnings))


def _unknown(given: str, origin: str, name: str, rows: Mapping[str, SettingRow]) -> SettingsError:
    near = _nearest(name, rows)
    meant = f'; did you mean "{near}"?' if near else ""
    return SettingsError(
        f'unknown setting "{given}" ({origin}){meant}', hint="`lakelock config explain PATH` lists every setting", key=name
    )


def _nearest(name: str, rows: Mapping[str, SettingRow]) -> str | None:
    """The setting that was meant: one of the section that is named, or of any where there is no such section."""
    section, _, short = name.partition(".")
    own = {key.partition(".")[2]: key for key in rows if key.startswith(f"{section}.")}
    if own:
        return own.get(nearest(short, own) or "")
    whole = (*rows, *_USUAL_STORAGE)
    by_short = {key.partition(".")[2]: key for key in reversed([*rows])}
    return nearest(name, whole) or nearest(name.replace("_", ".", 1), whole) or by_short.get(nearest(name, by_short) or "")


if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read_settings_file(file: str | Path) -> FileSettings:
    """The settings in a `.toml` or `.properties` file on this machine, or `SettingsError` that says what is wrong."""
    path = _local_file(str(file))
    data = _bytes(path)
    if path.suffix == ".toml":
        return _settings(path, _toml(path, data))
    if path.suffix in (".properties", ".conf"):
        try:
            properties = parse_java_properties(data, str(path))
        except CorruptTableError as error:
            raise SettingsError(error.message, hint="correct that line") from error
        read = from_hudi_properties(str(path), properties)
        return replace(read, warnings=(*read.warnings, *_ours_among_hudis(str(path), properties)))
    raise SettingsError(
        f"settings file {path} is neither .toml nor .properties",
        hint="give a TOML file like those in configs/, or the Hudi properties file of the Java writer",
    )


def _local_file(name: str) -> Path:
    """The file of a path or a `file:` URI. A `Path` that was made of such a URI has one slash in it."""
    return Path(re.sub("^file:(//)?(?=/)|^file://", "", name)).expanduser()


def _ours_among_hudis(path: str, properties: Mapping[str, str]) -> Iterator[str]:
    """What to say of each setting of lakelock in a properties file, which nothing reads there."""
    for key in properties:
        name = key.removeprefix(SPARK_PREFIX)
        if setting_of(name) is not None:
            yield f"{path}: {key} has no effect here: a properties file has Hudi's keys; {name} belongs in a .toml file"


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
