"""The keeper: a process that takes a write's data locks, renews them and gives them back when the write has ended.

Spark runs a write through a data source in several short-lived Python processes, none of which lives as long as the write, so
one of them starts this one (`lakelock.data_locks.keeper`). The write has ended when the process that ends it says so on the
keeper's socket, when its heartbeat file is gone or silent for its limit, or when its owner (Spark) is gone. A keeper
that is killed leaves the locks to their lease, and the write to the validation of its commit.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from lakelock.clock import Runtime, SystemRuntime
from lakelock.data_locks import DataLease, DataLocks, LockRequest, open_data_locks
from lakelock.data_locks.keeper import KeeperOrder, KeptLocks, SignOfLife, line_of, received
from lakelock.errors import LakelockError
from lakelock.providers.base import renewing
from lakelock.storage import Storage

LOOK_S = 1.0
"""How often a keeper checks that the owner of the write exists, where the system cannot notify it."""
LOOKS_PER_LIMIT = 4
LONGEST_ADDRESS = 90
"""Longer paths than about a hundred bytes cannot be a socket's address."""


def main() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    order = received(sys.stdin.buffer.readline())
    assert isinstance(order, KeeperOrder)
    with suppress(KeyboardInterrupt):
        keep(order, SystemRuntime(), sys.stdin.buffer, sys.stdout.buffer)


def keep(order: KeeperOrder, runtime: Runtime, planner: BinaryIO, answers: BinaryIO) -> None:
    """Carry out an order. The planner gets one answer; it may go away before it has said which write the locks are for."""
    settings = order.settings
    storage = order.location.open(within_s=settings.lock.answer_s, holds_table=True)
    # The writer's own identity, so that `locks ls` finds its transaction; the process to look at is this one.
    writer = replace(order.writer, pid=os.getpid())
    try:
        with closing(open_data_locks(settings, storage, runtime, writer)) as locks:
            began_s = runtime.monotonic_s()
            lease = _acquired(locks, order.request, planner, runtime)
            waited_s = round(runtime.monotonic_s() - began_s, 3)
            with renewing(locks, lease, runtime, settings.data_locks.renew_s), _listening() as (listener, address):
                _answer(answers, KeptLocks(address, lease.token, waited_s, settings.data_locks.lease_s))
                line = planner.readline()
                sign = received(line) if line else None
                if isinstance(sign, SignOfLife):
                    _Watch(
                        locks, lease, listener, OwnerProcess(order.owner_pid), HeartbeatWatch(storage, sign, runtime)
                    ).until_the_end()
                locks.release(lease)
    except LakelockError as error:
        _answer(answers, error)


def _acquired(locks: DataLocks, request: LockRequest, planner: BinaryIO, runtime: Runtime) -> DataLease:
    """Take the locks; the wait is interrupted when the planner goes away."""

    def look() -> None:
        # The planner says nothing before it has its answer, so the only thing to read is the end of its stream.
        if select.select([planner], [], [], 0)[0]:
            os.kill(os.getpid(), signal.SIGINT)

    watcher = runtime.every(LOOK_S / 2, look, name="planner")
    try:
        return locks.acquire(request)
    finally:
        watcher.stop()


def _answer(answers: BinaryIO, what: object) -> None:
    with suppress(BrokenPipeError):
        answers.write(line_of(what))
        answers.flush()


@contextmanager
def _listening() -> Iterator[tuple[socket.socket, str]]:
    """A socket in a folder that only this user can enter."""
    place = tempfile.gettempdir()
    folder = Path(tempfile.mkdtemp(prefix="lakelock-", dir=place if len(place) < LONGEST_ADDRESS - 20 else "/tmp"))
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(str(folder / "keeper"))
            listener.listen()
            yield listener, str(folder / "keeper")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class OwnerProcess:
    """The process with which the write ends. Where the system supports it, `fd` becomes readable as soon as it is gone."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.fd: int | None = None
        with suppress(AttributeError, OSError):  # a missing system call or process shows in `is_gone`
            self.fd = os.pidfd_open(pid)

    def is_gone(self) -> bool:
        if self.fd is not None:
            return bool(select.select([self.fd], [], [], 0)[0])
        try:
            os.kill(self._pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        return False


class HeartbeatWatch:
    """Looks at the write's heartbeat file now and then, on this process's own clock."""

    def __init__(self, storage: Storage, sign: SignOfLife, runtime: Runtime) -> None:
        self._storage, self._sign, self._runtime = storage, sign, runtime
        self._seen: tuple[str, int] | None = None
        self._changed_s = self._looked_s = runtime.monotonic_s()

    def is_over(self) -> bool:
        """Whether the file is gone or was silent for its limit. A storage that does not answer shows no sign of life."""
        now_s, limit_s = self._runtime.monotonic_s(), self._sign.limit_s
        if now_s - self._looked_s < limit_s / LOOKS_PER_LIMIT:
            return False
        self._looked_s = now_s
        with suppress(LakelockError):
            found = self._storage.get(self._sign.key)
            if found is None:
                return True
            if self._seen != (found.etag, found.modified_ms):
                self._seen, self._changed_s = (found.etag, found.modified_ms), now_s
        return now_s - self._changed_s >= limit_s


@dataclass
class _Watch:
    """Holds a lease until the write has ended."""

    locks: DataLocks
    lease: DataLease
    listener: socket.socket
    owner: OwnerProcess
    heartbeat: HeartbeatWatch
    lost: str = field(default="", init=False)

    def until_the_end(self) -> None:
        """Return once the locks are given back."""
        while not (asked := self._asked(LOOK_S)):
            if self.owner.is_gone():
                self._give_back()
                return
            if self.heartbeat.is_over():
                break
        self._give_back()
        # The process that ended the write by removing its heartbeat is about to ask.
        if asked or self._asked(LOOK_S):
            self._tell()

    def _asked(self, within_s: float) -> bool:
        """Whether a caller is on the line; ends early when the owner of the write does."""
        watched = [self.listener.fileno(), *([] if self.owner.fd is None else [self.owner.fd])]
        return self.listener.fileno() in select.select(watched, [], [], within_s)[0]

    def _give_back(self) -> None:
        with suppress(LakelockError):
            self.locks.renew(self.lease)  # a lock taken away since the latest renewal shows now
        loss = self.lease.lost
        self.lost = "" if loss is None else str(loss)
        self.locks.release(self.lease)

    def _tell(self) -> None:
        with suppress(OSError):
            line, _ = self.listener.accept()
            with line:
                line.sendall(json.dumps({"lost": self.lost}).encode() + b"\n")


if __name__ == "__main__":
    main()
