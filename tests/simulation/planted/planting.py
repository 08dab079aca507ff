"""Planted bugs: lines of the protocol that are knocked out one at a time, to prove that the checks would notice.

Each is an edit of the source of one production function, made in memory for as long as a block runs. An edit whose text is not
found exactly once is an error, so that a planted bug cannot silently stop being one when the code moves on.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from types import FunctionType

from tests.simulation.planted.kinds import ANY, Kind


@dataclass(frozen=True)
class Edit:
    """In `where` (module:function), `line` becomes `instead`."""

    where: str
    line: str
    instead: str

    @property
    def function(self) -> FunctionType:
        """The production function."""
        module_name, _, path = self.where.partition(":")
        module = import_module(f"lakelock.{module_name}")
        owner_name, _, name = path.rpartition(".")
        owner = getattr(module, owner_name) if owner_name else module
        return _function(owner.__dict__[name])

    @contextmanager
    def made(self) -> Iterator[None]:
        """While the block runs, the function does what the edited one does, for everybody who holds it."""
        function = self.function
        before = function.__code__
        function.__code__ = self._edited(function).__code__
        try:
            yield
        finally:
            function.__code__ = before

    def _edited(self, original: FunctionType) -> FunctionType:
        source = textwrap.dedent(inspect.getsource(original))
        if source.count(self.line) != 1:
            raise ValueError(
                f"a planted bug needs {self.line!r} once, and it is {source.count(self.line)} times in {self.where}"
            )
        source = "from __future__ import annotations\n" + source.replace(self.line, self.instead)
        made: dict[str, object] = {}
        exec(compile(source, f"<planted in {self.where}>", "exec"), original.__globals__, made)
        return _function(made[original.__name__])


@dataclass(frozen=True)
class Planted:
    """One line of the protocol that is knocked out, with the others (`also`) that would cover for it.

    `within` is the number of seeds, counted from 0, within which the simulator must find it; `seed` is one that did. Only seeds
    whose scenario is `among` the kind that brings this trouble count.
    """

    name: str
    what: str
    where: str
    line: str
    instead: str
    within: int = 500
    among: Kind = ANY
    seed: int | None = None
    also: tuple[Edit, ...] = ()

    @contextmanager
    def planted(self) -> Iterator[None]:
        """While the block runs, the bug is in the code."""
        with ExitStack() as stack:
            for edit in (Edit(self.where, self.line, self.instead), *self.also):
                stack.enter_context(edit.made())
            yield


def _function(held: object) -> FunctionType:
    """What a class method, a static method or a context manager is made of."""
    function = getattr(held, "__func__", getattr(held, "__wrapped__", held))
    assert isinstance(function, FunctionType)
    return function
