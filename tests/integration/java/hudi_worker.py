"""A writer process with the settings of a Java writer: `python -m tests.integration.java.hudi_worker ARENA`, see `lock_worker`.

ARENA is JSON: `file`, a Hudi properties file; `options`, lakelock's own on top; and `folder`, where the table and the overlap
detectors are.
"""

from __future__ import annotations

import json
import os
import sys

from tests.api import SystemRuntime, WriterIdentity, open_provider, open_storage

from lakelock.settings import Settings
from lakelock.testing.lock_worker import obey


def main() -> None:
    arena = json.loads(sys.argv[1])
    runtime = SystemRuntime()
    settings = Settings.resolve(arena["options"], file=arena["file"]).settings
    writer = WriterIdentity.of_this_process(runtime, f"worker-{os.getpid()}")
    storage = open_storage(arena["folder"] + "/table")
    obey(open_provider(settings, storage, runtime, writer), runtime, {**arena, "renew_s": settings.lock.renew_s})


if __name__ == "__main__":
    main()
