"""Jars from Maven Central for tests, kept below the virtual environment and checked against their pinned contents.

Maven fetches them where it is installed, because it knows the user's mirrors; otherwise PySpark's Ivy does. Both are bounded.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from xml.sax.saxutils import quoteattr

from tests.given_servers import ServerMissing
from tests.servers import jvm

REPOSITORY = "LAKELOCK_TEST_MAVEN_URL"
"""Environment: a repository in Maven's layout to use instead of Maven Central, where Maven itself is not installed."""

FOLDER = Path(sys.prefix) / "lakelock-servers" / "jars"
_WITHIN_S = 120.0
_SHORT_LIVED = {**os.environ, **jvm.ALL_SHORT_LIVED}
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>lakelock</groupId><artifactId>test</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>{}</dependencies></project>
"""
_POM_JAR = """<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}
<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>
"""
_IVY = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven"><info organisation="lakelock" module="test"/>
<configurations><conf name="default"/></configurations>
<dependencies defaultconf="default->master">{}</dependencies></ivy-module>
"""
_IVY_JAR = """<dependency org="{}" name="{}" rev="{}" transitive="false">{}</dependency>
"""
_IVY_CLASSIFIER = """<artifact name="{}" type="jar" m:classifier="{}"/>"""
_IVY_SETTINGS = """<ivysettings><settings defaultResolver="chosen"/>
<resolvers><ibiblio name="chosen" m2compatible="true" root={}/></resolvers></ivysettings>
"""


Coordinates = tuple[str, str, str, str]


@dataclass(frozen=True)
class Jars:
    """A set of jars: a name, and one `group:artifact:version sha256` a line, or `group:artifact:version:classifier sha256`."""

    name: str
    listed: str

    @cached_property
    def coordinates(self) -> dict[Coordinates, str]:
        """Group, artifact, version and classifier, if any, of each jar, and the SHA-256 of its content."""
        found = {}
        for line in self.listed.split("\n"):
            if line:
                place, digest = line.split()
                group, artifact, version, *classifier = place.split(":")
                found[group, artifact, version, "".join(classifier)] = digest
        return found

    def fetch(self, folder: Path = FOLDER) -> Path:
        """The folder with exactly these jars, fetched on first use; `ServerMissing` where they cannot be fetched."""
        place = folder / self.name
        if self._complete(place):
            return place
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ServerMissing(f"needs the jars of {self.name} in {place}, which cannot be made: {error}") from error
        with (folder / f"{self.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self._complete(place):
                self._fetch(place)
        return place

    def _fetch(self, place: Path) -> None:
        told = []
        for way in (_by_maven, _by_ivy):
            arriving = place.with_suffix(".arriving")
            shutil.rmtree(arriving, ignore_errors=True)
            arriving.mkdir()
            told.append(way(list(self.coordinates), arriving))
            if self._complete(arriving):
                shutil.rmtree(place, ignore_errors=True)
                arriving.rename(place)
                return
            if any(arriving.glob("*.jar")):
                told.append("the downloaded content is not the pinned one")
            shutil.rmtree(arriving)
        why = "; ".join(each for each in told if each)
        raise ServerMissing(f"needs the jars of {self.name} from Maven Central, or from {REPOSITORY}: {why}")

    def _complete(self, place: Path) -> bool:
        """Whether every jar is there with its pinned content, and no other."""
        expected = {
            f"{artifact}-{version}{classifier and f'-{classifier}'}.jar": digest
            for (_, artifact, version, classifier), digest in self.coordinates.items()
        }
        return {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in place.glob("*.jar")} == expected


def _by_maven(jars: list[Coordinates], folder: Path) -> str:
    maven = shutil.which("mvn")
    if maven is None or os.environ.get(REPOSITORY):
        return ""
    pom = folder / "pom.xml"
    named = [(*jar, f"<classifier>{classifier}</classifier>" if classifier else "") for *jar, classifier in jars]
    pom.write_text(_POM.format("".join(_POM_JAR.format(*jar) for jar in named)))
    return _run([maven, "-B", "-q", "-f", str(pom), _PLUGIN, f"-DoutputDirectory={folder}"])


def _by_ivy(jars: list[Coordinates], folder: Path) -> str:
    java, ivy = jvm.java(), sorted(jvm.jars().glob("ivy-*.jar"))
    if not ivy:
        return "this PySpark ships no Ivy"
    module = folder / "ivy.xml"
    named = [(*jar, _IVY_CLASSIFIER.format(jar[1], classifier) if classifier else "") for *jar, classifier in jars]
    module.write_text(_IVY.format("".join(_IVY_JAR.format(*jar) for jar in named)))
    command = [java, "-Xmx256m", f"-Divy.default.ivy.user.dir={folder}/ivy", "-cp", str(ivy[-1]), "org.apache.ivy.Main"]
    if repository := os.environ.get(REPOSITORY):
        settings = folder / "ivysettings.xml"
        settings.write_text(_IVY_SETTINGS.format(quoteattr(repository.rstrip("/") + "/")))
        command += ["-settings", str(settings)]
    told = _run([*command, "-ivy", str(module), "-retrieve", f"{folder}/[artifact]-[revision](-[classifier]).[ext]"])
    shutil.rmtree(folder / "ivy", ignore_errors=True)
    return told


def _run(command: list[str]) -> str:
    """What went wrong, or nothing."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_WITHIN_S, check=False, stdin=subprocess.DEVNULL, env=_SHORT_LIVED
        )
    except subprocess.TimeoutExpired:
        return f"{Path(command[0]).name} did not finish within {_WITHIN_S:.0f} s"
    # Java reports on stderr which options it has found in the environment; that is not what went wrong.
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip() and "Picked up J" not in line]
    return f"{Path(command[0]).name} said: {' '.join(lines[-3:])[-300:]}" if done.returncode else ""
