"""A function that runs in a transaction may not begin another one on the same table.

The inner one would be committed whether or not the outer one is, and again with every attempt; and where both want the same
file group, the inner one would wait for the outer one, which waits for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from lakelock.errors import TransactionStateError

_running: ContextVar[tuple[str, ...]] = ContextVar("tables_of_running_functions", default=())
"""The tables whose functions are running in this thread."""


@contextmanager
def running_on(uri: str) -> Iterator[None]:
    """A block in which this thread begins no transaction on the table."""
    token = _running.set((*_running.get(), uri))
    try:
        yield
    finally:
        _running.reset(token)


def refuse_nested(operation: str, uri: str) -> None:
    """`TransactionStateError` if a function that is running in this thread is a transaction on this table already."""
    if uri in _running.get():
        raise TransactionStateError(
            f"{operation} on {uri} would be a transaction of its own within the function of another one on this table",
            hint="write with the transaction that the function is given: it is committed as one, when the function returns",
        )
