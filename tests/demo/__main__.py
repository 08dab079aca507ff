"""The demo: several Spark jobs write one Hudi table at the same time, two are killed, and nothing is lost.

Exit codes: 0 all readers agree with the serial replay; 1 a difference or a broken promise; 2 wrong arguments;
3 the demo could not be carried out.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from rich.console import Console

from tests.api import Runtime, SystemRuntime
from tests.demo.flights import FLIGHTS, SMALLEST, DemoError, UsageError, parse_size
from tests.demo.lock_service import NAMES, LockService, given, service_named, started
from tests.demo.run import Request, run_demo
from tests.demo.store import LOCAL, TYPES, opened
from tests.demo.store import NAMES as STORES
from tests.demo.verdict import Verdict

OK, DIFFERENT, USAGE, FAILED = 0, 1, 2, 3


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.demo", description="Several Spark jobs write one table at once.")
    parser.add_argument("--seed", type=int, help="what is written, and by whom (default: a new seed each time)")
    sizes = f"a share (0.1), a number of flights ({SMALLEST} or more), or years (3x); default all"
    parser.add_argument("--size", default=str(FLIGHTS), help=sizes)
    lock = parser.add_mutually_exclusive_group()
    lock.add_argument("--lock", metavar="NAME", help=f"start this lock service and lock there: {', '.join(NAMES)}")
    lock.add_argument("--provider", default="storage:", metavar="URI", help="a running lock service (default storage:)")
    where = "where the tables are (s3: as moto answers; hdfs: on this machine)"
    parser.add_argument("--store", choices=STORES, default=LOCAL, help=where)
    kinds = "the table of flights (mor: merge-on-read; rows are ordered by commit, and read with log files, too)"
    parser.add_argument("--type", choices=tuple(TYPES), default="cow", help=kinds)
    parser.add_argument(
        "--path", type=Path, metavar="DIR", help="a new or empty folder for the table and the logs; implies --keep"
    )
    parser.add_argument("--plain", action="store_true", help="plain lines instead of the live view")
    parser.add_argument("--keep", action="store_true", help="do not delete the table and the logs at the end")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    asked = arguments(argv)
    console, runtime = Console(), SystemRuntime()
    seed = int(runtime.random() * 1_000_000) if asked.seed is None else asked.seed
    try:
        size = parse_size(asked.size)
        lock = service_named(asked.lock) if asked.lock else given(asked.provider, runtime)
        home = folder(asked.path)
        request = Request(seed, size, home / "work", asked.plain, asked.type)
        keep = asked.keep or asked.path is not None
        return carry_out(request, lock, asked.store, keep=keep, console=console, runtime=runtime)
    except UsageError as error:
        return _failed(str(error), USAGE)
    except DemoError as error:
        return _failed(f"the demo failed (seed {seed}): {error}", FAILED)
    except KeyboardInterrupt:
        return _failed("stopped; no process is left behind", FAILED)


def carry_out(
    request: Request, lock: LockService | str, store: str, *, keep: bool, console: Console, runtime: Runtime
) -> int:  # fmt: skip
    """Run the demo and print the verdict. The files of a failed run are kept, those of others only with `keep`.

    `lock` is a service that runs already, or the name of one to start; `store` is the name of a store.
    """
    request.work.mkdir()
    home, shown = request.work.parent, lock if isinstance(lock, str) else lock.shown
    where = f"in {home}" if store == LOCAL else f"on {store}"
    _say(console, f"{request.size:,} flights of 2013, seed {request.seed}, lock service {shown}, tables {where}")
    try:
        with (
            opened(store, home) as place,
            started(lock, request.work / "lock", f"demo-{request.seed}", runtime) as service,
        ):
            verdict = run_demo(request, place, service, console, runtime)
        again = f"make demo SEED={request.seed}" + (f" LOCK={lock}" if isinstance(lock, str) else "")
        again += f" STORE={store}" if store != LOCAL else ""
        again += f" TYPE={request.type}" if request.type != "cow" else ""
        tell(verdict, service.shown, again, console)
        keep = keep or not verdict.good
        return OK if verdict.good else DIFFERENT
    except DemoError:
        keep = True
        raise
    finally:
        if keep:
            _say(console, f"kept: {'copies of the tables' if store != LOCAL else 'tables'}, inputs and logs in {home}")
        else:
            shutil.rmtree(home, ignore_errors=True)


def folder(path: Path | None) -> Path:
    """The folder for everything: the user's own if it is empty or new, or a temporary one."""
    if path is None:
        return Path(tempfile.mkdtemp(prefix="lakelock-demo-"))
    path = path.absolute()
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"--path {path} is not an empty folder; name a new one")
    path.mkdir(parents=True, exist_ok=True)
    return path


def tell(verdict: Verdict, lock: str, again: str, console: Console) -> None:
    """The closing summary: which lock service it was, and how to run it again."""
    _say(console, "")
    _say(console, "committed, in this order: " + ", ".join(verdict.order))
    for promise in verdict.promises:
        _say(console, f"{'ok  ' if promise.kept else 'FAIL'}  {promise.text}", "green" if promise.kept else "bold red")
    for comparison in verdict.comparisons:
        _say(console, f"{'OK  ' if comparison.same else 'FAIL'}  {comparison}", "green" if comparison.same else "bold red")
    outcome = "all readers agree with the serial replay" if verdict.good else "the demo does NOT hold"
    times = f"{len(verdict.order)} commits, {verdict.retries} retries, {verdict.rows:,} rows, {verdict.took_s:.0f} s"
    _say(console, f"{outcome}: {times}, lock service {lock}. Again with: {again}", "bold green" if verdict.good else "bold red")


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def _failed(text: str, code: int) -> int:
    _say(Console(stderr=True), text)
    return code


def _interrupted(number: int, frame: FrameType | None) -> None:
    """Stop at the first signal; a second one must not keep the writers from being ended."""
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, _interrupted)
    sys.exit(main())
