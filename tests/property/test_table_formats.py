"""Formats survive the round trip, and no bytes at all make a parser fail in another way than by saying so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.api import (
    Action,
    CommitMetadata,
    DataFile,
    FileGroupId,
    Instant,
    State,
    TableProperties,
    Timeline,
    WriteStat,
    format_instant,
    layout,
    parse_instant,
)

from lakelock.errors import CorruptTableError, SchemaError
from lakelock.parsing import format_java_properties, parse_java_properties
from lakelock.storage import Listed
from lakelock.table.avro import ROLLBACK_PLAN, decode, encode
from lakelock.table.commit_metadata import RuntimeStats
from lakelock.table.instants import completes_as, later_than, parse_file_name
from lakelock.table.partitions import DEFAULT_PARTITION, partition_path, partition_paths, unescape
from lakelock.table.snapshot import Snapshot

LAST_MS = 253_402_300_799_999
moments = st.integers(0, LAST_MS)
times = moments.map(format_instant)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1, max_size=12).filter(
    lambda name: name not in (".", "..", ".hoodie")
)
partitions = st.lists(names, max_size=3).map("/".join)
longs = st.none() | st.integers(-(2**63), 2**63 - 1)


@st.composite
def instants(draw: st.DrawFn) -> Instant:
    action = draw(st.sampled_from(Action))
    state = draw(st.sampled_from(State))
    if state is State.COMPLETED:
        return Instant(draw(times), completes_as(action), state, draw(times))
    return Instant(draw(times), action, state)


@st.composite
def write_stats(draw: st.DrawFn, partition: str) -> WriteStat:
    file_id = draw(names)
    path = draw(st.none() | names.map(lambda name: layout.in_partition(partition, name)))
    numbers: dict[str, Any] = draw(
        st.fixed_dictionaries(
            {}, optional=dict.fromkeys(("num_writes", "file_size_bytes", "max_event_time", "log_offset"), longs)
        )
    )
    return WriteStat(
        file_id,
        path,
        draw(st.sampled_from(["null", None, "20261121092737397"])),
        partition_path=partition,
        log_version=draw(st.none() | st.integers(-(2**31), 2**31 - 1)),
        log_files=draw(st.none() | st.lists(text, max_size=2).map(tuple)),
        cdc_stats=draw(st.none() | st.dictionaries(text, st.integers(0, 9), max_size=2)),
        runtime=draw(st.none() | st.builds(RuntimeStats, longs, longs, longs)),
        temp_path=draw(st.none() | text),
        **numbers,
    )


@st.composite
def commits(draw: st.DrawFn) -> CommitMetadata:
    stats = {
        partition: tuple(draw(st.lists(write_stats(partition), max_size=3)))
        for partition in draw(st.lists(partitions, max_size=3, unique=True))
    }
    replaced = st.dictionaries(partitions, st.lists(names, max_size=2).map(tuple), max_size=2)
    return CommitMetadata(
        stats,
        draw(st.none() | text),
        draw(st.dictionaries(text, text, max_size=3)),
        draw(st.none() | replaced),
        draw(st.sampled_from([None, False, True])),
    )


@given(moments)
def test_instant_times_survive_and_sort_as_the_fewdo(ms: int) -> None:
    assert parse_instant(format_instant(ms)) == ms
    assert ms == LAST_MS or format_instant(ms) < format_instant(ms + 1)


@given(moments, st.none() | st.just("") | times)
def test_a_later_instant_is_later(now_ms: int, newest: str | None) -> None:
    assume(newest != format_instant(LAST_MS))
    found = later_than(now_ms, newest)
    assert found > (newest or "") and parse_instant(found) >= now_ms
    assert found == format_instant(now_ms) or (newest and parse_instant(found) == parse_instant(newest) + 1)


@given(instants())
def test_instants_survive_their_file_name(instant: Instant) -> None:
    assert parse_file_name(instant.file_name) == instant


@given(st.text(alphabet="0123456789._comitrequsdfglxn\n", max_size=60) | text)
def test_a_file_name_is_an_instant_only_if_the_instant_has_that_name(name: str) -> None:
    instant = parse_file_name(name)
    assert instant is None or instant.file_name == name


@given(st.lists(instants(), max_size=12))
def test_a_timeline_does_not_depend_on_the_order_of_its_listing(found: list[Instant]) -> None:
    listing = [Listed(layout.timeline(instant.file_name), 1, 0) for instant in found]
    timeline = Timeline.from_listing(listing)
    assert timeline == Timeline.from_listing(reversed(listing)) == Timeline.from_listing(listing * 2)
    states = {(i.requested, i.action): i.state for i in timeline.instants}
    assert len(states) == len(timeline.instants)
    for instant in found:
        after = states.get((instant.requested, instant.action))
        assert (after is not None and after >= instant.state) or states[instant.requested, completes_as(instant.action)] == 2
    assert all(i.requested <= timeline.newest_time and (i.completion or "") <= timeline.newest_time for i in timeline.instants)
    assert all(timeline.is_visible(instant) for instant in timeline.completed_instants)
    assert not any(timeline.is_visible(i.requested) for i in timeline.pending if i.requested not in timeline.completed_instants)


def reads_or_refuses(call: Callable[[], object]) -> bool:
    """Whether the call worked, or refused its input with the one error that names the file."""
    try:
        call()
    except CorruptTableError as error:
        return bool(error.details["file"])
    return True


@given(st.dictionaries(text, text, max_size=6))
def test_properties_survive_writing(entries: dict[str, str]) -> None:
    data = format_java_properties(entries, ("note", "another"))
    assert data.isascii() and parse_java_properties(data, "x") == entries


@given(commits())
@settings(max_examples=60)
def test_commit_metadata_survives_writing(metadata: CommitMetadata) -> None:
    data = metadata.to_bytes()
    found = CommitMetadata.from_bytes(data)
    assert found == metadata and found.to_bytes(data[-16:]) == data


@given(st.binary(max_size=40))
def test_a_record_of_any_bytes_is_read_or_refused(body: bytes) -> None:
    data = encode(ROLLBACK_PLAN, {"instantToRollback": None, "RollbackRequests": None, "version": 1}, b"s" * 16)
    start = len(ROLLBACK_PLAN.header) + 16
    assert len(body) < 64 and data[start:] == b"\x02" + bytes([8]) + data[start + 2 : start + 6] + b"s" * 16
    framed = data[:start] + b"\x02" + bytes([2 * len(body)]) + body + b"s" * 16
    assert reads_or_refuses(lambda: decode(framed, "x", ROLLBACK_PLAN))


values = st.none() | text


@given(st.lists(values, min_size=1, max_size=3), st.booleans())
def test_escaped_partition_paths_give_their_values_back(row: list[str | None], hive_style: bool) -> None:
    fields = ("a", "b", "c")[: len(row)]
    try:
        path = partition_path(row, fields, hive_style=hive_style, url_encode=True)
    except SchemaError:
        outside = not hive_style and any(value in (".", "..", ".hoodie") for value in row)
        assert outside or "" in row or DEFAULT_PARTITION in row
        return
    assert path.count("/") == len(row) - 1
    given = [unescape(part.partition("=")[2] if hive_style else part) for part in path.split("/")]
    assert given == [DEFAULT_PARTITION if value is None else value for value in row]


@given(st.lists(st.tuples(values, st.none() | st.integers(-3, 3)), max_size=20), st.booleans(), st.booleans())
def test_a_tables_paths_are_those_of_its_rows(
    rows: list[tuple[str | None, int | None]], hive_style: bool, url_encode: bool
) -> None:
    properties = TableProperties.new("t", ["id"], ["a", "b"], hive_style=hive_style, url_encode=url_encode)
    table = pa.table({"a": pa.array([a for a, _ in rows], pa.string()), "b": pa.array([b for _, b in rows], pa.int32())})

    def one_by_one() -> list[str]:
        texts = [[a, None if b is None else str(b)] for a, b in rows]
        return [partition_path(row, ("a", "b"), hive_style=hive_style, url_encode=url_encode) for row in texts]

    try:
        expected = one_by_one()
    except SchemaError:
        with pytest.raises(SchemaError):
            partition_paths(table, properties)
    else:
        assert partition_paths(table, properties).to_pylist() == expected


History = tuple[list[Instant], list[DataFile], dict[FileGroupId, str]]


@st.composite
def histories(draw: st.DrawFn) -> History:
    few = [format_instant(n) for n in range(1, 8)]
    found = [
        Instant(at, Action.COMMIT, State.COMPLETED, at) if draw(st.booleans()) else Instant(at, Action.COMMIT, State.INFLIGHT)
        for at in draw(st.lists(st.sampled_from(few), unique=True))
    ]
    groups = st.sampled_from(["", "p"]), st.sampled_from(["a", "b"])
    file = st.builds(DataFile, *groups, st.just("0-0-0"), st.sampled_from(few), st.just(1), st.just(()))
    replaced = st.dictionaries(st.sampled_from([FileGroupId("p", "a"), FileGroupId("", "b")]), st.sampled_from(few))
    return found, draw(st.lists(file, unique=True)), draw(replaced)


@given(histories())
def test_a_snapshot_is_what_the_rule_says_file_by_file(
    history: tuple[list[Instant], list[DataFile], dict[FileGroupId, str]],
) -> None:
    found, files, replaced = history
    completed = {i.requested for i in found if i.is_completed}
    pending = {i.requested for i in found} - completed
    first = min((i.requested for i in found), default="") if completed else ""

    def counts(instant: str) -> bool:
        return instant in completed or (instant not in pending and instant < first)

    expected = {
        file
        for file in files
        if counts(file.instant)
        and not any(other.group == file.group and counts(other.instant) and other.instant > file.instant for other in files)
        and not (file.group in replaced and counts(replaced[file.group]))
    }
    listing = [Listed(file.key, file.size_bytes, 0) for file in files]
    snapshot = Snapshot.of(Timeline.of(found), listing, replaced)
    assert set(snapshot.files) == expected and list(snapshot.files) == sorted(expected)
