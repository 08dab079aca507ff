"""The commands that commands and errors print for the next step do what they say when they are pasted into a shell."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from tests.api import LocalStorage
from tests.behaviour.cli.command_line import left_by_a_dead_writer, run, writer
from tests.behaviour.tables import insert, new_table

from lakelock.admin.executor_archive import ExecutorArchive
from lakelock.cli import table_setup
from lakelock.cli.output import Exit
from lakelock.errors import LockTimeout

NAME = "two words; and 'more' größe"


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    """A table in a folder whose name a shell would take apart."""
    made = LocalStorage(tmp_path / NAME)
    new_table(made)
    return made


def pasted(text: str, starts: str) -> list[str]:
    """The arguments of the command that begins so, to the end of its line or of its backticks."""
    found = re.search(rf"lakelock ({starts}[^`\n]*)", text)
    assert found, text
    return shlex.split(found[1])


def test_a_printed_command_names_a_table_of_any_name(storage: LocalStorage, path: str) -> None:
    left_by_a_dead_writer(storage)
    for text in (run("markers", "ls", path).out, run("doctor", path).out):
        assert pasted(text, "markers reap") == ["markers", "reap", path]
    assert run(*pasted(run("commits", "show", path, "yesterday").err, "commits ls")).code == Exit.OK
    assert run(*pasted(run("conflicts", "explain", path, "yesterday").err, "conflicts ls")).code == Exit.OK
    assert run(*pasted(run("locks", "break", path).err, "locks ls")).code == Exit.OK


def test_the_command_of_a_lock_timeout_breaks_that_lock(storage: LocalStorage) -> None:
    holder, late = writer(storage, name="holder").table.provider, writer(storage).table.provider
    assert holder is not None and late is not None
    holder.acquire(wait_s=1)
    with pytest.raises(LockTimeout) as caught:
        late.acquire(wait_s=0)
    assert run(*pasted(caught.value.hint, "locks ls"), "--json").json["state"] == "held"
    broken = run(*pasted(caught.value.hint, "locks break"), "--force", "--yes", "--json")
    assert broken.json["broken"] is True and broken.json["table"] == storage.uri


def test_a_printed_command_has_the_file_and_the_settings_of_the_call(storage: LocalStorage, path: str, tmp_path: Path) -> None:
    file = tmp_path / "my settings.toml"
    file.write_text("[heartbeat]\ninterval_s = 1\ntolerable_misses = 2\n")
    left_by_a_dead_writer(storage)
    given = ["-c", str(file), "--set", "lock.wait_s=9"]
    for command in ("markers ls", "doctor"):
        printed = pasted(run(*command.split(), path, *given).out, "markers reap")
        assert printed == ["markers", "reap", path, *given]
    assert pasted(run("commits", "show", path, "yesterday", *given).err, "commits ls")[3:] == given
    assert run(*printed, "--json").json["reaped"]


def test_a_restore_is_undone_with_the_settings_that_it_had(storage: LocalStorage, path: str) -> None:
    first = insert(writer(storage), storage, "month=1", "a").instant
    second = insert(writer(storage), storage, "month=1", "b").instant
    given = ["--set", "lock.wait_s=9", "--set", "retry.attempts=2"]
    assert pasted(run("restore", path, first, *given).out, "restore") == ["restore", path, second, *given]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("storage.secret_access_key=hush", "storage.secret_access_key=***"),
        ("zookeeper_digest=me:hush", "zookeeper_digest=***"),
        ("lock.provider=redis://me:hush@locks:6379/0", "lock.provider=redis://me:***@locks:6379/0"),
    ],
)
def test_a_secret_of_the_call_is_not_printed_again(path: str, given: str, shown: str) -> None:
    ended = run("commits", "show", path, "yesterday", "--set", given)
    assert shown in pasted(ended.err, "commits ls") and "hush" not in ended.err


def test_the_spark_conf_of_an_archive_is_one_word_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = ExecutorArchive(tmp_path / "two words.tar.gz", 1, (), "3.11", "linux")
    monkeypatch.setattr(table_setup, "write_archive", lambda path: made)
    lines = [shlex.split(line) for line in run("package").out.splitlines() if "--conf" in line]
    assert lines == [["--conf", f"{name}={value}"] for name, value in made.spark_options.items()]
