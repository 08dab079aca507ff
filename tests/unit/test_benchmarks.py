"""`make bench`: what it runs, and what it makes of the page."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
with pytest.MonkeyPatch.context() as patch:  # benchmarks are programs of the source tree, and not installed
    patch.syspath_prepend(str(ROOT))
    from benchmarks.__main__ import BENCHMARKS, PAGE, line_of, peers, replaced, small_changes


def test_each_benchmark_is_a_program_with_one_line_on_the_page() -> None:
    page = PAGE.read_text()
    for each in BENCHMARKS:
        assert (ROOT / "benchmarks" / f"{each.name}.py").exists()
        assert page.count(f"\n| `{each.name}` |") == 1, each.name


def test_a_line_of_the_page_shows_figures_and_what_became_of_the_target() -> None:
    (upsert,) = [each for each in BENCHMARKS if each.name == "upsert"]
    found: dict[str, object] = {"ratio": 0.26, "upsert_wall_s": 2.4, "join_wall_s": 9.3, "ratio_of_cpu": 0.3}
    line = line_of(upsert, [{**found, "target": "ratio <= 0.29: reached"}])
    assert line.endswith("| ratio <= 0.29: reached | 0.26 (2.4 s; 9.3 s), 0.30 in CPU |")


def test_peers_are_compared_with_lakelock_on_the_same_engine() -> None:
    kinds = {"insert": 1.0, "upsert": 2.0, "insert_one": 0.1, "upsert_two": 0.2}
    ours = {f"lakelock_{kind}{unit}": seconds for kind, seconds in kinds.items() for unit in ("_s", "_cpu_s")}
    theirs = {name.replace("lakelock", "delta_rs"): seconds * 3 for name, seconds in ours.items()}
    table = peers({**ours, **theirs}).splitlines()
    assert table[2].startswith("| lakelock without Spark | 1.00 s, 1.00 of CPU |")
    assert table[3].startswith("| delta-rs | 3.00 s, 3.00 of CPU: 3.0 and 3.0 times |")
    assert replaced(PAGE.read_text(), "peers", "x").count("\nx\n") == 1


def test_small_changes_have_a_row_for_each_peer_and_size() -> None:
    costs = {"bytes": 2048, "cpu_s": 0.5, "wall_s": 1.5, "read_cpu_s_0": 0.1, "read_cpu_s_1": 0.2, "read_cpu_s_compacted": 0.3}
    table = small_changes({f"java_hudi_few_{name}": value for name, value in costs.items()}).splitlines()
    assert table[2:] == ["| Java Hudi | few | 2 | 0.50 | 1.50 | 0.10, 0.20 | 0.30 |"]
    assert replaced(PAGE.read_text(), "merge_on_read_peers", "x").count("\nx\n") == 1
