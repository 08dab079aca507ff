"""Who is writing, as records keep it."""

from __future__ import annotations

from dataclasses import replace

from tests.api import SystemRuntime, WriterIdentity

import lakelock


def test_a_writer_tells_the_version_of_lakelock_that_it_runs() -> None:
    mine = WriterIdentity.of_this_process(SystemRuntime(), "nightly")
    assert mine.version == lakelock.__version__
    assert WriterIdentity.from_dict(mine.as_dict()) == mine


def test_a_writer_from_before_the_version_was_told_is_read_and_written_on_as_it_was() -> None:
    older = replace(WriterIdentity.of_this_process(SystemRuntime()), version="")
    assert "version" not in older.as_dict()
    assert WriterIdentity.from_dict(older.as_dict()) == older
