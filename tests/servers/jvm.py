"""Java, and the jars that PySpark ships: ZooKeeper, Curator and the Hive metastore are among them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import escape

from tests.given_servers import ServerMissing

SHORT_LIVED = (
    "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
    "-XX:+IgnoreUnrecognizedVMOptions", "-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote",
)  # fmt: skip
"""For a JVM that ends before thorough compilation would pay. To verify the classes of jars that others have released takes a
sixth of the work of a session of Java Hudi."""
ALL_SHORT_LIVED = {"JDK_JAVA_OPTIONS": " ".join(SHORT_LIVED)}
"""The environment in which each `java` is."""


def java() -> str:
    """The program `java`; raises `ServerMissing` where there is none."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if not found:
        raise ServerMissing("needs Java 17 or newer: apt-get install -y openjdk-17-jre-headless")
    return found


def write_configuration(file: Path, properties: Mapping[str, str]) -> None:
    """Write a file such as `core-site.xml`, as Hadoop and Hive read their settings."""
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = (f"<property><name>{name}</name><value>{escape(value)}</value></property>\n" for name, value in properties.items())
    file.write_text(f"<configuration>\n{''.join(rows)}</configuration>\n")


def jars() -> Path:
    """The folder with PySpark's jars; raises `ServerMissing` where PySpark is not installed."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ServerMissing("needs the jars of PySpark: pip install pyspark")
    return Path(spec.origin).parent / "jars"
