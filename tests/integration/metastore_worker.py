"""A writer process with its lock in a metastore: `python -m tests.integration.metastore_worker ARENA`, see `lock_worker`.

ARENA is JSON: `provider`, `lease_s`, `renew_s`, and `folder`, where the table and the overlap detectors are.
"""

from __future__ import annotations

import json
import os
import sys

from lakelock.clock import SystemRuntime
from lakelock.identity import WriterIdentity
from lakelock.providers import open_provider
from lakelock.settings import Settings
from lakelock.storage_open import open_storage
from tests.behaviour.lock_worker import obey


def main() -> None:
    arena = json.loads(sys.argv[1])
    runtime = SystemRuntime()
    options = {f"lock.{name}": arena[name] for name in ("provider", "lease_s", "renew_s")}
    writer = WriterIdentity.of_this_process(runtime, f"worker-{os.getpid()}")
    storage = open_storage(arena["folder"] + "/table")
    obey(open_provider(Settings.resolve(options).settings, storage, runtime, writer), runtime, arena)


if __name__ == "__main__":
    main()
