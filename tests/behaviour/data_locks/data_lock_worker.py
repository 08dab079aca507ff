"""A writer process that takes data locks on command: `python data_lock_worker.py`.

The first line on stdin is the arena as JSON: `table`, its folder, and `settings` by their full names. Then come commands, one a
line: `take MODE PATHS WAIT_S`, where MODE is S or X and PATHS are partition paths with commas between.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from lakelock.clock import SystemRuntime
from lakelock.data_locks import DataLocks, Resource, lock_request, open_data_locks
from lakelock.errors import LockTimeout
from lakelock.identity import WriterIdentity
from lakelock.settings import Settings
from lakelock.storage.local import LocalStorage


def obey(locks: DataLocks) -> None:
    for line in sys.stdin:
        _, mode, paths, wait_s = line.split()
        resources = [Resource.of(path) for path in paths.split(",")]
        request = lock_request(exclusive=resources) if mode == "X" else lock_request(shared=resources)
        try:
            say(token=locks.acquire(request, wait_s=float(wait_s)).token)
        except LockTimeout as error:
            say(timeout=error.message)


def say(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


def main() -> None:
    arena = json.loads(sys.stdin.readline())
    runtime = SystemRuntime()
    settings = Settings.resolve(arena["settings"]).settings
    writer = WriterIdentity.of_this_process(runtime, f"worker-{os.getpid()}")
    storage = LocalStorage(Path(arena["table"]))
    obey(open_data_locks(settings, storage, runtime, writer))


if __name__ == "__main__":
    main()
