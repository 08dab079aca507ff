"""What `lakelock doctor` says about what a table needs around it: the lock, Spark, and the clients of its store.

The lock: whether it is the table's, whether it can be taken, and whether its settings do what they should. Spark:
version, pandas, workers, connector, Java, without starting it. Spark's own settings (`spark.jars`, `--packages`) are not
known here; they may bring what is missing, so it is only a warning. Clients: whether lakelock's client of an object store
and Hadoop's, by which Spark reads, have the same settings. `DoctorContext` is what all checks examine.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from lakelock.cli.arguments import APPLICATION, Next, hadoop_settings
from lakelock.clock import Runtime
from lakelock.data_locks.lock_table import watch_s
from lakelock.errors import LakelockError, LockTimeout, ProviderMismatch
from lakelock.events import Events
from lakelock.identity import WriterIdentity
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.foreign import Undone, unrepaired
from lakelock.occ.recorded_lock import compare_locks, recorded_provider
from lakelock.providers import LockProvider, open_provider
from lakelock.providers.base import wait_to_tell
from lakelock.providers.registry import provider_name
from lakelock.settings import Settings
from lakelock.settings.resolver import Resolved
from lakelock.storage import Storage
from lakelock.storage.hadoop import connector, mismatches, release
from lakelock.storage.location import StorageLocation, TableIO, is_local
from lakelock.storage.memory import MemoryStorage
from lakelock.table import layout
from lakelock.table.layout_one import shown_as_layout_two
from lakelock.table.properties import read_properties

Status = Literal["ok", "warning", "failed"]


@dataclass(frozen=True)
class Check:
    """What one check found, and what to do about it."""

    name: str
    status: Status
    found: str
    hint: str = ""


@dataclass(frozen=True)
class DoctorContext:
    """What the checks examine."""

    path: str
    resolved: Resolved
    storage: Storage
    runtime: Runtime
    config: Path | None = None
    overrides: Sequence[str] | None = None

    def next(self, name: str, *rest: object) -> str:
        """The command to print as the next step, on this table and with the settings of this call."""
        return Next(self.path, self.config, self.overrides).command(name, *rest)

    @cached_property
    def shown(self) -> Storage:
        """The storage as readers of today's layout see it."""
        try:
            return shown_as_layout_two(self.storage, read_properties(self.storage))
        except LakelockError:  # the check of the table says so
            return self.storage

    def io(self, storage: Storage) -> TableIO:
        """Several requests at a time on this storage, by the settings."""
        return TableIO(storage, self.runtime, self.settings.listing.parallel_requests)

    @cached_property
    def undone(self) -> list[Undone]:
        """Commits of which another engine's rollback has removed files, and which no repair has taken out; reads only."""
        settings = replace(self.settings, concurrency=replace(self.settings.concurrency, mode="SINGLE_WRITER"))
        location = StorageLocation(self.storage.uri, settings.storage)
        with Coordinator.open(location, settings, application=APPLICATION, runtime=self.runtime, storage=self.storage) as found:
            return unrepaired(found.table, found.table.timeline())

    @property
    def settings(self) -> Settings:
        return self.resolved.settings


LOCK_WAIT_S = 5.0
_FOR_EACH_TABLE = {
    "zookeeper": "end lock.provider with /base?key=table",
    "dynamodb": "leave the partition key out of lock.provider",
    "redis": "leave ?key= out of lock.provider",
    "hive_metastore": "leave database and table out of lock.provider",
}
"""How one configuration gives each table a lock of its own."""


def check_lock(context: DoctorContext) -> Iterator[Check]:
    """One acquire and release, as a commit would do it."""
    settings, runtime = context.settings, context.runtime
    if settings.concurrency.mode == "SINGLE_WRITER":
        yield Check(
            "lock", "warning", "concurrency.mode is SINGLE_WRITER: no lock is taken", "make sure that there is only one writer"
        )
        return
    short = replace(settings, lock=replace(settings.lock, wait_s=min(LOCK_WAIT_S, settings.lock.wait_s)))
    writer = WriterIdentity.of_this_process(runtime, "lakelock doctor")
    provider = open_provider(short, context.storage, runtime, writer, Events())
    try:
        recorded = recorded_provider(context.storage)
        try:
            compare_locks(context.storage, recorded, provider.identity)
        except ProviderMismatch as error:
            found = f"the table is guarded by {recorded}, these settings name {provider.identity}"
            yield Check("lock", "failed", found, error.hint)
            return
        yield from _waits(context, provider)
        yield from _shared(context, provider, writer)
        provider.probe()
        began_s = runtime.monotonic_s()
        lease = provider.acquire(wait_s=short.lock.wait_s)
        provider.release(lease)
        took_ms = (runtime.monotonic_s() - began_s) * 1000
        yield Check("lock", "ok", f"{provider.identity}: taken and given back in {took_ms:.0f} ms, token {lease.token}")
    except LockTimeout as error:
        yield Check("lock", "warning", error.message, context.next("locks ls"))
    finally:
        provider.close()


