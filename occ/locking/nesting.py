"""A function that runs in a transaction may not begin another one on the same table, and a block may not wait for itself.

The inner one would be committed whether or not the outer one is, and again with every attempt; and where both want the same
file group, the inner one would wait for the outer one, which waits for it. A block (`with table.transaction()`) runs once, so
within it another write is allowed, as long as the two do not collide.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from lakelock.errors import TransactionStateError

_running: ContextVar[tuple[str, ...]] = ContextVar("tables_of_running_functions", default=())
"""The tables whose functions are running in this thread."""

_blocks: ContextVar[tuple[str, ...]] = ContextVar("instants_of_open_blocks", default=())
"""The instants of the transactions in whose blocks this thread is."""


@contextmanager
def block_of(instant: str) -> Iterator[None]:
    """A block that is a transaction: what this thread writes otherwise does not wait for it."""
    _blocks.set((*_blocks.get(), instant))
    try:
        yield
    finally:
        _blocks.set(tuple(each for each in _blocks.get() if each != instant))


def is_open_here(instant: str) -> bool:
    """Whether this thread is in the block of the transaction with this instant, which would wait for its own end."""
    return instant in _blocks.get()


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
