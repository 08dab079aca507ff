"""What tests fetch from elsewhere, fetched before the first of them: `python -m tests.fetch_servers`, which `make test` runs.

Each test would fetch what it needs by itself, but then a slow network counts against the time limit of whichever test comes
first. What cannot be fetched is told and is no error: the tests that need it are skipped with the reason, or fail in CI.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tests.browser import browser
from tests.servers import ServerMissing, kerberos
from tests.servers.fetched.hadoop_jars import GCS_CONNECTOR, hadoop_aws
from tests.servers.fetched.hudi_jars import HUDI, HUDI_DYNAMODB, HUDI_SPARK_1_0
from tests.servers.fetched.java_hudi import java_hudi
from tests.servers.fetched.npm import NpmPackage
from tests.servers.locks.dynamodb import DYNALITE
from tests.servers.stores import hdfs
from tests.servers.stores.azure import AZURITE

Fetch = Callable[[], object]


def from_npm(package: NpmPackage) -> None:
    if not package.is_there():
        raise ServerMissing(f"needs {package.name} from npm")


SERVERS: tuple[tuple[str, Fetch], ...] = (
    ("PySpark 3.5 with Java Hudi", java_hudi),
    ("Hadoop's connector for S3", lambda: hadoop_aws().fetch()),
    ("dynalite", partial(from_npm, DYNALITE)),
    ("Azurite", partial(from_npm, AZURITE)),
)
IN_CI: tuple[tuple[str, Fetch], ...] = (
    ("Java Hudi 1.0", HUDI_SPARK_1_0.fetch),
    ("Hudi's lock providers", HUDI.fetch),
    ("Hudi's lock provider for DynamoDB", HUDI_DYNAMODB.fetch),
    ("HDFS", hdfs.class_path),
    ("Google's connector", GCS_CONNECTOR.fetch),
)
"""What only tests with the marker `in_ci` need."""
FROM_APT: tuple[tuple[str, Fetch], ...] = (("a browser", browser),)
FROM_APT_IN_CI: tuple[tuple[str, Fetch], ...] = (*FROM_APT, ("Kerberos", kerberos.require))
"""One after the other: apt does not run twice at once."""


def fetch(wanted: Iterable[tuple[str, Fetch]]) -> list[str]:
    """Fetch one after the other, and say of each how long it took, or what is missing."""
    told = []
    for name, each in wanted:
        began_s = time.monotonic()
        try:
            each()
        except ServerMissing as missing:
            told.append(f"{name}: {missing}")
        else:
            told.append(f"{name}: there after {time.monotonic() - began_s:.0f} s")
    return told


def main() -> None:
    all_of_them = os.environ.get("CI") or os.environ.get("FULL")
    servers, from_apt = ((*SERVERS, *IN_CI), FROM_APT_IN_CI) if all_of_them else (SERVERS, FROM_APT)
    at_once = [from_apt, *((each,) for each in servers)]
    with ThreadPoolExecutor(len(at_once)) as pool:
        for told in pool.map(fetch, at_once):
            print(*told, sep="\n", flush=True)


if __name__ == "__main__":
    main()
