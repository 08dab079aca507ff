"""Runs everything that `make test` and `make tests` consist of, whatever fails, and ends with a list of what failed.

    python .ci/run_stages.py [--jobs N] [--coverage] [TARGET...] [-- PYTEST-ARGUMENT...]

First each TARGET of the Makefile, `servers` beside the others, then all tests in five stages, of which four run at a time.
Tests with the marker `waits` that failed run once more at the end, alone: what passes then is listed as flaky, with its first
output, and does not fail the run. No other test runs twice. Measuring coverage makes tests half as slow again, so it is done
on request.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

RESULTS = Path(".venv", "results")
COVERAGE = Path(".coverage")
PYTEST = Path(sys.executable).with_name("pytest")
"""Not `python -m pytest`, which would make the folders of the checkout importable beside the installed packages."""
LOWEST_PRIORITY = 19
SOME_FAILED, NOTHING_SELECTED = 1, 5
"""Exit statuses of pytest."""
LONGEST_OUTPUT = 20_000
LOCK_MATRIX = "tests/integration/test_lock_matrix.py"
"""One file, so one process runs it, for minutes, and it waits for most of them."""
WAITS = "waits"
"""The property with the node id that `tests/conftest.py` gives to tests with the marker of this name."""

Name = tuple[str, str]
"""Module (and class), and function: what JUnit files call a test."""


@dataclass(frozen=True)
class Stage:
    """One run of pytest."""

    name: str
    arguments: Sequence[str]

    @property
    def results(self) -> Path:
        return RESULTS / f"{self.name}.xml"

    @property
    def environment(self) -> dict[str, str]:
        """Stages that run at once measure coverage into files of their own, which `coverage combine` finds."""
        return {**os.environ, "COVERAGE_FILE": f"{COVERAGE.absolute()}.{self.name}"}

    def command(self, more: Sequence[str] = ()) -> list[str]:
        """A module that cannot be imported does not keep others from running; the results have what a failed test printed."""
        records = [f"--junitxml={self.results}", "-o", "junit_logging=all", "-o", "junit_log_passing_tests=false"]
        return [str(PYTEST), "--continue-on-collection-errors", *self.arguments, *records, *more]


def stages(jobs: int, coverage: bool) -> list[Stage]:
    """All tests: each is in one of these. The simulation is not measured: it runs what others run, thousands of times.

    Each process of a stage imports all that it is given, so it is given no more than it may run.
    """
    others = [f"--ignore={path}" for path in ("tests/simulation", "tests/interop", "tests/spark", LOCK_MATRIX)]
    measured, fewer = [*(["--cov", "--cov-report="] if coverage else []), "--durations=20"], min(2, jobs)
    return [
        Stage("simulation", ["tests/simulation", *workers(fewer), "--durations=20"]),
        Stage("interop", ["tests/interop", *files(fewer), *measured]),
        Stage("lock-matrix", [LOCK_MATRIX, *measured]),
        Stage("without-spark", ["tests", "-m", "not spark", *others, *files(jobs), *measured]),
        # One process more than a machine of two has processors: interop ends before it, and leaves one idle now and then.
        Stage("spark", [*with_spark(), "-m", "spark", *files(min(3, jobs)), *measured]),
    ]


def with_spark() -> list[str]:
    """The folders in which a test has the marker of Spark; in `tests/spark` all have it."""
    files = Path("tests").rglob("test_*.py")
    marked = {path.parts[1] for path in files if "mark.spark" in path.read_text(encoding="utf-8")}
    return [f"tests/{name}" for name in sorted({"spark", *marked})]


def workers(number: int) -> list[str]:
    """Processes of pytest-xdist. When one crashes the run ends: with another in its place `--dist loadfile` waits for ever."""
    return ["-n", str(number), "--max-worker-restart=0"]


def files(number: int) -> list[str]:
    """Processes that take whole files, in the order of `tests/conftest.py`, which has the longest first."""
    return [*workers(number), "--dist", "loadfile", "--no-loadscope-reorder"]


FETCHES = "servers"
"""A target that waits for the network, so it runs beside the other targets."""
COMPUTES, WAITS_FOR_JAVA, WAITS_FOR_LEASES = "simulation", "interop", "lock-matrix"
"""They run beside the other stages, which run one after the other: a test with Java, servers or leases waits more than it
computes. The first of them takes what is left of the processor, from the start to the end."""


@dataclass
class Run:
    """What has become of the stages so far. `problems` are those that are more than a failed test."""

    more: Sequence[str]
    problems: list[str] = field(default_factory=list)
    written: list[Path] = field(default_factory=list)

    def target(self, name: str) -> None:
        heading(name)
        status = subprocess.run(["make", "--no-print-directory", name], check=False).returncode
        if status:
            self.problems.append(f"make {name}: exit status {status}")

    @contextmanager
    def target_beside(self, name: str) -> Iterator[None]:
        with beside(name, ["make", "--no-print-directory", name], os.environ) as started:
            yield
        if started.returncode:
            self.problems.append(f"make {name}: exit status {started.returncode}")

    def tests(self, stage: Stage) -> None:
        heading(stage.name)
        self.ended(stage, subprocess.run(stage.command(self.more), env=stage.environment, check=False).returncode)

    @contextmanager
    def tests_beside(self, stage: Stage, priority: int = 0) -> Iterator[None]:
        with beside(stage.name, stage.command(self.more), stage.environment, priority) as started:
            yield
        self.ended(stage, started.returncode)

    def ended(self, stage: Stage, status: int) -> None:
        """Note what is wrong with a stage beyond the failed tests in its results: nothing may vanish."""
        try:
            failed = any(outcome(test) in ("failed", "errors") for test in tests_in(stage.results))
        except (OSError, ElementTree.ParseError):
            self.problems.append(f"{stage.name}: pytest left no results, exit status {status}")
            return
        self.written.append(stage.results)
        if status == NOTHING_SELECTED and not self.more:
            self.problems.append(f"{stage.name}: no test was selected")
        elif status not in (0, NOTHING_SELECTED) and not (status == SOME_FAILED and failed):
            self.problems.append(f"{stage.name}: pytest ended with exit status {status}")

    def once_more(self) -> dict[Name, str]:
        """Run the waiting tests that failed again, alone; the first output of those that passed, which count as passed then."""
        flaky: dict[Name, str] = {}
        for results in tuple(self.written):
            failed, nodes = failures([results]), waiting(results)
            again = [nodes[name] for name in failed if name in nodes]
            if again:
                passed = self._passing(Stage(f"again-{results.stem}", []), again)
                flaky |= {name: failed[name] for name in failed if name in passed}
                drop(results, passed)
        return flaky

    def _passing(self, stage: Stage, nodes: Sequence[str]) -> set[Name]:
        """Which of these tests pass; the results keep no others, since those are in the results of their first run."""
        heading(f"{stage.name}: alone, what waits and failed")
        listed = stage.results.with_suffix(".txt")
        listed.write_text("".join(f"{node}\n" for node in nodes))
        subprocess.run(stage.command([f"@{listed}"]), env=stage.environment, check=False)
        try:
            found: dict[Name, set[str]] = {}
            for test in tests_in(stage.results):
                found.setdefault(name_of(test), set()).add(outcome(test))
        except (OSError, ElementTree.ParseError):
            return set()  # they have failed twice
        passed = {name for name, outcomes in found.items() if outcomes == {"passed"}}
        drop(stage.results, found.keys() - passed)
        self.written.append(stage.results)
        return passed

    def close(self, flaky: Mapping[Name, str]) -> int:
        """Say what was flaky, what failed, and how much in all; the exit status."""
        for name, output in flaky.items():
            heading(f"flaky: {shown(name)}")
            print(output[-LONGEST_OUTPUT:])
        failed = failures(self.written)
        if flaky:
            heading("flaky: failed, then passed alone; to be mended before anything else")
            print(*map(shown, flaky), sep="\n")
        if self.problems or failed:
            heading("failed")
            print(*self.problems, *map(shown, failed), sep="\n")
        counted = Counter(outcome(test) for path in self.written for test in tests_in(path))
        counts = [f"{counted[kind]} {kind}" for kind in ("failed", "passed", "skipped", "errors") if counted[kind]]
        seconds = sum(
            float(suite.get("time", 0)) for path in self.written for suite in ElementTree.parse(path).iter("testsuite")
        )
        heading(f"total: {', '.join(counts) or 'no tests ran'} in {seconds:.2f}s")
        return int(bool(self.problems or failed))


@contextmanager
def beside(
    name: str, command: Sequence[str], environment: Mapping[str, str], priority: int = 0
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command beside the block; what it says comes at the end. `priority` is a niceness."""
    log = RESULTS / f"{name}.log"
    with log.open("wb") as said:
        started = subprocess.Popen(command, stdout=said, stderr=said, env=environment, preexec_fn=lambda: step_back(priority))
    try:
        yield started
        started.wait()
    finally:
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGTERM)
            started.wait()
        heading(name)
        print(log.read_text(errors="replace"), end="", flush=True)