def _shared(context: DoctorContext, provider: LockProvider, writer: WriterIdentity) -> Iterator[Check]:
    """Whether these settings give other tables the same lock. One that bears the name of this table is meant for it alone."""
    uri = context.settings.lock.provider
    name, folder = read_properties(context.storage).name, context.storage.uri.rstrip("/").rpartition("/")[2]
    said = unquote(uri.partition("://")[2].partition("/")[2])
    if _lock_of(context, writer, b"") == provider.lock_name:
        if not any(each and each in said for each in (name, folder)):
            found = f"{provider.identity} is the lock of every table with these settings: they wait for each other's commits"
            how = _FOR_EACH_TABLE.get(provider_name(uri), "see the documents of this provider")
            hint = f"for a lock per table {how}, and move this one by `lakelock locks migrate`; or keep these settings for it"
            yield Check("lock", "warning", f"{found} and data locks", hint)
    elif _lock_of(context, writer, f"hoodie.table.name={name}\n".encode()) == provider.lock_name:
        yield Check("lock", "ok", f"every table that is named {name} has this lock with these settings, wherever it lies")


def _lock_of(context: DoctorContext, writer: WriterIdentity, properties: bytes) -> str:
    """The lock that a table elsewhere, with these properties, would have; empty where it would be refused."""
    storage = MemoryStorage(name="a table elsewhere")
    storage.put(layout.PROPERTIES, properties)
    with suppress(LakelockError):
        provider = open_provider(context.settings, storage, context.runtime, writer, Events())
        try:
            return provider.lock_name
        finally:
            provider.close()
    return ""


def _waits(context: DoctorContext, provider: LockProvider) -> Iterator[Check]:
    """Warnings of waits that are too short to get past a dead holder."""
    settings = context.settings
    least_s = wait_to_tell(provider.watch_s(settings.lock.lease_s), settings.lock.wait_s)
    if least_s is not None:
        found = (
            f"lock.wait_s is {settings.lock.wait_s:g} s, and a dead holder is only recognised by a wait of {least_s:g} s: "
            "one that was killed keeps every such writer out"
        )
        yield Check("lock", "warning", found, f"set lock.wait_s to {least_s:g} or more, or make lock.lease_s shorter")
    if settings.concurrency.mode != "PESSIMISTIC":
        return
    least_s = wait_to_tell(watch_s(settings.data_locks.lease_s), settings.data_locks.wait_s)
    if least_s is not None:
        found = (
            f"writers wait {settings.data_locks.wait_s:g} s for data locks, and a dead holder is only recognised by a wait of "
            f"{least_s:g} s: one that was killed keeps every such writer out"
        )
        attempts = int(least_s / settings.data_locks.sleep_s) + 2
        hint = f"set data_locks.attempts to {attempts} or more, or make data_locks.lease_s shorter"
        yield Check("lock", "warning", found, hint)


OLDEST_PYSPARK, OLDEST_WITH_DATA_SOURCES = (3, 5), (4, 0)
OLDEST_PANDAS, NEWEST_PANDAS = (2, 2), 2
_INSTALL = "pip install 'lakelock[spark]'"
_HADOOP = "hadoop-client-api-"
_PYTHON_WITHIN_S = 20.0


def check_spark(context: DoctorContext) -> Iterator[Check]:
    """Whether Spark can write this table from here; not checked where PySpark is not installed."""
    pyspark = _installed("pyspark")
    if pyspark is None:
        yield Check("spark", "ok", "PySpark is not installed here: jobs that write run elsewhere")
        return
    yield judge_pyspark(pyspark)
    yield judge_pandas(_installed("pandas"))
    yield from judge_workers_python(os.environ.get("PYSPARK_PYTHON", "python3"))
    java = shutil.which("java", path=_java_path())
    if java is None:
        yield Check(
            "spark", "warning", "no Java was found: Spark cannot start here", "install Java 17 or newer, or set JAVA_HOME"
        )
    yield from judge_connector(context.storage.uri.partition(":")[0], _jars())
    for name, error in broken_neighbours():
        hint = f"Spark then registers no Python data source at all, lakelock's included: repair or remove {name}"
        yield Check("spark", "warning", f"{name} cannot be imported: {error}", hint)


