"""One writer of the soak: `python -m tests.faults.soak.writer TABLE JOURNAL NAME SECONDS OPTIONS`.

Each operation is in the journal before it begins, and what became of it afterwards.
"""

from __future__ import annotations

import json
import sys
import time

from tests.faults.soak.load import carry_out, operations
from tests.faults.worker import open_engine

from lakelock.errors import CommitOutcomeUnknown, LakelockError


def main() -> None:
    path, journal, name, seconds, options = sys.argv[1:]
    deadline_s = time.monotonic() + float(seconds)
    engine = open_engine(path, json.loads(options), name)
    with open(journal, "a", encoding="utf-8") as log:
        for operation in operations(name, 0):
            if time.monotonic() > deadline_s:
                break
            log.write(json.dumps({"tag": operation.tag, "kind": operation.kind, "rows": operation.rows}) + "\n")
            log.flush()
            message = ""
            try:
                carry_out(engine, operation)
                outcome = "committed"
            except CommitOutcomeUnknown as error:
                outcome, message = "unknown", str(error)
            except LakelockError as error:
                outcome, message = "rejected", str(error)
            log.write(json.dumps({"tag": operation.tag, "outcome": outcome, "message": message}) + "\n")
            log.flush()
    engine.coordinator.close()


if __name__ == "__main__":
    main()
