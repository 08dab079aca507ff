"""Storage requests that early conflict detection makes per rewritten file group, with 1 to 1,000 live writers.

`python -m benchmarks.early_detection [--groups 8] [--json]`. The writers are real open transactions on local disk, each
with a heartbeat, a marker and a claim on a file group of its own. A *round* is one `Transaction.claim`, however many file
groups it is for: besides the claims it looks once at what was decided since the transaction began. The target is a fixed
number.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from tests.faulty_storage import CountingStorage

from benchmarks.measuring import arguments, scratch, show
from benchmarks.requests import SCHEMA, make_table, new_writer
from lakelock.engine.arrow import ArrowEngine
from lakelock.errors import EarlyConflictError
from lakelock.markers.data_files import MarkerKind, place
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.transaction import Transaction
from lakelock.storage.location import StorageLocation
from lakelock.table.snapshot import DataFile

LIVE = (1, 10, 100, 1000)


def fill(location: StorageLocation, groups: int) -> None:
    """So many file groups, each in a partition of its own."""
    months = [f"m{number:04}" for number in range(groups)]
    with new_writer(location) as coordinator:
        ArrowEngine(coordinator).insert(pa.table([months, range(groups), months], schema=SCHEMA))


def busy(coordinator: Coordinator, file: DataFile) -> Transaction:
    """A writer in the middle of rewriting the file group of `file`."""
    tx = coordinator.begin("UPSERT")
    tx.claim([file.group])
    tx.write_context()
    place(coordinator.table.storage, tx.instant, DataFile(*file.group, "0-0-0", tx.instant), MarkerKind.MERGE)
    return tx


def claims(storage: CountingStorage, tx: Transaction, files: Sequence[DataFile]) -> int:
    """The requests of one round of claims, successful or not."""
    storage.reset()
    try:
        tx.claim(file.group for file in files)
    except EarlyConflictError:
        return -storage.total
    return storage.total


def measure(location: StorageLocation, groups: int) -> dict[str, object]:
    fill(location, max(LIVE) + 1 + groups)
    storage = CountingStorage(location.open())
    found: dict[str, object] = {}
    with new_writer(location) as others, new_writer(location, storage) as mine:
        files = mine.snapshot().files
        one, several = files[-1:], files[-1 - groups : -1]
        live: list[Transaction] = []
        for writers in LIVE:
            live += [busy(others, file) for file in files[len(live) : writers]]
            tx = mine.begin("UPSERT")
            round_of_one, round_of_several = claims(storage, tx, one), claims(storage, tx, several)
            refused = -claims(storage, tx, files[:1])
            tx.abort()
            per_group = (round_of_several - round_of_one) / (groups - 1)
            found[f"per_group_with_{writers}_live"] = per_group
            found[f"more_per_round_with_{writers}_live"] = round_of_one - per_group
            found[f"finding_a_held_group_with_{writers}_live"] = refused
        for tx in live:
            tx.abort()
    kinds = [name.rpartition("_with_")[0] for name in found]
    fixed = all(len({value for name, value in found.items() if name.startswith(kind)}) == 1 for kind in kinds)
    found["target"] = f"the same number whatever the number of writers: {'reached' if fixed else 'MISSED'}"
    return found


def main() -> None:
    given = arguments(__doc__, groups=8)
    with scratch() as folder:
        show(measure(make_table(f"{folder}/table"), given.groups), given.json)


if __name__ == "__main__":
    main()
