"""A falsy argument is not an absent one, and a text that is no moment is none: the calls of the engine without Spark."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import date
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from tests.api import ArrowEngine, MemoryStorage
from tests.behaviour.tables import SCHEMA, new_table, writer

import lakelock
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


FRONT_DOOR = {
    "rows": [{"id": "b", "v": 2, "month": "1"}], "what": "id = 'x'", "set": {"v": "0"}, "where": "id = 'x'",
    "function": lambda tx: None, "schema": "id int, v int", "key": "id",
}  # fmt: skip
EMPTY_IS_TAKEN: dict[str, tuple[object, ...]] = {
    "rows": ([],), "what": ([],), "tag": ("",), "application": ("",), "settings": ({},), "listeners": ([],),
    "partition_by": ([],), "since": (0,), "until": (0,), "limit": (0,), "if_not_exists": (False,), "hive_style": (False,),
}  # fmt: skip


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_the_front_door_refuses_a_falsy_value_of_another_kind_before_any_work(table_type: str, tmp_path: Path) -> None:
    with lakelock.create(tmp_path / "t", schema=SCHEMA, key="id", partition_by="month", table_type=table_type) as table:
        table.insert(rows(("a", 1, "1")))
        block = table.transaction()
        tx = block.__enter__()
        calls: list[tuple[Callable[..., object], dict[str, object]]] = [
            *((getattr(table, name), {}) for name in dir(table) if name[0] != "_" and inspect.ismethod(getattr(table, name))),
            *((getattr(tx, name), {}) for name in ("read", "insert", "upsert", "delete", "update")),
            (lakelock.create, {"path": tmp_path / "new"}), (lakelock.open, {"path": tmp_path / "t"}),
            (lakelock.exists, {"path": tmp_path / "t"}), (partial(lakelock.transaction, table), {}),
        ]  # fmt: skip
        wrong, tried = [], 0
        for call, given in calls:
            parameters = inspect.signature(call).parameters
            needed = {name: FRONT_DOOR[name] for name in parameters if name in FRONT_DOOR and name not in given}
            for parameter in parameters.values():
                free = (*EMPTY_IS_TAKEN.get(parameter.name, ()), parameter.default)
                for value in VALUES:
                    if any(value == each and type(value) is type(each) for each in free):
                        continue
                    tried += 1
                    try:
                        if parameter.kind is parameter.VAR_POSITIONAL:
                            call(value)
                        else:
                            call(**{**given, **needed, parameter.name: value})
                        wrong.append(f"{call}({parameter.name}={value!r}) is taken")
                    except LakelockError as error:
                        if not error.hint:
                            wrong.append(f"{call}({parameter.name}={value!r}) has no hint")
        block.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
        assert wrong == [], "\n".join(wrong)
        assert tried > 250
        assert len(table.history()) == 1 and not lakelock.exists(tmp_path / "new")


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
