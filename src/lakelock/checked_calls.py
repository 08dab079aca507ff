"""Calls of public methods, checked before any work: an argument is of the kind that its annotation says, and no empty text.

A value of the wrong kind is never taken for one that was left out: 0, "" and [] mean themselves, or are an `InputError`.
A name that another library has is an `AttributeError` that says what to type instead (`NamesElsewhere`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import date, datetime
from enum import Enum
from functools import cache, wraps
from numbers import Real
from pathlib import PurePath
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    NoReturn,
    SupportsIndex,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from lakelock.errors import InputError
from lakelock.texts import did_you_mean

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])

_CHECKED = "__checked_call__"
_TIME = 'an instant, such as result.instant, or a time in UTC: "2026-11-21 09:27"'
_HINTS: Mapping[str, str] = {
    "as_of": f"as_of takes {_TIME}; table.history() lists the instants",
    "since": f'since takes 0 for all that is kept, a _commit_version, {_TIME}: table.changes(0, feed="commits")',
    "until": f"until takes a _commit_version, {_TIME}",
    "partition": 'write for example partition="month=1" or {"month": 1}; leave it out for the whole table',
    "where": 'give a condition, such as "month = 1"; leave it out for all rows',
    "on": 'give a condition, "target.id = source.id", or the columns to be equal, "id" or ["id", "day"]',
    "query_type": "use snapshot, or read_optimized for base files only (merge-on-read); changes(since) gives changed rows",
    "schema": 'give the columns, "id bigint, name string", a pyarrow.Schema, or a data frame of Spark',
    "what": 'give a condition, such as "month = 1", or rows with the keys; without either every row is deleted',
    **dict.fromkeys(("add.columns", "widen.columns"), 'give columns and their types: {"note": "string"}'),
    "rename.columns": 'give old and new names: {"price": "cost"}',
    "tag": "give a text for the history, or leave it out",
    "options": 'settings of lakelock are given by their names here: options={"lock.wait_s": 5}',
    "settings": 'settings of lakelock are given by their names: settings={"lock.wait_s": 5}',
}
"""What to type, by the name of the parameter."""
_ELSEWHERE: Mapping[str, str] = {
    "version": "as_of",
    "versionAsOf": "as_of",
    "timestampAsOf": "as_of",
    "timestamp": "as_of",
    "startingVersion": "since",
    "startingTimestamp": "since",
    "endingVersion": "until",
    "endingTimestamp": "until",
    "settings": "options",
    "options": "settings",
}
"""Names of parameters that others have, and ours."""
_WORDS: Mapping[type, str] = {
    str: "a text",
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    datetime: "a datetime",
    Mapping: "a mapping",
    Sequence: "a list",
    PurePath: "a path",
}
_LONGEST_SHOWN = 100
_OWN_CHECK = frozenset({"DataFrame", "SparkSession", "LakeTable", "Table"})
_OWN_NAMES = frozenset({"txn_app_id", "txn_version", "function", "set", "values", "feed"})
"""Types and parameters of which the methods themselves say better what they take instead."""


def checked_calls(cls: C) -> C:
    """A class whose public methods are `checked`, those that it does not inherit."""
    for name, found in list(vars(cls).items()):
        if name.startswith("_"):
            continue
        if isinstance(found, classmethod):
            setattr(cls, name, classmethod(checked(found.__func__)))
        elif inspect.isfunction(found):
            setattr(cls, name, checked(found))
    return cls


def checked(method: F) -> F:
    """A function that raises `InputError`, which says what to type, for arguments that it does not take."""
    if hasattr(method, _CHECKED):
        return method
    signature, name_of_call = inspect.signature(method), method.__name__
    if name_of_call == "__call__":  # of a group of calls, such as `table.locks`
        name_of_call = method.__qualname__.split(".")[0].lower()
    hints = cache(lambda: get_type_hints(method))

    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        _require_named(name_of_call, signature, args, kwargs)
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            parameter = signature.parameters[name]
            for each in value if parameter.kind is parameter.VAR_POSITIONAL else (value,):
                _require_kind(name_of_call, parameter, hints().get(name, Any), each)
        return method(*args, **kwargs)

    setattr(call, _CHECKED, True)
    return call  # type: ignore[return-value]


def _require_named(method: str, signature: inspect.Signature, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
    """`InputError` for arguments that the signature does not have, and for those that it needs and did not get."""
    parameters = signature.parameters
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        shown = str(signature.replace(return_annotation=signature.empty, parameters=_shown_parameters(parameters)))
        unknown = [name for name in kwargs if name not in parameters]
        given = list(parameters)[: len(args)]
        missing = [
            name for name, each in parameters.items() if each.default is each.empty and name not in kwargs and name not in given
        ]
        if unknown:
            ours = _ELSEWHERE.get(unknown[0])
            said = f"{method} has no argument {unknown[0]!r}" + ("" if ours else did_you_mean(unknown[0], parameters))
            hint = _HINTS[ours] if ours and ours in parameters else f"its arguments are {method}{shown}"
        elif missing and len(args) <= len(given):
            said = f"{method} was called without {', '.join(missing)}"
            hint = _HINTS.get(missing[0], f"its arguments are {method}{shown}")
        else:
            said = f"{method}: {error}"
            hint = f"name the arguments after the first: {method}{shown}"
            if method in ("insert", "upsert") and len(args) == 3 and "df" in parameters:  # and a batch_id
                hint = f"for foreachBatch there is table.{method}_batch; elsewhere {hint}"
        raise InputError(said, hint=hint) from None


def _shown_parameters(parameters: Mapping[str, inspect.Parameter]) -> list[inspect.Parameter]:
    return [each.replace(annotation=each.empty) for name, each in parameters.items() if name not in ("self", "cls")]


def _require_kind(method: str, parameter: inspect.Parameter, hint: Any, value: object) -> None:
    name = parameter.name
    if value is parameter.default or name in _OWN_NAMES:
        return
    advice = _HINTS.get(f"{method}.{name}") or _HINTS.get(name, f"{name} takes {_words(hint)}")
    if not _fits(hint, value):
        if isinstance(value, date):
            advice += f"; here perhaps {value.isoformat()!r}"
        instant = getattr(value, "instant", None)  # of a result, or of an entry of the history
        if isinstance(instant, str):
            advice += f"; here perhaps {name}={instant!r}"
        shown = repr(value) if len(repr(value)) <= _LONGEST_SHOWN else f"{repr(value)[:_LONGEST_SHOWN]}…"
        raise InputError(f"{method}: {name} is {shown}, of the type {type(value).__name__}", hint=advice)
    if isinstance(value, str) and not value.strip() and parameter.default != "":
        optional = parameter.default is not parameter.empty and name != "what"
        raise InputError(
            f"{method}: {name} is an empty text", hint=advice + ("; leave it out where there is none" if optional else "")
        )


def _fits(hint: Any, value: object) -> bool:
    """Whether the value is of the kind; True where the annotation does not tell."""
    kind, inner = get_origin(hint), get_args(hint)
    if kind in (Union, UnionType):
        return any(_fits(each, value) for each in inner)
    if kind is Literal:
        return any(type(value) is type(each) and value == each for each in inner)
    if hint is None or hint is NoneType:
        return value is None
    if hint is bool:
        return isinstance(value, bool)
    if hint is int:
        return isinstance(value, SupportsIndex) and not isinstance(value, bool)
    if hint is float:
        return isinstance(value, Real) and not isinstance(value, bool)
    plain = kind or hint
    if plain is Any or not isinstance(plain, type) or plain.__name__ in _OWN_CHECK or getattr(plain, "_is_protocol", False):
        return True
    if issubclass(plain, Mapping):
        return isinstance(value, Mapping) and (not inner or all(_fits(inner[0], each) for each in value))
    if plain in (Sequence, list, tuple):
        if not isinstance(value, Collection) or isinstance(value, str | bytes | Mapping):
            return False
        return not inner or all(_fits(inner[0], each) for each in value)
    if plain.__name__ == "Callable":
        return callable(value)
    return isinstance(value, plain)


def _words(hint: Any) -> str:
    """What an annotation takes, in words."""
    if hint is Any:
        return "a value"
    kind, inner = get_origin(hint), get_args(hint)
    if kind in (Union, UnionType):
        kinds = list(dict.fromkeys(_words(each) for each in inner if each is not NoneType))
        return " or ".join([", ".join(kinds[:-1]), kinds[-1]] if len(kinds) > 1 else kinds)
    if kind is Literal:
        return " or ".join(repr(each) for each in inner)
    plain = kind or hint
    if not isinstance(plain, type):
        return "a function" if plain is Callable else f"a {plain}"
    if issubclass(plain, Enum):
        return " or ".join(str(each) for each in plain)
    return next((words for each, words in _WORDS.items() if issubclass(plain, each)), f"a {plain.__name__}")


class _ToldByClass(type):
    """So that `LakeTable.isDeltaTable` says what to type, too."""

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> NoReturn:
            _unknown(name, cls, cls)


class NamesElsewhere(metaclass=_ToldByClass):
    """A class of which users may type the names that another library has: its error says what to type, as `_instead` has it."""

    _instead: ClassVar[Mapping[str, str]] = {}

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            _unknown(name, self, type(self))


def _unknown(name: str, owner: object, kind: type[NamesElsewhere]) -> NoReturn:
    instead = kind._instead.get(name)
    raise AttributeError(f"{kind.__name__} has no {name!r}" + (f"; next: {instead}" if instead else ""), name=name, obj=owner)
