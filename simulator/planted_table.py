"""The table of planted bugs in docs/robustness.md, from a run: `python -m lakelock.simulator.planted_table`.

Each bug is looked for from seed 0 on; put the seeds that it prints into `planted.py`, too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace

from lakelock.simulator.planted import PLANTED, Planted, first_seed

HEAD = "| planted bug | what it does | found by seed |\n|---|---|---|\n"


def table(found: Iterable[tuple[Planted, int | None]]) -> str:
    """The table for the document; None is a bug that was not found in time."""
    rows = (f"| {planted.name} | {planted.what} | {'not known yet' if seed is None else seed} |" for planted, seed in found)
    return HEAD + "\n".join(rows)


def main() -> int:
    """Look for every planted bug and print the table."""
    found = []
    for planted in PLANTED:
        seed = first_seed(replace(planted, seed=None))
        sys.stderr.write(f"{planted.name}: {seed}\n")
        found.append((planted, seed))
    sys.stdout.write(table(found) + "\n")
    return int(any(seed is None for _, seed in found))


if __name__ == "__main__":
    sys.exit(main())
