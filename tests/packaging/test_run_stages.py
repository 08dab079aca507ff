"""`make test` runs everything, loses no failure, and forgives a test that waits once: on a project with a handful of tests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.sizes import in_ci

ROOT = Path(__file__).parents[2]
CONFIGURATION = """
[tool.pytest.ini_options]
addopts = ["--import-mode=importlib", "--strict-markers"]
markers = ["spark: x", "interop: x", "waits: x", "in_ci: x", "sampled: x"]
[tool.coverage.run]
source = ["tests"]
"""
pytestmark = pytest.mark.timeout(900)
MAKEFILE = "good:\n\t@echo good ran\nbad:\n\t@echo bad ran; exit 3\nservers:\n\t@echo none fetched; exit 3\n"
PASSES = "def test_passes():\n    pass\n"
ONCE = """
from pathlib import Path

def test_once():
    "Fails in its first run and passes in all others."
    ran = Path("ran-{name}")
    runs = int(ran.read_text()) if ran.exists() else 0
    ran.write_text(str(runs + 1))
    print("printed in run", runs + 1)
    assert runs, "only the first time"
"""
REPEATED = """
import pytest

@pytest.mark.parametrize("step", [0, *(pytest.param(n, marks=[pytest.mark.in_ci, pytest.mark.sampled]) for n in range(1, 40))])
def test_repeated(step): ...
"""
ALWAYS = "def test_always():\n    assert 1 == 2\n"
SERVED = "import pytest\n\n@pytest.fixture\ndef s3_endpoint(): ...\n\ndef test_served(s3_endpoint): ...\n"
STAGES = ("integration", "interop", "simulation", "spark", "unit")


class Project:
    """A project like this one: its conftest with its sampling, its stages, and a test that passes in each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "pyproject.toml").write_text(CONFIGURATION)
        (folder / "Makefile").write_text(MAKEFILE)
        for name in STAGES:
            self.add(f"{name}/test_{name}_passes.py", PASSES)
        self.add("integration/test_lock_matrix.py", PASSES)
        self.add("integration/matrix.py", "import sys\nprint('matrix of', *sys.argv[1:])\n")
        for name in ("__init__.py", "conftest.py", "given_servers.py", "sampling.py"):
            shutil.copy(ROOT / "tests" / name, folder / "tests" / name)

    def add(self, path: str, text: str) -> None:
        file = self.folder / "tests" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def runs_of(self, name: str) -> int:
        return int((self.folder / f"ran-{name}").read_text())

    def run(self, *arguments: str, jobs: int = 0) -> subprocess.CompletedProcess[str]:
        env = {name: value for name, value in os.environ.items() if not name.startswith(("COV", "PYTEST_", "MAKE"))}
        command = [sys.executable, str(ROOT / ".ci" / "run_stages.py"), "--jobs", str(jobs), *arguments]
        return subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, timeout=800, check=False)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def counts(done: subprocess.CompletedProcess[str]) -> str:
    """What the last line says, which is one like pytest's own."""
    found = re.fullmatch(r"=+ total: (.*) in [0-9.]+s =+", done.stdout.splitlines()[-1])
    assert found, done.stdout[-2000:] + done.stderr[-2000:]
    return found[1]


@pytest.mark.long
def test_where_all_is_well_everything_runs_once_and_is_measured_on_request(project: Project) -> None:
    done = project.run("--coverage", "good")
    assert (done.returncode, counts(done)) == (0, "6 passed")
    assert "good ran" in done.stdout and "test_spark_passes.py" in done.stdout.partition("= coverage =")[2]
    assert "failed" not in done.stdout and "flaky" not in done.stdout and "again" not in done.stdout
    names = ("simulation", "without-spark", "lock-matrix", "interop", "spark")
    written = re.search("matrix of (.*)", done.stdout)
    assert written and sorted(Path(path).stem for path in written[1].split()) == sorted(names)


@pytest.mark.long
def test_a_test_that_waits_and_passes_alone_is_listed_as_flaky_with_its_first_output(project: Project) -> None:
    project.add("integration/test_slow.py", ONCE.format(name="slow"))
    project.add("spark/test_job.py", ONCE.format(name="job"))
    done = project.run()
    assert (done.returncode, counts(done)) == (0, "8 passed")
    flaky = done.stdout.partition(" flaky: ")[2]
    assert "printed in run 1" in flaky and "only the first time" in flaky and "printed in run 2" not in flaky
    listed = flaky.rpartition("to be mended before anything else")[2]
    assert "test_slow::test_once" in listed and "test_job::test_once" in listed
    assert (project.runs_of("slow"), project.runs_of("job")) == (2, 2)
    assert "= failed =" not in done.stdout and "= coverage =" not in done.stdout


