"""What a new table consists of, before anybody has written a row."""

from __future__ import annotations

from pathlib import Path

from lakelock.storage.local import LocalStorage
from tests.behaviour.tables import new_table


def test_a_new_table_on_a_disk_has_the_empty_folder_of_its_timeline_without_which_java_cannot_open_it(tmp_path: Path) -> None:
    new_table(LocalStorage(str(tmp_path / "t")))
    timeline = tmp_path / "t" / ".hoodie" / "timeline"
    assert timeline.is_dir() and not list(timeline.iterdir())
