"""One request for locks in a metastore, from the first call to the last: found again when its reply was lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lakelock.identity import WriterIdentity
from lakelock.providers.hive_metastore.queue import Agent, Watch, is_of
from lakelock.providers.hive_metastore.table import LockCalls
from lakelock.providers.hive_metastore.thrift_calls import EXCLUSIVE, LockAnswer, Part


@dataclass
class Request:
    """Our place in the queue. `asked`: a request may have reached the metastore; `doubted`: perhaps more than one did."""

    grant: str
    lock_id: int | None = None
    asked: bool = False
    doubted: bool = False
    watch: Watch = field(default_factory=Watch)

    @property
    def is_lost(self) -> bool:
        """Whether it may have reached the metastore, but its number is not known."""
        return self.asked and self.lock_id is None

    def enter(
        self,
        calls: LockCalls,
        writer: WriterIdentity,
        agent: Agent,
        within_s: float,
        parts: Sequence[Part] = ((EXCLUSIVE, None),),
    ) -> LockAnswer:
        """Queue up at the end."""

        def sending() -> None:
            self.asked = True

        answer = calls.lock(writer, agent, within_s, sending=sending, parts=parts)
        self.lock_id = answer.lock_id
        return answer

    def find(self, calls: LockCalls, within_s: float) -> None:
        """Find the request whose reply was lost. It may still arrive later, so there may be two in the end (`doubted`)."""
        self.doubted = True
        for row in calls.rows(within_s):
            if is_of(row, self.grant):
                self.lock_id = row.lock_id
                return

    def start_again(self) -> None:
        """The metastore no longer knows the request."""
        self.lock_id, self.asked = None, False

    def leave(self, calls: LockCalls, within: Callable[[], float]) -> None:
        """Take it out of the queue, and every other that was made for the same grant; `lock_id` is None once it is out."""
        others = self.doubted or self.is_lost
        if self.lock_id is not None:
            calls.unlock(self.lock_id, within())
            self.lock_id = None
        if others:
            calls.remove(self.grant, within())
