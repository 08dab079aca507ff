"""Which seed finds which planted bug: `python -m tests.simulation.planted.seeds_table [--write] [NAME ...]`.

A seed that still finds its bug is kept. Each change of the protocol makes some seeds find nothing; their bugs are looked for
among the seeds that find others of the same kind, and then from seed 0 on, several at a time, which takes the tests minutes
each time. The table for docs/robustness.md comes last. With `--write`, run in the repository, the seeds are put into the source
and the table into the document.
"""

from __future__ import annotations

import ast
import multiprocessing
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.simulation.planted.bugs import PLANTED, Planted, first_seed
from tests.simulation.planted.several_tables import BUGS_OF_SEVERAL_TABLES, first_seed_of_several

HEAD = "| planted bug | what it does | found by seed | must be found within |\n|---|---|---|---|\n"
SOURCES = tuple(
    Path(f"tests/simulation/planted/{name}.py")
    for name in (
        "bugs",
        "careless",
        "commits",
        "metadata",
        "profiles",
        "offers",
        "redo",
        "reservations",
        "several_tables",
        "upkeep",
    )
)
DOCUMENT = Path("docs/robustness.md")


def table(found: Iterable[tuple[Planted, int | None]]) -> str:
    """The table for the document; None is a bug that was not found in time."""
    rows = (
        f"| {planted.name} | {planted.what} | {'not known yet' if seed is None else seed} | {_within(planted)} |"
        for planted, seed in found
    )
    return HEAD + "\n".join(rows)


def _within(planted: Planted) -> str:
    return f"{planted.within:,} seeds {planted.among.name}".rstrip()


def with_seeds(source: str, seeds: Mapping[str, int | None]) -> str:
    """The source of the bugs with these seeds in it; bugs that are not named keep theirs."""
    lines = source.splitlines(keepends=True)
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call) and ast.unparse(node.func) == "Planted"]
    for call in sorted(calls, key=lambda call: -call.lineno):
        name: str = ast.literal_eval(call.args[0]) if call.args else ""
        if name not in seeds or call.end_lineno is None:
            continue
        end = call.end_lineno - 1
        for keyword in call.keywords:
            if keyword.arg == "seed":
                del lines[keyword.value.lineno - 1]
                end -= 1
        if seeds[name] is not None:
            lines.insert(end, f"        seed={seeds[name]},\n")
    return "".join(lines)


def search(name: str) -> tuple[str, int | None]:
    """A seed that finds the bug of this name."""
    (planted,) = (planted for planted in (*PLANTED, *BUGS_OF_SEVERAL_TABLES) if planted.name == name)
    return name, first_seed_of_several(planted) if planted in BUGS_OF_SEVERAL_TABLES else first_seed(planted)


def main(arguments: list[str]) -> int:
    """Look for the bugs that are named, or for all, and print the table of all."""
    every = [planted.name for planted in (*PLANTED, *BUGS_OF_SEVERAL_TABLES)]
    names = [name for name in arguments if name != "--write"] or every
    found: dict[str, int | None] = {}
    with multiprocessing.get_context("spawn").Pool(min(len(names), os.cpu_count() or 1)) as pool:
        for name, seed in pool.imap_unordered(search, names):
            found[name] = seed
            sys.stderr.write(f"{name}: {seed}\n")
    text = table((planted, found.get(planted.name, planted.seed)) for planted in PLANTED)
    if "--write" in arguments:
        for source in SOURCES:
            source.write_text(with_seeds(source.read_text(), found))
        document = DOCUMENT.read_text()
        start = document.index(HEAD)
        DOCUMENT.write_text(document[:start] + text + document[document.index("\n\n", start) :])
    sys.stdout.write(text + "\n")
    return int(None in found.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
