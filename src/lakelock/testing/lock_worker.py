"""A writer process that takes the table lock on command: `python -m lakelock.testing.lock_worker`.

The first line on stdin is the arena as JSON: `uri` and `options` of the table, `lease_s`, `renew_s`, `folder`, where the
overlap detectors are, and other `settings` by their full names. Each line after it is a command, answered by a line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from lakelock.clock import SystemRuntime
from lakelock.errors import LeaseLost, LockError, LockTimeout, ProviderUnavailable
from lakelock.identity import WriterIdentity
from lakelock.providers import Lease, LockProvider, open_provider, renewing
from lakelock.settings import Settings
from lakelock.storage.location import open_storage


def hammer(provider: LockProvider, folder: Path, rounds: int, pause_s: float = 0.0) -> int:
    """Take the lock repeatedly; how often another worker was inside too, by two independent detectors.

    `pause_s` after each release lets in waiters that poll rarely.
    """
    overlaps = 0
    for _ in range(rounds):
        lease = provider.acquire(wait_s=60)
        try:
            inside = os.open(folder / "inside", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            overlaps += 1
            inside = -1
        count = int((folder / "count").read_text())
        with (folder / "tokens").open("a") as tokens:
            tokens.write(f"{lease.token} {os.getpid()}\n")
        (folder / "count").write_text(str(count + 1))
        lease.ensure_active()
        if inside >= 0:
            os.close(inside)
            os.unlink(folder / "inside")
        provider.release(lease)
        if pause_s:
            time.sleep(pause_s)
    return overlaps


def obey(provider: LockProvider, runtime: SystemRuntime, arena: dict[str, Any]) -> None:
    lease: Lease | None = None
    beating = None
    for line in sys.stdin:
        command, *values = line.split()
        if command == "take":
            lease = take(provider, runtime, float(values[0]))
        elif command == "renew":
            assert lease is not None
            beating = renewing(provider, lease, runtime, arena["renew_s"])
            beating.__enter__()
            say(renewing=True)
        elif command == "check":
            assert lease is not None
            try:
                lease.ensure_active()
                say(active=True)
            except LeaseLost as error:
                say(active=False, reason=error.details["reason"])
        elif command == "release":
            assert lease is not None
            provider.release(lease)
            say(released=True)
        elif command == "ready":
            say(ready=True)
        elif command == "hammer":
            say(overlaps=hammer(provider, Path(arena["folder"]), int(values[0]), *map(float, values[1:])))
    if beating is not None:
        beating.__exit__(None, None, None)


def take(provider: LockProvider, runtime: SystemRuntime, wait_s: float) -> Lease | None:
    began_s = runtime.monotonic_s()
    try:
        lease = provider.acquire(wait_s=wait_s)
        say(took_s=runtime.monotonic_s() - began_s, token=lease.token)
        return lease
    except LockTimeout as error:
        say(timeout=error.message)
    except ProviderUnavailable as error:
        say(unavailable=error.message, took_s=runtime.monotonic_s() - began_s)
    except LockError as error:
        say(refused=error.message, hint=error.hint)
    return None


def say(**facts: object) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def main() -> None:
    arena = json.loads(sys.stdin.readline())
    runtime = SystemRuntime()
    lease = {"lock.lease_s": arena["lease_s"], "lock.renew_s": arena["renew_s"]}
    settings = Settings.resolve(lease | arena.get("settings", {})).settings
    storage = open_storage(arena["uri"], arena["options"])
    writer = WriterIdentity.of_this_process(runtime, f"worker-{os.getpid()}")
    obey(open_provider(settings, storage, runtime, writer), runtime, arena)


if __name__ == "__main__":
    main()
