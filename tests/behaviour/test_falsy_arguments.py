"""A falsy argument is not an absent one, and a text that is no moment is none: the calls of the engine without Spark."""

from __future__ import annotations

import inspect
from contextlib import AbstractContextManager
from datetime import date

import pyarrow as pa
import pytest
from tests.api import ArrowEngine, MemoryStorage
from tests.behaviour.tables import SCHEMA, new_table, writer

from lakelock.errors import InputError, LakelockError


def rows(*values: tuple[str, int, str]) -> pa.Table:
    return pa.table([list(column) for column in zip(*values, strict=True)], schema=SCHEMA)


@pytest.fixture
def engine() -> ArrowEngine:
    storage = MemoryStorage()
    new_table(storage)
    return ArrowEngine(writer(storage))


VALUES = (0, "", [], {}, False, date(2026, 11, 20))
CALLS = (
    "insert", "upsert", "delete", "delete_where", "delete_keys", "overwrite_partitions", "run", "optimize", "restore", "read",
    "changes", "reading",
)  # fmt: skip
EMPTY_IS_NONE = (("changes", "since", 0), ("changes", "until", 0), ("optimize", "sort_by", []))
NEEDED = {
    "rows": rows(("a", 1, "1")), "what": rows(("a", 1, "1")).select(["id", "month"]), "as_of": "2026-11-20",
    "keys": rows(("a", 1, "1")).select(["id", "month"]), "function": lambda tx: None,
}  # fmt: skip


def taken(call: str, parameter: inspect.Parameter, value: object) -> bool:
    return (
        any((call, parameter.name) == each[:2] and value == each[2] and type(value) is type(each[2]) for each in EMPTY_IS_NONE)
        or (value == "" and parameter.name == "tag")
        or parameter.name in ("rows", "what", "keys", "condition")
    )


def test_every_parameter_refuses_a_falsy_value_of_another_kind_before_any_work(engine: ArrowEngine) -> None:
    engine.insert(rows(("a", 1, "1")))
    before, wrong = engine.coordinator.table.timeline().instants, []
    hints: list[str] = []
    for name in CALLS:
        call = getattr(engine, name)
        parameters = inspect.signature(call).parameters
        required = {each: NEEDED[each] for each, found in parameters.items() if found.default is found.empty and each in NEEDED}
        for parameter in parameters.values():
            for value in VALUES:
                if taken(name, parameter, value):
                    continue
                try:
                    found = call(**{**required, parameter.name: value})
                    if isinstance(found, AbstractContextManager):
                        with found:
                            pass
                    wrong.append(f"{name}({parameter.name}={value!r}) is taken")
                except LakelockError as error:
                    hints.append(error.hint)
    assert wrong == [], "\n".join(wrong)
    assert all(hints)
    assert engine.coordinator.table.timeline().instants == before


@pytest.mark.parametrize("text", ["yesterday", "2026-13-01", "20261399000000000"])
def test_a_text_that_is_no_moment_is_refused(engine: ArrowEngine, text: str) -> None:
    engine.insert(rows(("a", 1, "1")))
    for call in (engine.read, engine.restore, engine.changes, lambda until: engine.changes(until=until)):
        with pytest.raises(InputError, match="neither an instant time nor a date and time"):
            call(text)


def test_a_time_is_taken_where_an_instant_is(engine: ArrowEngine) -> None:
    done = engine.insert(rows(("a", 1, "1")))
    engine.insert(rows(("b", 2, "1")))
    assert engine.read("1999-01-01 00:00").num_rows == 0
    assert engine.read(done.instant).num_rows == 1
    assert engine.changes("1999-01-01").num_rows == 2