def step_back(priority: int) -> None:
    """A process group of its own, to be ended as one; not a session: Linux shares the processor evenly between sessions."""
    os.setpgid(0, 0)
    os.nice(priority)


def report_coverage() -> None:
    """What all stages together ran of the code."""
    heading("coverage")
    coverage = [sys.executable, "-m", "coverage"]
    if subprocess.run([*coverage, "combine", "--quiet"], check=False).returncode == 0:
        subprocess.run([*coverage, "report"], check=False)


def heading(text: str) -> None:
    print(f" {text} ".center(80, "="), flush=True)


def shown(name: Name) -> str:
    return "::".join(part for part in name if part)


def name_of(test: Element) -> Name:
    return test.get("classname", ""), test.get("name", "")


def tests_in(path: Path) -> list[Element]:
    return list(ElementTree.parse(path).iter("testcase"))


def outcome(test: Element) -> str:
    for tag, kind in (("failure", "failed"), ("error", "errors"), ("skipped", "skipped")):
        if test.find(tag) is not None:
            return kind
    return "passed"


def failures(paths: Sequence[Path]) -> dict[Name, str]:
    """What failed, with all that it said."""
    found: dict[Name, str] = {}
    for test in (test for path in paths for test in tests_in(path)):
        if outcome(test) in ("failed", "errors"):
            told = [part.text or part.get("message") or "" for part in test if part.tag != "properties"]
            found[name_of(test)] = "\n".join([*filter(None, [found.get(name_of(test))]), *told])
    return found


