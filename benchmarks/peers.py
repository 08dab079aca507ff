"""The same writes by lakelock, plain Spark, Delta on Spark, delta-rs and Java Hudi, each with its default settings.

`python -m benchmarks.peers [--rows 2000000] [--repeat 3] [--small 10] [--json]`: an insert of so many rows of ten columns into
a new table, an upsert of a tenth as many (nine of ten known, over the whole table), one-row inserts and two-row upserts into a
table of 100,000 rows. Each peer runs in a process of its own, with local[2] where it has Spark. Java Hudi and Delta on Spark
are installed into environments of their own, with the newest Spark that they are published for; what cannot be installed is
left out. Medians: large writes of all rounds but the first, small ones of the second call on, and beside them the first.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tests.given_servers import ServerMissing
from tests.servers.fetched.java_hudi import FOLDER, environment, java_hudi
from tests.servers.fetched.maven import Jars

from benchmarks.measuring import arguments, scratch, show, write_rows
from benchmarks.peer_writes import SMALL_TABLE

DELTA = ["delta-spark==4.3.0", "pyspark==4.1.1", "deltalake==1.6.6", "numpy", "pyarrow"]
DELTA_JARS = Jars(
    "delta-spark",
    """
io.delta:delta-kernel-api:4.3.0 289c01d913528509f452ff901851c91b668f84dafa01fb0971bc252b64370842
io.delta:delta-kernel-defaults:4.3.0 0d60c6ca6560971112acc0f3e8256d8feb4a52714ba7fa4d2a7eb51f1fab0323
io.delta:delta-kernel-unitycatalog:4.3.0 aa6ba769ad18e718fd05a3d2beb64744a72d906a57826439dbda136f57f1f082
io.delta:delta-spark_4.1_2.13:4.3.0 35ae4164ee41bbfc8bdb52dcd3715ff4e1821a18c085e7a71a462e8e80e23ee5
io.delta:delta-storage:4.3.0 d765a7144289c292e256963f810c1a4b096a8c09bdb3b0370096393b6a02b3c5
""",
)
HERE = Path(__file__).parents[1]


def environments() -> Iterator[tuple[str, str, str]]:
    """Each peer, the Python that has it, and the jars that it needs; those that cannot be installed are told."""
    yield "lakelock_spark", sys.executable, ""
    yield "parquet_spark", sys.executable, ""
    yield "lakelock", sys.executable, ""
    try:
        delta = str(environment(FOLDER.with_name("delta"), DELTA))
        yield "delta_rs", delta, ""
        yield "delta_spark", delta, ",".join(map(str, DELTA_JARS.fetch().glob("*.jar")))
    except ServerMissing as missing:
        print(missing, file=sys.stderr)
    try:
        hudi = java_hudi()
        yield "java_hudi", str(hudi.python), ",".join(map(str, hudi.jars))
    except ServerMissing as missing:
        print(missing, file=sys.stderr)


def main() -> None:
    given = arguments(__doc__, rows=2_000_000, repeat=3, small=10)
    found: dict[str, object] = {}
    with scratch() as folder:
        ids, known, new = np.random.default_rng(1).permutation(given.rows), given.rows * 9 // 100, given.rows // 100
        write_rows(f"{folder}/source", ids, files=4)
        write_rows(f"{folder}/source_few", np.arange(SMALL_TABLE), files=1)
        for number in range(1, given.repeat + 2):
            chosen = np.random.default_rng(number).choice(given.rows, known, replace=False)
            added = given.rows + number * new + np.arange(new)
            write_rows(f"{folder}/source-{number}", np.concatenate([chosen, added]), 2, seed=100 + number)
        for name, python, jars in environments():
            command = [python, "-m", "benchmarks.peer_writes", name, folder, jars, str(given.repeat), str(given.small)]
            done = subprocess.run(
                command, cwd=HERE, env={**os.environ, "PYTHONPATH": str(HERE)}, capture_output=True, text=True
            )
            if done.returncode:
                print(f"{name}: {done.stderr.strip()[-500:]}", file=sys.stderr)
                continue
            found |= {f"{name}_{what}": seconds for what, seconds in json.loads(done.stdout.splitlines()[-1]).items()}
    show(found, given.json)


if __name__ == "__main__":
    main()
