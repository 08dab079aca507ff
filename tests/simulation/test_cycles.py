"""Serializability by what transactions saw: known anomalies are found and named, serial histories are not accused."""

from __future__ import annotations

from tests.simulator.checking.cycles import Seen, anomalies, edges, find_cycle

ALL = frozenset(range(1, 10))


def test_a_serial_history_has_no_anomaly() -> None:
    history = [
        Seen(2, {"a": (1,), "b": (1,)}, frozenset("ab")),
        Seen(3, {"b": (1, 2), "c": (1,)}, frozenset("bc")),
        Seen(9, {"a": (1, 2), "b": (1, 2, 3), "c": (1, 3)}),
    ]
    assert anomalies(history, ALL) == []


def test_a_lost_update_shows_as_incompatible_orders() -> None:
    history = [Seen(2, {"a": (1,)}, frozenset("a")), Seen(3, {"a": (1,)}, frozenset("a"))]
    assert any(found.startswith("incompatible orders: a") for found in anomalies(history, ALL))


def test_write_skew_is_a_cycle_of_two_anti_dependencies() -> None:
    history = [Seen(2, {"a": (1,), "b": (1,)}, frozenset("a")), Seen(3, {"a": (1,), "b": (1,)}, frozenset("b"))]
    (found,) = anomalies(history, ALL)
    assert found == "cycle: 2 -rw b-> 3, 3 -rw a-> 2"


def test_a_reader_between_two_parts_of_one_transaction_is_a_cycle() -> None:
    history = [Seen(2, {"a": (1,), "b": (1,)}, frozenset("ab")), Seen(9, {"a": (1, 2), "b": (1,)})]
    (found,) = anomalies(history, ALL)
    assert found == "cycle: 2 -wr a-> 9, 9 -rw b-> 2"


def test_reading_what_never_committed_is_an_aborted_read() -> None:
    assert anomalies([Seen(9, {"a": (1, 4)})], frozenset({1, 9})) == ["aborted read: 9 saw a as [1, 4], and 4 is not committed"]


def test_the_shortest_cycle_is_shown() -> None:
    long = [Seen(n, {f"k{n}": (1,), f"k{n % 4 + 2}": (1,)}, frozenset({f"k{n}"})) for n in (2, 3, 4, 5)]
    history = [*long, Seen(6, {"x": (1,), "y": (1,)}, frozenset("x")), Seen(7, {"x": (1,), "y": (1,)}, frozenset("y"))]
    versions = {(key, 1): (1, seen.transaction) for seen in history for key in seen.wrote}
    assert len(find_cycle(edges(history, versions))) == 2
