"""The lock service of a run: an existing one, or the real server that `--lock` names, stopped with the run."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from lakelock.errors import LakelockError
from lakelock.providers import provider_name
from lakelock.settings import Settings
from tests.api import Runtime, StorageLocation, WriterIdentity, open_provider
from tests.demo.flights import DemoError, UsageError
from tests.servers import SERVICES, ServerError

NAMES: Mapping[str, str] = {name.removesuffix("_metastore"): name for name in SERVICES}
"""What `--lock` accepts, and the service that it stands for; the service's own name is accepted, too."""


@dataclass(frozen=True)
class LockService:
    """Where the writers lock. `options` are settings of lakelock besides `lock.provider`."""

    provider: str
    shown: str
    """The name shown to people; unlike the URI, it never holds a password."""
    options: Mapping[str, str] = field(default_factory=dict)
    bookings: str = ""
    """The provider of the bookings and their seats, which share a lock where it has a name; empty if it is the same."""


def given(uri: str, runtime: Runtime) -> LockService:
    """A service that somebody else runs; raises `UsageError` unless the writers' processes can lock there."""
    lock = LockService(uri, provider_name(uri))
    if lock.shown == "memory":
        raise UsageError(
            f"--provider {lock.shown}: works within one process only, and each writer is a process of its own; use storage:"
        )
    try:
        _probe(lock, runtime)
    except LakelockError as error:
        raise UsageError(f"--provider {lock.shown}: {error}") from error
    return lock


def service_named(asked: str) -> str:
    """The name in `NAMES` that `--lock` means; raises `UsageError` for one that does not exist."""
    name = asked.lower().removesuffix("_metastore")
    if name in NAMES:
        return name
    close = get_close_matches(name, NAMES, n=1)
    meant = f"did you mean {close[0]}? " if close else ""
    raise UsageError(f"--lock {asked}: there is no such lock service; {meant}It is one of {', '.join(NAMES)}")


@contextmanager
def started(lock: LockService | str, folder: Path, table: str, runtime: Runtime) -> Iterator[LockService]:
    """The service with this name in `NAMES`, running with its data in `folder` until the block ends, however it ends.

    A `given` service is left as it is. A server that the environment names (`LAKELOCK_TEST_REDIS_URL` and the like) is used
    instead of one of our own.
    """
    if isinstance(lock, LockService):
        yield lock
        return
    with ExitStack() as stack:
        try:
            service = stack.enter_context(SERVICES[NAMES[lock]](folder))
            running = LockService(service.url(table), service.name, service.options, service.url(f"{table}-bookings"))
            _probe(running, runtime)
        except (ServerError, LakelockError) as error:
            raise DemoError(f"--lock {lock}: {error}") from error
        yield running


def _probe(lock: LockService, runtime: Runtime) -> None:
    """Ask the service whether writers can lock there; a `LakelockError` says what is missing and how to get it."""
    settings = Settings.resolve({**lock.options, "lock.provider": lock.provider}).settings
    with tempfile.TemporaryDirectory(prefix="lakelock-demo-") as empty:
        storage = StorageLocation.of(empty).open()
        provider = open_provider(settings, storage, runtime, WriterIdentity.of_this_process(runtime, "demo"))
        try:
            provider.probe()
        finally:
            provider.close()
