"""`lakelock doctor` compares Hudi's metadata table with the files: tables that Java made, whole and with a commit it lacks."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.behaviour.cli.command_line import run
from tests.golden_tables import unpack

ARGUMENTS = ("--set", "concurrency.mode=SINGLE_WRITER")


def metadata(table: Path) -> list[dict[str, str]]:
    checks = run("doctor", str(table), "--json", *ARGUMENTS).json["checks"]
    return [check for check in checks if check["name"] == "metadata"]


@pytest.mark.parametrize("name", ["java12_metadata", "java10_metadata"])
def test_a_metadata_table_of_java_lists_every_file(name: str, tmp_path: Path) -> None:
    (check,) = metadata(unpack(name, tmp_path))
    assert check["status"] == "ok"
    assert check["found"].endswith("lists each of 2 files")


def test_a_commit_that_the_metadata_table_lacks_is_named_with_the_rows_that_its_readers_miss(tmp_path: Path) -> None:
    table = unpack("java12_metadata", tmp_path)
    newest = max((table / ".hoodie/timeline").glob("*_*.commit")).name[:17]
    for file in (table / ".hoodie/metadata/.hoodie/timeline").glob(f"{newest}*"):
        file.unlink()
    found = metadata(table)
    assert {check["status"] for check in found} == {"failed"}
    missed, outdated = (check["found"] for check in found)
    assert newest in missed and "does not list region=eu/" in missed and "miss its rows" in missed
    assert "lists region=eu/" in outdated and "another file has replaced" in outdated
    assert "adopt" in found[0]["hint"]


def test_files_that_are_lost_or_cut_off_are_not_as_the_metadata_table_says(tmp_path: Path) -> None:
    table = unpack("java12_metadata", tmp_path)
    lost, cut = sorted(table.glob("region=*/*.parquet"))[:2]
    lost.unlink()
    cut.write_bytes(b"P")
    found = [check["found"] for check in metadata(table)]
    assert any(lost.name in text and "is not there" in text for text in found)
    assert any(cut.name in text and "and it has 1" in text for text in found)


def test_a_metadata_table_that_is_gone_while_the_properties_name_it_fails(tmp_path: Path) -> None:
    table = unpack("java12_metadata", tmp_path)
    shutil.rmtree(table / ".hoodie/metadata")
    (check,) = metadata(table)
    assert check["status"] == "failed" and "Java's next write fails" in check["found"]


def test_a_torn_file_of_the_metadata_table_is_named(tmp_path: Path) -> None:
    table = unpack("java12_metadata", tmp_path)
    newest = max((table / ".hoodie/metadata/files").glob("*.hfile"), key=lambda file: file.name.rpartition("_")[2])
    newest.write_bytes(newest.read_bytes()[:-1])
    (check,) = metadata(table)
    assert check["status"] == "failed" and newest.name in check["found"]


def test_a_metadata_table_that_nobody_compacts_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakelock.cli.doctor_contents.MOST_UNCOMPACTED", 3)
    slow, whole = metadata(unpack("java12_metadata", tmp_path))
    assert (slow["status"], whole["status"]) == ("warning", "ok") and "was not compacted for" in slow["found"]


def test_nothing_is_said_of_a_table_without_one(tmp_path: Path) -> None:
    assert metadata(unpack("java12_ops", tmp_path)) == []
