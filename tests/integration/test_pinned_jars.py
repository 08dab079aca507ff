"""Jars for tests are taken from any repository, and only with their pinned content."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest
from tests.given_servers import ServerMissing
from tests.servers.fetched.maven import REPOSITORY, Jars

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>org.example</groupId><artifactId>thing</artifactId><version>1.0</version></project>
"""


@pytest.fixture
def content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """What the one jar of a repository holds that is a folder here."""
    folder = tmp_path / "repository" / "org" / "example" / "thing" / "1.0"
    folder.mkdir(parents=True)
    (folder / "thing-1.0.pom").write_text(_POM)
    (folder / "thing-1.0.jar").write_bytes(b"a jar")
    (folder / "thing-1.0-shaded.jar").write_bytes(b"a jar with all that it needs")
    monkeypatch.setenv(REPOSITORY, (tmp_path / "repository").as_uri())
    return b"a jar"


def test_jars_are_fetched_once_and_kept(tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    jars = Jars("things", f"\norg.example:thing:1.0 {hashlib.sha256(content).hexdigest()}\n")
    place = jars.fetch(tmp_path)
    assert [jar.name for jar in place.glob("*.jar")] == ["thing-1.0.jar"]
    shutil.rmtree(tmp_path / "repository")
    assert jars.fetch(tmp_path) == place


def test_a_jar_with_a_classifier_is_fetched_instead_of_the_plain_one(tmp_path: Path, content: bytes) -> None:
    digest = hashlib.sha256(content + b" with all that it needs").hexdigest()
    place = Jars("shaded", f"org.example:thing:1.0:shaded {digest}").fetch(tmp_path)
    assert [jar.name for jar in place.glob("*.jar")] == ["thing-1.0-shaded.jar"]


def test_a_jar_with_other_content_is_refused(tmp_path: Path, content: bytes) -> None:
    jars = Jars("things", f"\norg.example:thing:1.0 {hashlib.sha256(b'another').hexdigest()}\n")
    with pytest.raises(ServerMissing, match=r"^needs the jars of things .*: the downloaded content is not the pinned one"):
        jars.fetch(tmp_path)
    assert not (tmp_path / "things").exists()


def test_jars_that_cannot_be_fetched_are_an_error_that_quotes_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REPOSITORY, (tmp_path / "nothing").as_uri())
    with pytest.raises(ServerMissing, match=r"java said: .*(not found|unresolved)"):
        Jars("things", f"\norg.example:thing:1.0 {'0' * 64}\n").fetch(tmp_path)
