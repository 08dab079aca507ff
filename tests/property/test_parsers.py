"""Every parser, given anybody's bytes: a value or a clear error, never another exception, never a path out of the table."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakelock.errors import LakelockError
from tests.property.parsers import CRASHES, PARSERS, Parser
from tests.property.test_hostile_bytes import values

SECONDS = 8
KEPT = sorted(path for path in CRASHES.glob("*/*") if path.is_file())

raw = st.binary(max_size=60) | st.sampled_from(
    [b"[" * 100_000, b'{"a":' * 50_000, b"1" * 5_000, b"a." * 3_000 + b"b = 1", b"\xef\xbb\xbf{}", b"\xff\xfe", b"{}"]
)
names = (st.text(max_size=60) | st.text("./\\%\0a=-_:@,?&#[]1 \t", max_size=40)).map(
    lambda found: found.encode("utf-8", "surrogatepass")
)
all_parsers = pytest.mark.parametrize("parser", PARSERS.values(), ids=PARSERS)
some = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


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


@pytest.mark.skipif(
    find_spec("atheris") is None, reason="needs atheris, which has wheels for Python 3.10 to 3.13 on Linux x86-64"
)
def test_a_short_run_of_the_fuzzer_finds_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.property.fuzz", "all", "--seconds", str(SECONDS), "--crashes", str(tmp_path)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    inputs = int(done.stdout.split()[1])
    assert inputs > len(PARSERS), done.stdout
