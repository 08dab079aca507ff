"""Airflow in a virtual environment of its own: it asks for other versions of many packages than the tests do."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.servers.fetched.java_hudi import environment, needed_by_lakelock

AIRFLOW = "apache-airflow>=3.1,<4"
FOLDER = Path(sys.prefix) / "lakelock-servers" / "airflow"


def airflow() -> Path:
    """The folder of its programs; `ServerMissing` where it cannot be installed. The first time it takes a minute."""
    return environment(FOLDER, [AIRFLOW, *needed_by_lakelock()]).parent