def waiting(path: Path) -> dict[Name, str]:
    """The node ids of the tests that wait."""
    told = [(name_of(test), each) for test in tests_in(path) for each in test.iter("property")]
    return {name: each.get("value", "") for name, each in told if each.get("name") == WAITS}


def drop(path: Path, names: Set[Name]) -> None:
    """Take some tests out of a file of results."""
    tree = ElementTree.parse(path)
    for suite in tree.iter("testsuite"):
        for test in [test for test in suite.iter("testcase") if name_of(test) in names]:
            suite.remove(test)
    tree.write(path, encoding="utf-8", xml_declaration=True)


def main(arguments: Sequence[str]) -> int:
    asked = list(arguments)
    between = asked.index("--") if "--" in asked else len(asked)
    targets, more = asked[:between], asked[between + 1 :]
    jobs = 4
    if targets[:1] == ["--jobs"]:
        jobs, targets = int(targets[1]), targets[2:]
    coverage = targets[:1] == ["--coverage"]
    targets = targets[1:] if coverage else targets
    RESULTS.mkdir(parents=True, exist_ok=True)
    for old in [*Path().glob(".coverage"), *Path().glob(".coverage.*"), *RESULTS.glob("*.xml"), *RESULTS.glob("*.log")]:
        old.unlink()
    run = Run(more)
    by_name = {stage.name: stage for stage in stages(jobs, coverage)}
    # A single process leaves the others enough, so none has to step back.
    with run.tests_beside(by_name.pop(COMPUTES), LOWEST_PRIORITY if jobs > 1 else 0):
        with run.target_beside(FETCHES) if FETCHES in targets else nullcontext():
            for target in targets:
                if target != FETCHES:
                    run.target(target)
        with run.tests_beside(by_name.pop(WAITS_FOR_JAVA)), run.tests_beside(by_name.pop(WAITS_FOR_LEASES)):
            for stage in by_name.values():
                run.tests(stage)
    if coverage:
        report_coverage()
    flaky = run.once_more()
    table = subprocess.run([sys.executable, "-m", "tests.integration.matrix", *map(str, run.written)], check=False)
    if table.returncode:
        run.problems.append(f"lock matrix: exit status {table.returncode}")
    return run.close(flaky)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
