"""`python -m tests.simulator`: simulated histories of the engine, each decided by one seed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from lakelock.cli.arguments import JsonOption
from lakelock.cli.output import Exit, Output, console, reporting
from lakelock.errors import SettingsError
from lakelock.texts import counted
from tests.simulator import campaign as many
from tests.simulator.campaign import Tally
from tests.simulator.minimise import minimise
from tests.simulator.picture import picture
from tests.simulator.run import Result, run
from tests.simulator.scenarios.swarm import scenario_of
from tests.simulator.several_tables.run import SeveralResult, run_several
from tests.simulator.several_tables.scenario import several_of

_COMMAND = "python -m tests.simulator"

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def simulate(
    seed: Annotated[int, typer.Option("--seed", min=0, help="The first seed.")] = 0,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How many seeds; a single one is shown step by step.")] = 1,
    processes: Annotated[
        int | None, typer.Option("--processes", min=1, help="How many at a time (default: all cores).")
    ] = None,
    picture: Annotated[Path, typer.Option("--picture", help="Folder for the picture of a failure.", file_okay=False)] = Path(),
    parquet: Annotated[bool, typer.Option("--parquet", help="Parquet files in every history; takes 4 times as long.")] = False,
    several_tables: Annotated[
        bool, typer.Option("--several-tables", help="Transactions over two and three tables, beside those of single ones.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run the engine on simulated storage, time and locks, with faults. The same seed is the same history.

    One seed is replayed step by step. A failure is made as small as possible and drawn as SVG, except with `--several-tables`;
    the exit code is 1.
    """
    with reporting(as_json) as out:
        if several_tables and parquet:
            raise SettingsError("--several-tables has no Parquet files", hint="leave out --parquet")
        kind = many.Kind.SEVERAL_TABLES if several_tables else many.Kind.ON_PARQUET if parquet else many.Kind.ONE_TABLE
        if seeds == 1:
            failed = _show_several(out, seed) if several_tables else _show_one(out, seed, parquet)
        else:
            failed = None
            total = _last(many.campaign(seed, seeds, processes=processes or os.cpu_count() or 1, kind=kind), seeds)
            values = {**total.__dict__, "first": seed}
            out.show(values, lambda o: _print_failures(o, total.failures))
            if total.failures:
                failed = min(total.failures)[0]
        if failed is not None and several_tables:
            out.note(f"again: {_COMMAND} --several-tables --seed {failed}")
        elif failed is not None:
            _explain(out, failed, picture, parquet)
        if seeds > 1 and not as_json:
            out.line(str(total))
    if failed is not None:
        raise typer.Exit(Exit.ERROR)


def _last(totals: Iterator[Tally], seeds: int) -> Tally:
    """The last total. Until then stderr tells the figures, on a terminal in one line that goes away, and each failure."""
    screen = console(sys.stderr)
    width = screen.width - 1 if sys.stderr.isatty() else 0
    told, announced = 0, 0
    for total in totals:
        for number, violation in total.failures[told:]:
            sys.stderr.write(f"{_over('', width)}seed {number}: {violation}\n")
        told = len(total.failures)
        if width:
            sys.stderr.write(_over(str(total), width))
        elif total.seeds // 1000 > announced and total.seeds < seeds:
            sys.stderr.write(f"{total}\n")
            announced = total.seeds // 1000
    sys.stderr.write(_over("", width))
    return total


def _over(text: str, width: int) -> str:
    """A text over the last one in the line of the terminal."""
    return f"\r{text[:width]:<{width}}\r" if width else ""


def _print_failures(out: Output, failures: tuple[tuple[int, str], ...]) -> None:
    for seed, violation in sorted(failures):
        out.line(f"seed {seed}: {violation}")


def _show_one(out: Output, seed: int, parquet: bool) -> int | None:
    result = run(scenario_of(seed, parquet=parquet), keep_events=True)
    out.show(_values(seed, result, result.trace.begun), lambda o: _print_steps(o, result))
    return seed if result.violations else None


def _values(seed: int, result: Result | SeveralResult, transactions: int) -> dict[str, object]:
    return {
        "seed": seed,
        "violations": [str(violation) for violation in result.violations],
        "faults": [str(fault) for fault in result.faults],
        "commits": result.commits,
        "transactions": transactions,
        "digest": result.digest,
    }


def _show_several(out: Output, seed: int) -> int | None:
    result = run_several(several_of(seed), keep_events=True)
    out.show(_values(seed, result, result.begun), lambda o: _print_several(o, result))
    return seed if result.violations else None


def _print_several(out: Output, result: SeveralResult) -> None:
    scenario = result.scenario
    out.line(f"seed {scenario.base.seed}: {scenario.tables} tables, lock service that {scenario.base.lock.value}")
    for plan in scenario.plans:
        tasks = (f"table {task[0]}: {task[1]}" if isinstance(task, tuple) else str(task) for task in plan.tasks)
        out.line(f"  {plan.name}: clock {plan.skew_ms:+} ms, {', '.join(tasks)}")
    _print_history(out, result, result.steps, f"{counted(result.moved, 'transaction')} over several tables")


def _print_steps(out: Output, result: Result) -> None:
    scenario = result.scenario
    out.line(
        f"seed {scenario.seed}: files of {scenario.files}, profile {scenario.profile}, lock service that {scenario.lock.value}"
    )
    for actor in scenario.actors:
        out.line(f"  {actor.name}: clock {actor.skew_ms:+} ms, {', '.join(map(str, actor.operations))}")
    steps = [(at_s, f"{process}: {event}") for at_s, process, event in result.trace.events]
    steps += [
        (one.ended_s, f"{one.actor}: operation {one.operation} {one.answer.value} {one.detail}")
        for one in result.trace.answered
    ]
    _print_history(out, result, steps, counted(result.steps, "step"))


def _print_history(out: Output, result: Result | SeveralResult, steps: Iterable[tuple[float, str]], told: str) -> None:
    for at_s, text in sorted(steps):
        out.line(f"{at_s:9.3f} s  {text}")
    for fault in result.faults:
        out.line(f"fault: {fault}")
    kept = "a promise is broken:" if result.violations else "all promises kept"
    out.line(f"{counted(result.commits, 'commit')}, {told}, {kept}")
    for violation in result.violations:
        out.line(f"  {violation}")


def _explain(out: Output, seed: int, folder: Path, parquet: bool) -> None:
    """Print the minimised failure, and draw it; to stderr, because it may follow JSON."""
    small = minimise(run(scenario_of(seed, parquet=parquet)))
    out.note(f"seed {seed}, minimised in {counted(small.runs, 'run')}:")
    for actor in small.result.scenario.actors:
        if actor.operations:
            out.note(f"  {actor.name}: " + ", ".join(map(str, actor.operations)))
    for fault in small.faults:
        out.note(f"  fault: {fault}")
    for violation in small.result.violations[:1]:
        out.note(f"  {violation}")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"seed-{seed}.svg"
    path.write_text(picture(small.result), encoding="utf-8")
    again = f"{_COMMAND} --seed {seed}" + " --parquet" * parquet
    out.note(f"picture: {path}; again: {again}")
