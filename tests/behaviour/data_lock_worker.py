"""A writer process that takes data locks on command: `python data_lock_worker.py`.

The first line on stdin is the arena as JSON: `table`, its name, and `settings` by their full names. Then come commands, one a
line: `ready`; `take MODE PATHS WAIT_S`, where MODE is S or X and PATHS are partition paths with commas between; `renew`, from
now on until the end; `check`; `release`.
"""

from __future__ import annotations

import json
import os
import sys

from lakelock.clock import SystemRuntime
from lakelock.data_locks import DataLease, DataLocks, Resource, lock_request, open_data_locks
from lakelock.errors import LeaseLost, LockTimeout
from lakelock.identity import WriterIdentity
from lakelock.providers import renewing
from lakelock.settings import Settings
from lakelock.storage_memory import MemoryStorage


def obey(locks: DataLocks, runtime: SystemRuntime, renew_s: float) -> None:
    lease: DataLease | None = None
    for line in sys.stdin:
        command, *values = line.split()
        if command == "ready":
            say(ready=True)
        elif command == "take":
            mode, paths, wait_s = values
            resources = [Resource.of(path) for path in paths.split(",")]
            request = lock_request(exclusive=resources) if mode == "X" else lock_request(shared=resources)
            began_s = runtime.monotonic_s()
            try:
                lease = locks.acquire(request, wait_s=float(wait_s))
                say(token=lease.token, took_s=runtime.monotonic_s() - began_s)
            except LockTimeout as error:
                say(timeout=error.message)
        elif lease is None:
            say(error="nothing is held")
        elif command == "renew":
            renewing(locks, lease, runtime, renew_s).__enter__()
            say(renewing=True)
        elif command == "check":
            try:
                lease.ensure_active()
                say(active=True)
            except LeaseLost as error:
                say(active=False, reason=error.details["reason"])
        elif command == "release":
            locks.release(lease)
            say(released=True)


def say(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


def main() -> None:
    arena = json.loads(sys.stdin.readline())
    runtime = SystemRuntime()
    settings = Settings.resolve(arena["settings"]).settings
    writer = WriterIdentity.of_this_process(runtime, f"worker-{os.getpid()}")
    storage = MemoryStorage(runtime.now_ms, name=arena["table"])
    obey(open_data_locks(settings, storage, runtime, writer), runtime, settings.data_locks.renew_s)


if __name__ == "__main__":
    main()
