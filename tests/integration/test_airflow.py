"""The DAG of the page about Airflow, run by Airflow 3: two runs at once, beside a writer of the row that both change."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from threading import Event, Thread

import pytest
from tests.servers import ServerMissing
from tests.servers.fetched.airflow import airflow
from tests.servers.fetched.java_hudi import lakelock_for

import lakelock

PAGE = Path(__file__).parents[2] / "docs" / "howto-airflow-and-dbt.md"
DAYS = ("2026-11-05", "2026-11-06")

_APPLIED_ONCE = "tests.behaviour.front_door.test_tables:test_a_write_of_an_application_is_applied_once"
"""Each run shows it without Airflow, which takes minutes to install and to run."""

pytestmark = [pytest.mark.in_ci, pytest.mark.slow, pytest.mark.sampled(promise=_APPLIED_ONCE)]


class Airflow:
    """Airflow with the DAG of the page. Each home has its own database, as two runs at once would wait for one of SQLite."""

    def __init__(self, folder: Path) -> None:
        self.programs, self.folder = airflow(), folder
        (dag,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
        (folder / "dags").mkdir()
        (folder / "dags" / "orders.py").write_text(dag.replace("/tmp/airflow", str(folder)))
        (folder / "packages").mkdir()
        self.packages = lakelock_for(folder / "packages")

    def start(self, home: str, *arguments: str) -> subprocess.Popen[str]:
        environ = {key: value for key, value in os.environ.items() if not key.startswith(("AIRFLOW", "PYTHON"))}
        environ |= {
            "AIRFLOW_HOME": str(self.folder / home),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self.folder / home}/airflow.db",
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.folder / "dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "PYTHONPATH": str(self.packages),
        }
        log = (self.folder / f"{home}.log").open("a")
        return subprocess.Popen([self.programs / "airflow", *arguments], env=environ, stdout=log, stderr=log, text=True)

    def run(self, *commands: tuple[str, ...]) -> None:
        """Run commands at once: the home of each, and its arguments. All must succeed."""
        started = [(home, self.start(home, *arguments)) for home, *arguments in commands]
        ended = {home: process.wait(timeout=240) for home, process in started}
        assert not any(ended.values()), "\n".join((self.folder / f"{home}.log").read_text()[-3000:] for home in ended)

    def ready(self, first: str, *others: str) -> None:
        self.run((first, "db", "migrate"))
        self.run((first, "dags", "reserialize"))
        for home in others:
            shutil.copytree(self.folder / first, self.folder / home)


@pytest.fixture
def shop(tmp_path: Path) -> Airflow:
    try:
        return Airflow(tmp_path)
    except ServerMissing as missing:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(missing))


@pytest.mark.timeout(900)
def test_two_runs_of_the_dag_at_once_and_a_repeated_one_add_each_day_once(shop: Airflow, tmp_path: Path) -> None:
    daily = lakelock.create(tmp_path / "daily", schema="name string, total double", key="name")
    daily.upsert([{"name": "all", "total": 0.0}])
    shop.ready(*DAYS)
    over = Event()

    def meddle() -> None:
        """Write the row that the tasks read and change, all the time, without changing its value."""
        while not over.is_set():
            daily.run(lambda tx: tx.upsert(tx.read("name = 'all'").to_pylist()), tag="meddler")

    meddler = Thread(target=meddle)
    meddler.start()
    try:
        shop.run(*((day, "dags", "test", "shop", day) for day in DAYS))
    finally:
        over.set()
        meddler.join()
    assert daily.read()["total"].to_pylist() == [60.0]
    assert lakelock.open(tmp_path / "orders").read().num_rows == 6
    assert rejected_of_others(tmp_path / "daily"), "no task met the meddler: nothing was shown"
    shop.run((DAYS[1], "dags", "test", "shop", DAYS[1]))
    assert daily.read()["total"].to_pylist() == [60.0]
    assert lakelock.open(tmp_path / "orders").read().num_rows == 6


def rejected_of_others(table: Path) -> list[object]:
    """The attempts of other processes than this one that were rejected, to be run again."""
    lakelock_of_here = Path(sys.executable).parent / "lakelock"
    told = subprocess.run(
        [lakelock_of_here, "conflicts", "ls", str(table), "--json"], capture_output=True, text=True, check=True
    )
    return [each for each in json.loads(told.stdout)["rejections"] if f"pid {os.getpid()})" not in each["writer"]]
