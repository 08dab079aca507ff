"""Lock providers of others, installed as they install them: the examples of the guide, from outside."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.sizes import long

ROOT = Path(__file__).parents[2]
EXAMPLES = Path(__file__).parent / "third_party"
GUIDE = ROOT / "docs" / "howto-write-a-lock-provider.md"
SHOWN = sorted(path for path in EXAMPLES.rglob("*") if path.suffix in (".py", ".toml"))

_LOOK = """
import json, sys
from lakelock.clock import SystemRuntime
from lakelock.identity import WriterIdentity
from lakelock.providers import open_provider, provider_names
from lakelock.settings import Settings
from lakelock.storage.location import open_storage
runtime = SystemRuntime()
settings = Settings.resolve({"lock.provider": sys.argv[1]}).settings
writer = WriterIdentity.of_this_process(runtime)
with_lock = open_provider(settings, open_storage(sys.argv[2]), runtime, writer)
lease = with_lock.acquire(wait_s=12)
print(json.dumps([type(with_lock).__name__, lease.token, provider_names()]))
with_lock.release(lease)
"""


def run(*command: str | Path, cwd: Path, path: Path | None = None) -> str:
    """What a command prints; `path` is where distributions lie that it shall find."""
    paths = [str(path)] if path else []
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])])}
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=env, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pip put both examples, from copies of them; without a network where setuptools can build wheels itself."""
    target, copies = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("copies")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
    if find_spec("setuptools") is not None and find_spec("setuptools.command.bdist_wheel") is not None:
        pip += ["--no-index", "--no-build-isolation"]
    for example in EXAMPLES.iterdir():
        if (example / "pyproject.toml").exists():
            for file in SHOWN:
                if file.parent == example:
                    (copies / example.name).mkdir(exist_ok=True)
                    (copies / example.name / file.name).write_bytes(file.read_bytes())
            run(*pip, "--target", target, copies / example.name, cwd=copies)
    return target


@pytest.mark.in_ci
def test_an_installed_provider_is_found_by_its_entry_point_in_another_process(installed: Path, tmp_path: Path) -> None:
    uri = f"sqlite:{tmp_path}/locks.db"
    looks = [json.loads(run(sys.executable, "-c", _LOOK, uri, tmp_path / "t", cwd=tmp_path, path=installed)) for _ in range(2)]
    assert [look[:2] for look in looks] == [["SqliteLockProvider", 1], ["SqliteLockProvider", 2]]
    assert {"drawer", "sqlite", "storage"} <= set(looks[0][2])


@pytest.mark.in_ci
@pytest.mark.parametrize(("example", "least"), [("minimal", 18), *long(("sqlite_lock", 25))])
def test_the_example_passes_the_suite_as_its_author_runs_it(installed: Path, tmp_path: Path, example: str, least: int) -> None:
    for file in (EXAMPLES / example).glob("test_*.py"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    pytest_of_theirs = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml=results.xml", "."]
    told = run(*pytest_of_theirs, cwd=tmp_path, path=installed)
    cases = list(ElementTree.parse(tmp_path / "results.xml").iter("testcase"))
    skipped = Counter(str(found.get("message")) for case in cases if (found := case.find("skipped")) is not None)
    assert len(cases) - skipped.total() >= least, told
    assert all(reason.startswith("does not apply: ") for reason in skipped), skipped


def test_the_guide_shows_the_small_example_as_it_is_and_leads_to_the_complete_one() -> None:
    text, small = GUIDE.read_text(), EXAMPLES / "minimal"
    for file in small.glob("*.py"):
        assert f"```python\n{file.read_text()}```\n" in text, f"{file.name} is not in the guide as it is"
    (entry,) = re.findall(r"^```toml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert entry in (small / "pyproject.toml").read_text()
    assert "(../tests/integration/third_party/sqlite_lock)" in text
