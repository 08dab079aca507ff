"""Coverage-guided fuzzing of one parser, or of all in turn: `python -m tests.property.fuzz NAME --seconds 60`, or `make fuzz`.

Atheris watches which lines and comparisons an input reaches, and changes it until it reaches others. An input that makes a
parser fail is kept in the folder `crashes/NAME` next to this file, where the property tests try it again for ever.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

EACH, EVERYTHING = "each", "all"
HANGS_AFTER_S = 20
MOST_BYTES = 4096
MOST_MEMORY_MB = 2048


def fuzz(name: str, seconds: int, corpus: Path, crashes: Path) -> None:
    """Fuzz until the time is over; never returns. The exit code is 0 only if every input was read or refused."""
    import atheris

    atheris.enabled_hooks.add("str")
    with atheris.instrument_imports(include=["lakelock"]):
        from tests.property.parsers import PARSERS

    chosen = list(PARSERS.values()) if name == EVERYTHING else [PARSERS[name]]
    seeds = corpus / name
    folder = crashes / name if len(chosen) == 1 else seeds
    for place in (folder, seeds):
        place.mkdir(parents=True, exist_ok=True)
    for number, parser in enumerate(chosen):
        for turn, sample in enumerate(parser.samples):
            (seeds / f"sample-{parser.name}-{turn}").write_bytes(sample if len(chosen) == 1 else bytes([number]) + sample)

    def one(data: bytes) -> None:
        chosen[0].judge(data)

    def any_of_them(data: bytes) -> None:
        if data:
            parser = chosen[data[0] % len(chosen)]
            try:
                parser.judge(data[1:])
            except BaseException:
                kept = crashes / parser.name / hashlib.sha1(data, usedforsecurity=False).hexdigest()
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_bytes(data[1:])
                raise

    target: Callable[[bytes], None] = one if len(chosen) == 1 else any_of_them
    options = {
        "max_total_time": seconds,
        "timeout": HANGS_AFTER_S,
        "max_len": MOST_BYTES,
        "rss_limit_mb": MOST_MEMORY_MB,
        "artifact_prefix": f"{folder}/",
        "print_final_stats": 1,
        "verbosity": 0,
    }
    atheris.Setup([sys.argv[0], *(f"-{option}={value}" for option, value in options.items()), str(seeds)], target)
    atheris.Fuzz()


def fuzz_each(names: Sequence[str], seconds: int, corpus: Path, crashes: Path) -> int:
    """Fuzz each parser in a process of its own; how many of them failed."""
    failed = 0
    for name in names:
        arguments = [name, "--seconds", str(seconds), "--corpus", str(corpus), "--crashes", str(crashes), "--here"]
        done = subprocess.run([sys.executable, "-m", "tests.property.fuzz", *arguments], capture_output=True, text=True)
        runs = next((line.split()[-1] for line in done.stderr.splitlines() if "number_of_executed_units" in line), "?")
        print(f"{name}: {runs} inputs, {'all read or refused' if not done.returncode else 'FAILED'}", flush=True)
        if done.returncode:
            failed += 1
            print(done.stdout[-3000:], done.stderr[-3000:], flush=True)
    return failed


def main() -> int:
    if sys.version_info[:2] not in ((3, 10), (3, 11), (3, 12), (3, 13)) or sys.platform != "linux":
        print("fuzzing needs atheris, which has wheels for Python 3.10 to 3.13 on Linux (x86-64)", file=sys.stderr)
        return 2
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("name", nargs="?", default=EACH, help="a parser, `all` in one process, or `each` (default)")
    arguments.add_argument("--seconds", type=int, default=60, help="for each parser (default 60)")
    arguments.add_argument("--corpus", type=Path, help="folder of inputs that reached something new; they are kept")
    arguments.add_argument("--crashes", type=Path, help="where to keep what makes a parser fail (default: with the tests)")
    arguments.add_argument("--here", action="store_true", help="in this process, which then ends without returning")
    given = arguments.parse_args()
    if given.here:
        fuzz(given.name, given.seconds, given.corpus, given.crashes)
    from tests.property.parsers import CRASHES, PARSERS

    names = list(PARSERS) if given.name == EACH else [given.name]
    with tempfile.TemporaryDirectory() as nowhere:
        return min(1, fuzz_each(names, given.seconds, given.corpus or Path(nowhere), given.crashes or CRASHES))


if __name__ == "__main__":
    sys.exit(main())
