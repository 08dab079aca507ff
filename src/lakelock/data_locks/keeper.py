"""Data locks for a write that outlives each process of its engine: a keeper process holds them until the write has ended.

The process that plans the write starts the keeper and waits until it has the locks (`keeping`). Then it says which heartbeat
is the write's, and may end. The process that ends the write, any one of the same host and user, has the locks given back
(`KeptLocks`).
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from lakelock.data_locks.base import LockRequest
from lakelock.errors import LakelockError, LockError
from lakelock.identity import WriterIdentity
from lakelock.settings import Settings
from lakelock.storage.location import StorageLocation

_MODULE = "lakelock.data_locks.keeper_process"
GONE = "the process that kept them is gone"


@dataclass(frozen=True)
class KeeperOrder:
    """What a keeper is to hold, and for which writer. It gives up when the process `owner_pid`, Spark, ends: so does the write.

    It contains secrets, so it is sent through a pipe.
    """

    location: StorageLocation
    settings: Settings
    request: LockRequest
    writer: WriterIdentity
    owner_pid: int


@dataclass(frozen=True)
class SignOfLife:
    """The write's heartbeat file. Once it is gone, or silent for `limit_s`, the write cannot be committed any more."""

    key: str
    limit_s: float


@dataclass(frozen=True)
class KeptLocks:
    """Granted locks that a keeper holds; plain values, for any process on its host. `address` is the keeper's socket."""

    address: str
    token: int
    waited_s: float
    answer_within_s: float

    def release(self) -> str:
        """Have the locks given back; "" once they are, otherwise why they were lost before. Never raises."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
                line.settimeout(self.answer_within_s)
                line.connect(self.address)
                answer = line.makefile("rb").readline()
        except TimeoutError:
            return f"the process that keeps them did not answer within {self.answer_within_s:g} s"
        except OSError:
            return GONE
        return str(json.loads(answer)["lost"]) if answer else GONE


class Keeping:
    """A keeper that has the locks; `handed_over` tells it which write they are for."""

    def __init__(self, process: subprocess.Popen[bytes], locks: KeptLocks) -> None:
        self.locks = locks
        self._process = process
        self.is_handed_over = False

    def handed_over(self, sign: SignOfLife) -> KeptLocks:
        """Leave the locks to the keeper until the write has ended. Never raises: that a keeper is gone shows at the end."""
        self.is_handed_over = True
        with suppress(OSError):
            _send(self._process, sign)
        return self.locks


@contextmanager
def keeping(order: KeeperOrder) -> Iterator[Keeping]:
    """Start a keeper and wait until it has the locks; raises what `DataLocks.acquire` raises.

    When the block ends, or this process does, before the locks are handed over, the keeper gives them back.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", _MODULE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=_environment(),
        start_new_session=True,
    )
    kept: Keeping | None = None
    try:
        kept = Keeping(process, _granted(process, order))
        yield kept
    finally:
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        if kept is None or not kept.is_handed_over:
            with suppress(subprocess.TimeoutExpired):
                process.wait(order.settings.data_locks.lease_s)


def _granted(process: subprocess.Popen[bytes], order: KeeperOrder) -> KeptLocks:
    with suppress(OSError):
        _send(process, order)
    answer = process.stdout.readline()  # type: ignore[union-attr]
    if not answer:
        raise LockError(
            f"the process that is to keep the data locks ended at once (exit status {process.wait()})",
            hint="the log of the Spark driver says why; without data locks: concurrency.mode=OPTIMISTIC",
        )
    found = received(answer)
    if isinstance(found, LakelockError):
        raise found
    assert isinstance(found, KeptLocks)
    return found


def _environment() -> Mapping[str, str]:
    """This process's environment, with the path by which it found its modules: a zip that Spark shipped, for example."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def _send(process: subprocess.Popen[bytes], what: object) -> None:
    process.stdin.write(line_of(what))  # type: ignore[union-attr]
    process.stdin.flush()  # type: ignore[union-attr]


def line_of(what: object) -> bytes:
    """A value as one line, for the pipe between planner and keeper."""
    return base64.b64encode(pickle.dumps(what)) + b"\n"


def received(line: bytes) -> object:
    """The value that `line_of` sent."""
    return pickle.loads(base64.b64decode(line))
