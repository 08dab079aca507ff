"""How `format("lakelock")` learns the session's confs under `spark.lakelock.`, and never works without them.

Spark gives a Python data source nothing but its options: neither the process that plans a write nor the one that commits it can
ask the session. So the driver registers a data source that carries the session's confs (`registration.py`). The tasks
can tell whether that was done and is still current: Spark sends them every conf of the session.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark import TaskContext

from lakelock.errors import SettingsError
from lakelock.settings.resolver import SPARK_PREFIX, Resolved, setting_of

_FILE = "config"
OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"
"""Spark's own conf for what an overwrite replaces. It applies to `format("lakelock")`, too, and reaches it in the same way."""
OF_READS = ("storage.", "listing.", _FILE)
"""The settings that a read depends on: it takes no lock."""


def conf_in_task() -> dict[str, str]:
    """The session's confs under `spark.lakelock.`, as Spark sent them along with the running task."""
    return {key: value for key, value in _sent_along().items() if key.startswith(SPARK_PREFIX)}


def _sent_along() -> Mapping[str, str]:
    context = TaskContext.get()
    return (context._localProperties if context is not None else None) or {}


def overwrites_partitions(conf: Mapping[str, str]) -> bool:
    """Whether these confs say that an overwrite replaces only the partitions that it has rows for."""
    return conf.get(OVERWRITE_MODE, "").lower() == "dynamic"


def ensure_overwrite_known(known: bool) -> None:
    """In a task of an overwrite: `SettingsError` if the session replaces partitions, or the table, contrary to `known`."""
    if overwrites_partitions(_sent_along()) != known:
        raise SettingsError(
            f'format("lakelock") does not know how the session sets {OVERWRITE_MODE}: Spark gives it only options',
            hint='give it as an option, .option("partitionOverwriteMode", "dynamic") or "static"; or call '
            "lakelock.spark_plugin.register(spark) after setting the conf",
            key=OVERWRITE_MODE,
        )


def chosen_by_options(resolved: Resolved, file: str | None) -> frozenset[str]:
    """The settings that options determine, whatever the session says."""
    given = {key for key, found in resolved.origins.items() if found.origin.startswith("option")}
    return frozenset(given | {_FILE} if file else given)


def ensure_known(
    session: Mapping[str, str], known: Mapping[str, str], chosen: frozenset[str], of: tuple[str, ...] = ()
) -> None:
    """`SettingsError` if the `session` sets, or no longer sets, what is not `known` and no option has `chosen`.

    `of`: only settings whose names begin with one of these matter.
    """
    changed = sorted(key for key in {*session, *known} if session.get(key) != known.get(key))
    unknown = [key for key in changed if _setting(key) not in chosen and (not of or _setting(key).startswith(of))]
    if unknown:
        name = _setting(unknown[0])
        raise SettingsError(
            f'format("lakelock") does not know how the session sets {", ".join(unknown)}: Spark gives it only options',
            hint="call lakelock.spark_plugin.register(spark) after setting the confs, and again after changing them; or give "
            f'the setting as an option: .option("{name}", ...)',
            key=name,
        )


def _setting(conf: str) -> str:
    """The setting that a conf is about, `config` for the file."""
    name = conf[len(SPARK_PREFIX) :].lower()
    return name if name == _FILE else setting_of(name) or name
