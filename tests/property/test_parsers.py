"""Every parser, given anybody's bytes: a value or a clear error, never another exception, never a path out of the table.

So are values that came out of a parser, and names: of the kind that was asked for, or refused.
"""

from __future__ import annotations

import contextlib
import gc
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.property.parsers import CRASHES, PARSERS, Parser
from tests.sizes import examples

from lakelock.errors import CorruptTableError, LakelockError, LockError, SettingsError, StorageError
from lakelock.markers.data_files import parse_marker
from lakelock.parsing import JsonObject
from lakelock.providers.dynamodb_table import LockItem
from lakelock.settings import Settings
from lakelock.storage.base import checked
from lakelock.table.instants import parse_file_name

SECONDS = examples(4, 8)
KEPT = sorted(path for path in CRASHES.glob("*/*") if path.is_file())

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([10**400, "..", "/etc/passwd", 2**63, -1])
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)
raw = st.binary(max_size=60) | st.sampled_from(
    [b"[" * 100_000, b'{"a":' * 50_000, b"1" * 5_000, b"a." * 3_000 + b"b = 1", b"\xef\xbb\xbf{}", b"\xff\xfe", b"{}"]
)
names = (st.text(max_size=60) | st.text("./\\%\0a=-_:@,?&#[]1 \t", max_size=40)).map(
    lambda found: found.encode("utf-8", "surrogatepass")
)
all_parsers = pytest.mark.parametrize("parser", PARSERS.values(), ids=PARSERS)
some = settings(max_examples=examples(25, 60), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@pytest.fixture(autouse=True, scope="module")
def no_garbage_collection() -> Iterator[None]:
    """Some inputs nest until Python's stack is full, where the finalizers of what other tests left behind would fail."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@all_parsers
def test_every_sample_of_a_parser_is_read(parser: Parser) -> None:
    for sample in parser.samples:
        parser.read(sample)


@all_parsers
@given(data=raw | names)
@some
def test_any_bytes_are_read_or_refused(parser: Parser, data: bytes) -> None:
    parser.judge(data)


@all_parsers
@given(data=st.data())
@some
def test_a_damaged_sample_is_read_or_refused(parser: Parser, data: st.DataObject) -> None:
    parser.judge(data.draw(st.sampled_from(parser.samples).flatmap(damaged)))


def damaged(sample: bytes) -> st.SearchStrategy[bytes]:
    """The sample with some bytes changed, put in or cut off; of a JSON object some fields changed."""
    place, piece = st.integers(0, len(sample)), st.binary(max_size=2) | st.sampled_from([b"/../", b"\0", b"//", b"9" * 40])

    def spliced(cuts: list[tuple[int, int, bytes]]) -> bytes:
        found = sample
        for start, length, put in cuts:
            found = found[:start] + put + found[start + length :]
        return found

    bytewise = st.lists(st.tuples(place, st.integers(0, 3), piece), max_size=4).map(spliced) | place.map(lambda n: sample[:n])
    try:
        fields: dict[str, Any] = json.loads(sample)
    except ValueError:
        return bytewise
    if not isinstance(fields, dict):
        return bytewise

    def changed(changes: dict[str, Any]) -> bytes:
        return json.dumps({name: changes.get(name, value) for name, value in fields.items()}).encode()

    return bytewise | st.dictionaries(st.sampled_from(sorted(fields) or ["x"]), values, max_size=3).map(changed)


@pytest.mark.parametrize("path", KEPT, ids=lambda path: f"{path.parent.name}-{path.name[:14]}")
def test_what_once_made_a_parser_fail_is_read_or_refused(path: Path) -> None:
    data = path.read_bytes()
    PARSERS[path.parent.name].judge(data)


def test_the_judge_lets_only_the_announced_errors_pass() -> None:
    def fails(data: bytes) -> object:
        raise KeyError(data)

    with pytest.raises(KeyError):
        Parser("x", fails, (LakelockError,), ()).judge(b"")


@pytest.mark.in_ci
@pytest.mark.skipif(
    find_spec("atheris") is None, reason="needs atheris, which has wheels for Python 3.10 to 3.13 on Linux x86-64"
)
def test_a_short_run_of_the_fuzzer_finds_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.property.fuzz", "all", "--seconds", str(SECONDS), "--crashes", str(tmp_path)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    inputs = int(done.stdout.split()[1])
    assert inputs > len(PARSERS), done.stdout


@given(st.dictionaries(st.sampled_from(["n", "t"]), values))
def test_a_field_is_what_was_asked_for_or_a_value_error(fields: dict[str, Any]) -> None:
    found = JsonObject(fields)
    with contextlib.suppress(ValueError):
        assert abs(found.integer("n")) <= 2**63
    with contextlib.suppress(ValueError):
        assert abs(found.number("n")) < float("inf")
    with contextlib.suppress(ValueError):
        assert isinstance(found.text("t"), str)


@given(st.text(max_size=60) | st.text("./\\%\0a=-_", max_size=30))
def test_a_name_in_the_table_never_leads_out_of_it(name: str) -> None:
    parse_file_name(name)
    with contextlib.suppress(CorruptTableError):
        marker = parse_marker(name, "m")
        checked(f"{marker.partition}/x" if marker.partition else "x")
    with contextlib.suppress(StorageError):
        assert not {"", ".", ".."} & set(checked(name).split("/"))


attributes = st.dictionaries(
    st.sampled_from(["key", "ownerName", "leaseDuration", "recordVersionNumber", "isReleased", "token", "writer"]),
    st.dictionaries(st.sampled_from(["S", "N", "B", "NULL"]), st.text(max_size=8), max_size=1),
)


@given(attributes)
def test_an_item_of_another_lock_client_is_read(item: dict[str, dict[str, str]]) -> None:
    with contextlib.suppress(LockError):
        assert LockItem.parse(item).lease_s >= 0


@given(
    st.dictionaries(
        st.sampled_from(["lock.wait_s", "lock.provider", "lock.options.wait_replicas", "write.row_group_rows", "x"]), scalars
    )
)
def test_an_option_of_any_kind_is_taken_or_refused(options: dict[str, object]) -> None:
    with contextlib.suppress(SettingsError):
        Settings.resolve(options)