def judge_pyspark(found: str) -> Check:
    if release(found) < OLDEST_PYSPARK:
        return Check("spark", "failed", f"PySpark {found} is too old: lakelock needs 3.5 or newer", _INSTALL)
    if release(found) < OLDEST_WITH_DATA_SOURCES:
        return Check("spark", "ok", f'PySpark {found}: LakeTable works with it, format("lakelock") needs 4.0 or newer')
    return Check("spark", "ok", f"PySpark {found}")


def judge_pandas(found: str | None) -> Check:
    """Spark hands rows to Python as Arrow only where pandas is installed."""
    if found is None:
        return Check("spark", "failed", "pandas is not installed: Spark then hands no rows to Python as Arrow", _INSTALL)
    if release(found) < OLDEST_PANDAS:
        return Check("spark", "failed", f"pandas {found} is too old for Spark: it needs 2.2 or newer", _INSTALL)
    if release(found)[0] > NEWEST_PANDAS:
        said = f"pandas {found}: PySpark is made for pandas 2 and warns of this one on every call"
        return Check("spark", "warning", said, _INSTALL)
    return Check("spark", "ok", f"pandas {found}")


def judge_workers_python(name: str) -> Iterator[Check]:
    """Whether the Python that Spark's workers would run on this machine has lakelock."""
    found = shutil.which(name) or name
    if os.path.dirname(found) == os.path.dirname(sys.executable):
        return
    try:
        done = subprocess.run([found, "-c", "import lakelock, pyarrow"], capture_output=True, timeout=_PYTHON_WITHIN_S)
        works = done.returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        works = False
    if not works:
        said = f"Spark's workers would run {found} on this machine, which cannot import lakelock"
        export = f"export PYSPARK_PYTHON={shlex.quote(sys.executable)}"
        yield Check("spark", "warning", said, f"activate the environment, or {export}")


def judge_connector(scheme: str, jars: Sequence[str] | None) -> Iterator[Check]:
    """Whether Spark's own jars hold the Hadoop connector for tables of that scheme; with None, the jars are unknown."""
    hadoop = next((name[len(_HADOOP) : -len(".jar")] for name in jars or () if name.startswith(_HADOOP)), "")
    needed = connector(scheme, hadoop, jars or ())
    if needed is None:
        return
    if jars is None:
        missing = f"the Spark that belongs to this PySpark was not found, so {needed.jar} cannot be looked for"
        yield Check("spark", "warning", missing)
    elif needed.is_among(jars):
        yield Check("spark", "ok", f"{needed.jar} is among Spark's jars")
    else:
        yield Check(
            "spark",
            "warning",
            f"{needed.jar} is not among Spark's jars; unless the session brings it, Spark cannot read {scheme}:// tables",
            f'set spark.jars.packages to "{needed.coordinates}" in the session, or add the jar to spark.jars',
        )


def broken_neighbours() -> list[tuple[str, str]]:
    """Installed `pyspark_*` modules that fail to import: one is enough to switch off all automatic registration."""
    broken = []
    for module in pkgutil.iter_modules():
        if module.name.startswith("pyspark_"):
            try:
                importlib.import_module(module.name)
            except Exception as error:  # noqa: BLE001 Spark fails on whatever it raises
                broken.append((module.name, f"{type(error).__name__}: {error}"))
    return broken


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _java_path() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return os.path.join(home, "bin") if home else None


def _jars() -> list[str] | None:
    """The names of Spark's jars: of SPARK_HOME, otherwise of the installed PySpark; nothing of PySpark is imported."""
    home = os.environ.get("SPARK_HOME")
    if home is None:
        spec = find_spec("pyspark")
        home = os.path.dirname(spec.origin) if spec is not None and spec.origin else ""
    try:
        return sorted(path.name for path in (Path(home) / "jars").glob("*.jar")) or None
    except OSError:
        return None


def check_clients(context: DoctorContext) -> Iterator[Check]:
    """Nothing for a table on a disk. No value is shown: it may be a secret."""
    uri = context.storage.uri
    if not is_local(uri):
        yield from judge_clients(uri, context.settings.storage, hadoop_settings(os.environ))


def judge_clients(uri: str, options: Mapping[str, str], hadoop: Mapping[str, str]) -> Iterator[Check]:
    """One warning for each value that the options and Hadoop's settings both have, and differently."""
    found = mismatches(uri, options, hadoop.get)
    for each in found:
        yield Check(
            "clients",
            "warning",
            f"storage.{each.option} and Hadoop's {each.setting} differ: LakeTable uses the former for both clients, "
            "other readers in Spark use the latter",
            f"leave storage.{each.option} out, and both clients take {each.setting}; or set them to one value",
        )
    if not found:
        yield Check("clients", "ok", "lakelock and Hadoop's settings on this machine do not contradict each other")