@pytest.mark.in_ci
def test_whatever_fails_the_rest_runs_and_all_that_failed_is_listed(project: Project) -> None:
    project.add("integration/test_twice.py", ALWAYS)
    project.add("unit/test_plain.py", ONCE.format(name="plain"))
    project.add("unit/test_broken.py", "import nothing_of_this_name\n")
    project.add("simulation/test_seeds.py", ALWAYS)
    done = project.run("servers", "bad", "good")
    assert done.returncode == 1
    for said in ("bad ran", "good ran", "none fetched"):
        assert said in done.stdout
    assert "flaky" not in done.stdout
    assert project.runs_of("plain") == 1, "no test but those that wait runs twice"
    failed = done.stdout.partition("= failed =")[2]
    for name in (
        "make bad",
        "make servers",
        "test_twice::test_always",
        "test_plain::test_once",
        "test_broken",
        "test_seeds::test_always",
    ):
        assert name in failed
    assert counts(done) == "3 failed, 6 passed, 1 errors"


@pytest.mark.long
def test_a_test_with_spark_outside_its_folder_is_run_by_that_stage(project: Project) -> None:
    project.add("integration/test_with_spark.py", "import pytest\n\n@pytest.mark.spark\n" + PASSES)
    done = project.run("--", "-k", "with_spark or spark_passes")
    assert (done.returncode, counts(done)) == (0, "2 passed")
    assert "2 passed" in done.stdout.partition("= spark =")[2]


@pytest.mark.long
def test_a_run_of_pytest_that_breaks_down_or_finds_nothing_is_a_failure(project: Project) -> None:
    ends = "import os\n\ndef test_ends():\n    os._exit(0)\n"
    for stage in ("unit", "interop", "spark"):
        project.add(f"{stage}/test_{stage}_ends.py", ends)
    project.add("integration/test_lock_matrix.py", ends)
    (project.folder / "tests" / "simulation" / "test_simulation_passes.py").unlink()
    done = project.run(jobs=1)
    failed = done.stdout.partition("= failed =")[2]
    assert done.returncode == 1
    nothing = ("lock-matrix: pytest left no results", "simulation: no test was selected")
    for what in (*nothing, "test_unit_ends", "test_interop_ends", "test_spark_ends"):
        assert what in failed
    assert counts(done) == "1 passed, 3 errors", "what a worker had not run when it crashed is not run"


def test_tests_that_cannot_even_be_looked_for_are_a_failure(project: Project) -> None:
    project.add("conftest.py", "import nothing_of_this_name\n")
    done = project.run()
    assert (done.returncode, counts(done)) == (1, "no tests ran")
    assert done.stdout.partition("= failed =")[2].count("pytest left no results, exit status 4") == 5


@pytest.mark.long
def test_a_run_of_some_tests_does_not_need_one_in_each_stage(project: Project) -> None:
    done = project.run("--", "-k", "test_unit_passes or nothing")
    assert (done.returncode, counts(done)) == (0, "1 passed")


@pytest.mark.parametrize(
    ("path", "text", "waits"),
    [
        ("behaviour/test_plain.py", PASSES, False),
        ("faults/test_killed.py", PASSES, True),
        *in_ci(
            ("behaviour/test_marked.py", "import pytest\n@pytest.mark.waits\n" + PASSES, True),
            ("behaviour/test_patient.py", "from tests.waiting import eventually\n" + PASSES, True),
            ("behaviour/test_served.py", SERVED, True),
        ),
    ],
)
def test_what_waits_is_known_by_its_folder_its_fixtures_what_it_imports_or_its_marker(
    project: Project, path: str, text: str, waits: bool
) -> None:
    project.add("waiting.py", "def eventually(): ...\n")
    project.add(path, text)
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-m", "waits", f"tests/{path}"]
    done = subprocess.run(command, cwd=project.folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == (0 if waits else 5), done.stdout


def test_a_build_takes_another_sample_with_each_commit_and_the_same_one_again_when_asked(project: Project) -> None:
    project.add("unit/test_repeated.py", REPEATED)

    def collected(**environment: str) -> str:
        kept = {name: value for name, value in os.environ.items() if name not in ("CI", "FULL")}
        command = [sys.executable, "-m", "pytest", "--collect-only", "tests/unit/test_repeated.py"]
        run = subprocess.run(
            command, cwd=project.folder, env=kept | environment, capture_output=True, text=True, timeout=60, check=False
        )
        return run.stdout

    one, again, other = (collected(CI="1", LAKELOCK_SAMPLE=commit) for commit in ("1f", "1f", "4c"))
    chosen, others = (set(re.findall(r"test_repeated\[\d+\]", text)) for text in (one, other))
    assert "LAKELOCK_SAMPLE='1f'" in one and chosen == set(re.findall(r"test_repeated\[\d+\]", again))
    assert "test_repeated[0]" in chosen & others and 2 < len(chosen) < 20 and chosen != others
    assert "40 tests collected" in collected(CI="1", FULL="1", LAKELOCK_SAMPLE="1f")
    assert "1/40 tests collected" in collected()
